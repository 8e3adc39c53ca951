package readers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	users = 20
	// Each active conversation is read by one stream; the other readers share quiet ones.
	active = 1_000
	quiet  = 300
	// A Session reads a quiet conversation at most this often, and a User has at least
	// this many Sessions: fewer would be refused.
	shared   = 3
	sessions = 4
	rate     = 1_000 // events a second
	span     = 30 * time.Second
	batch    = 20 // events of as many conversations that one transaction writes

	goalMemory = 20_000
	goalWakeup = 50 * time.Millisecond
)

// number of readers, half of them streams: what enabled says.
func number(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(enabled))
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 2*active)
	return n &^ 3 // a quarter is a whole number
}

func TestReaders(t *testing.T) {
	if os.Getenv(enabled) == "" {
		t.Skip("a measurement: make bench-readers")
	}
	readers := number(t)
	floor := measureFloor(t, readers)
	t.Logf("a bare server is measured: %.0f bytes a reader", floor)
	r := newRig(t, readers)
	t.Log("the conversations are there")
	before := r.settled(t)
	first, second := startHelper(t, "agents"), startHelper(t, "agents")
	one, two := r.jobs(readers)
	again := 0
	for _, start := range []struct {
		agents *helper
		job    job
	}{{first, one}, {second, two}} {
		var got report
		start.agents.say(t, start.job)
		start.agents.hear(t, &got)
		require.Empty(t, got.Cut)
		again += got.Again
	}
	each := float64(r.settled(t)-before) / float64(readers)
	t.Logf("the readers wait: %.0f bytes each, %d requests made again", each, again)
	total, written, commits := r.write(t)
	var got, rest report
	for agents, into := range map[*helper]*report{first: &got, second: &rest} {
		agents.say(t, "report")
		agents.hear(t, into)
	}
	require.Empty(t, append(got.Cut, rest.Cut...), "readers were cut")
	arrivals := slices.Concat(got.Arrivals, rest.Arrivals)
	require.Len(t, arrivals, total, "every event comes once")
	var wakes, all, durations []time.Duration
	for _, a := range arrivals {
		committed, ok := commits[a.Stamp]
		require.True(t, ok)
		wakes, all = append(wakes, time.Duration(a.At-committed)), append(all, time.Duration(a.At-a.Stamp))
	}
	for begun, committed := range commits {
		durations = append(durations, time.Duration(committed-begun))
	}
	fmt.Printf(`
%d waiting readers, half of them streams, half long polls
                                      measured        goal
  memory of a reader, bytes           %8.0f      %6d
  of one of a bare net/http server    %8.0f
  events written a second             %8.0f      %6d
  from the commit to the reader:
    median, ms                        %8.1f
    99th percentile, ms               %8.1f      %6d
  with the transaction that writes it:
    median, ms                        %8.1f
    99th percentile, ms               %8.1f
  that transaction alone:
    median, ms                        %8.1f
    99th percentile, ms               %8.1f

%d requests were refused for now, with 503, or ended with their stream, and made again.
Events were written to the database by the measurement itself, %d conversations in a
transaction, and rung for over NATS as by another process.

`, readers, each, goalMemory, floor, written, rate,
		percentile(wakes, 50), percentile(wakes, 99), goalWakeup.Milliseconds(), percentile(all, 50), percentile(all, 99),
		percentile(durations, 50), percentile(durations, 99), got.Again+rest.Again+again, batch)
}

// percentile is one of what it sorts, in milliseconds.
func percentile(of []time.Duration, p int) float64 {
	slices.Sort(of)
	return float64(of[len(of)*p/100].Microseconds()) / 1000
}

// measureFloor returns the memory of a stream of a bare server.
func measureFloor(t *testing.T, readers int) float64 {
	t.Helper()
	floor := startHelper(t, "floor")
	var address string
	floor.hear(t, &address)
	before := settle(t, floor.cmd.Process.Pid)
	var agents []*helper
	for i := range 2 {
		h := startHelper(t, "agents")
		h.say(t, job{Address: address, Readers: repeat(reader{Stream: true}, readers/2), From: sources(i)})
		var got report
		h.hear(t, &got)
		require.Empty(t, got.Cut)
		agents = append(agents, h)
	}
	after := settle(t, floor.cmd.Process.Pid)
	for _, h := range append(agents, floor) {
		h.stop()
	}
	return float64(after-before) / float64(readers)
}

func repeat(r reader, n int) []reader {
	out := make([]reader, n)
	for i := range out {
		out[i] = r
	}
	return out
}

// sources are addresses to connect from, of the i-th process.
func sources(i int) []string {
	var out []string
	for n := range 4 {
		out = append(out, fmt.Sprintf("127.0.%d.%d", i+1, n+1))
	}
	return out
}

// settle returns a process's memory when it has stopped to shrink: what a garbage
// collection freed goes back over some time.
func settle(t *testing.T, pid int) int {
	t.Helper()
	least, since := math.MaxInt, time.Now()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(since) < 5*time.Second && time.Since(begun) < 25*time.Second; <-tick.C {
		now, err := memory(pid)
		require.NoError(t, err)
		if now < least-least/200 {
			least, since = now, time.Now()
		}
	}
	return least
}

// rig is the built binary with conversations to read.
type rig struct {
	*whole.Installation
	company *whole.Company
	client  *http.Client
	holders []holder // each User's i-th Session is at i*users + the User
	active  []reader
	quiet   []reader
}

func newRig(t *testing.T, readers int) *rig {
	t.Helper()
	outside := whole.StartOutside(t, publicnet.Outside+":443")
	r := &rig{Installation: whole.Serve(t, outside, whole.InstallationOptions{LogLevel: "warn", MaxReaders: 2 * readers})}
	r.company = whole.Onboard(t, r.API, outside, whole.Spec{Slug: "noodles", Domain: whole.Websites()[0]})
	endpoints, err := whole.FindCompany(t.Context(), r.Client, "https://"+whole.Websites()[0])
	require.NoError(t, err)
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}
	t.Cleanup(r.client.CloseIdleConnections)
	var names []string
	for range users {
		names = append(names, "user-"+fixture.RandomID())
	}
	for range max(sessions, (readers-active+quiet*shared-1)/(quiet*shared)) {
		for _, name := range names {
			r.holders = append(r.holders, r.session(t, outside.Identity, name, endpoints))
		}
	}
	// Every conversation gets an agent's message and the backend's answer.
	var wait sync.WaitGroup
	all := make([]reader, active+quiet)
	failed := make(chan error, len(all))
	gate := make(chan struct{}, 16)
	for i := range all {
		gate <- struct{}{}
		wait.Go(func() {
			defer func() { <-gate }()
			var err error
			if all[i], err = r.converse(t.Context(), endpoints, i%users); err != nil {
				failed <- err
			}
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	r.active, r.quiet = all[:active], all[active:]
	return r
}

func (r *rig) session(t *testing.T, agent *fixture.Agent, user string, e whole.Endpoints) holder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	h := holder{Key: raw}
	form := agent.TokenForm(t, user, e.Token, time.Now())
	var token struct {
		AccessToken string `json:"access_token"`
	}
	require.NoError(t, r.call(t.Context(), h, http.MethodPost, e.Token, "application/x-www-form-urlencoded", form.Encode(), &token))
	require.NotEmpty(t, token.AccessToken)
	h.Token = token.AccessToken
	return h
}

// converse starts a conversation, waits until it is quiet, and returns a reader from there on.
func (r *rig) converse(ctx context.Context, e whole.Endpoints, by int) (reader, error) {
	body, err := json.Marshal(whole.NewMessage("msg_"+fixture.RandomID(), "hello"))
	if err != nil {
		return reader{}, err
	}
	var page whole.Page
	if err := r.call(ctx, r.holders[by], http.MethodPost, e.Conversations, "application/json", string(body), &page); err != nil {
		return reader{}, err
	}
	out := reader{Holder: by, URL: e.Conversations + "/" + page.ConversationID + "/events"}
	for page.Status = ""; page.Status != "idle"; {
		if err := r.call(ctx, r.holders[by], http.MethodGet, out.URL+"?wait=10&cursor="+out.Cursor, "", "", &page); err != nil {
			return reader{}, err
		}
		out.Cursor = page.Cursor
	}
	return out, nil
}

// call makes a request to the binary as the proxy in front would.
func (r *rig) call(ctx context.Context, h holder, method, address, contentType, body string, out any) error {
	path := address[strings.Index(address, "//")+2:]
	host, path, _ := strings.Cut(path, "/")
	request, err := http.NewRequestWithContext(ctx, method, "http://"+r.Processes["all"].Public+"/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	signer, err := h.signer()
	if err != nil {
		return err
	}
	htu, _, _ := strings.Cut(address, "?")
	signed, err := proof(signer, method, htu, h.Token)
	if err != nil {
		return err
	}
	request.Host = host
	request.Header.Set("DPoP", signed)
	if h.Token != "" {
		request.Header.Set("Authorization", "DPoP "+h.Token)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, address, answer.Status, raw)
	}
	return json.Unmarshal(raw, out)
}

// jobs deals the readers to two processes: the streams of active conversations are the first one's.
func (r *rig) jobs(readers int) (one, two job) {
	all := make([]reader, 0, readers)
	each := len(r.holders) / users
	for i, a := range r.active {
		a.Stream, a.Holder = true, i/users%each*users+a.Holder
		all = append(all, a)
	}
	for i := range readers - active {
		q := r.quiet[i%quiet]
		q.Stream, q.Holder = len(all) < readers/2, i/quiet%each*users+q.Holder
		all = append(all, q)
	}
	// Streams and polls in both, and each below the limit of open files.
	streams, polls := all[:readers/2], all[readers/2:]
	half := readers / 4
	one = job{Address: r.Processes["all"].Public, Holders: r.holders, From: sources(0), Readers: append(append([]reader{}, streams[:half]...), polls[:half]...)}
	two = job{Address: one.Address, Holders: r.holders, From: sources(1), Readers: append(append([]reader{}, streams[half:]...), polls[half:]...)}
	return one, two
}

func (r *rig) settled(t *testing.T) int {
	t.Helper()
	return settle(t, r.Processes["all"].PID())
}

// write adds events to the active conversations and rings for them, and returns how many, how many a second, and for
// each transaction's stamp when it was committed.
func (r *rig) write(t *testing.T) (total int, each float64, commits map[int64]int64) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), r.DSN)
	require.NoError(t, err)
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	b, err := bus.Connect(t.Context(), bus.Config{URL: r.NATS.URL()})
	require.NoError(t, err)
	defer b.Close()
	require.Eventually(t, b.Connected, 10*time.Second, 10*time.Millisecond)
	company := strings.TrimPrefix(r.company.Name, "companies/")
	ids := make([]string, 0, active)
	for _, a := range r.active {
		parts := strings.Split(a.URL, "/")
		ids = append(ids, parts[len(parts)-2])
	}
	tick := time.NewTicker(time.Second * batch / rate)
	defer tick.Stop()
	commits = map[int64]int64{}
	begun := time.Now()
	for ; time.Since(begun) < span; <-tick.C {
		at := total % active
		begun := time.Now().UnixNano()
		last, err := add(t.Context(), db, company, ids[at:at+batch], begun)
		require.NoError(t, err)
		commits[begun] = time.Now().UnixNano()
		for id, seq := range last {
			subject, err := bus.ConversationSubject(company, id)
			require.NoError(t, err)
			b.Publish(t.Context(), subject, strconv.AppendInt(nil, seq, 10))
		}
		total += batch
	}
	elapsed := time.Since(begun)
	tick.Reset(2 * time.Second) // the last ones are under way
	<-tick.C
	return total, float64(total) / elapsed.Seconds(), commits
}

// add writes one event to each conversation, and returns their sequence numbers.
func add(ctx context.Context, db *pgx.Conn, company string, ids []string, at int64) (map[string]int64, error) {
	last := map[string]int64{}
	payload := fmt.Sprintf(`{"message":{"id":"msg_%s","role":"company","sender":"agent","text":"%s%d"}}`, fixture.RandomID(), stamp, at)
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('app.company', $1, true)`, company); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `WITH heads AS (
			UPDATE conversations SET last_sequence = last_sequence + 1, last_event_at = now(), updated_at = now(), version = version + 1 WHERE id = ANY($1)
			RETURNING id, last_sequence)
			INSERT INTO events (id, company_id, conversation_id, sequence, type, payload, created_at)
			SELECT gen_random_uuid(), $2, id, last_sequence, 'message', $3, now() FROM heads RETURNING conversation_id, sequence`, ids, company, []byte(payload))
		if err != nil {
			return err
		}
		var id string
		var seq int64
		_, err = pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
			last[id] = seq
			return nil
		})
		return err
	})
	return last, err
}
