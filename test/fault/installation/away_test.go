package installation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	recovery = 30 * time.Second
	half     = 50 // messages accepted before a part goes away; as many are sent while it is
)

// A dialogue is a conversation of one message.
type dialogue struct{ id, messageID, text string }

// busy gives no usable answer, of a kind that opens no circuit: every message is tried.
func busy(whole.Webhook) (int, string) { return http.StatusOK, `{"messages":"none"}` }

// open starts conversations, one after the other, that are all accepted.
func (p place) open(t *testing.T, name string, many int) []dialogue {
	t.Helper()
	var out []dialogue
	for n := range many {
		d := dialogue{messageID: fixture.RandomID(), text: fmt.Sprintf("%s %d", name, n)}
		var err error
		d.id, err = p.agent.Open(t.Context(), d.messageID, d.text)
		require.NoError(t, err)
		out = append(out, d)
	}
	return out
}

// persistently starts conversations, all at once, and tries until each is accepted.
func (p place) persistently(ctx context.Context, name string, many int) <-chan result {
	out := make(chan result, many)
	for n := range many {
		go func() {
			d := dialogue{messageID: fixture.RandomID(), text: fmt.Sprintf("%s %d", name, n)}
			err := whole.Persist(ctx, func() (err error) {
				d.id, err = p.agent.Open(ctx, d.messageID, d.text)
				return err
			})
			out <- result{d, err}
		}()
	}
	return out
}

type result struct {
	dialogue
	err error
}

// unavailable requires an answer of 503 that says when to come back.
func unavailable(t *testing.T, err error) {
	t.Helper()
	var refused *whole.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status, "%s", refused.Body)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Contains(t, string(refused.Body), "temporarily_unavailable")
}

// answered requires that the agent reads the backend's answer to every message, once.
func (p place) answered(t *testing.T, all []dialogue) {
	t.Helper()
	for _, d := range all {
		events, _, err := p.agent.ReadUntil(t.Context(), d.id, "", whole.Idle)
		require.NoError(t, err)
		require.Equal(t, []string{"user: " + d.text, "company: you said: " + d.text}, whole.Texts(events))
	}
}

// delivered says that webhooks for all of these came, with a good answer.
func delivered(all []dialogue, since int) func([]whole.Webhook) bool {
	return func(got []whole.Webhook) bool {
		seen := map[string]bool{}
		for _, w := range got[min(since, len(got)):] {
			seen[w.MessageID] = true
		}
		for _, d := range all {
			if !seen[d.messageID] {
				return false
			}
		}
		return true
	}
}

// sameIDs requires that every message has one webhook-id and every repeat the same body.
func (p place) sameIDs(t *testing.T, messages int) {
	t.Helper()
	ids, bodies := map[string]string{}, map[string]string{}
	for _, w := range p.company.Backend.Received() {
		if id, again := ids[w.MessageID]; again {
			require.Equal(t, id, w.ID)
			require.Equal(t, bodies[id], string(w.Raw))
		}
		ids[w.MessageID], bodies[w.ID] = w.ID, string(w.Raw)
		require.NoError(t, w.Verify(p.company.Secret))
	}
	require.Len(t, ids, messages)
	require.Len(t, bodies, messages)
}

func (p place) becomes(t *testing.T, path string, status int) time.Duration {
	t.Helper()
	begin := time.Now()
	require.Eventually(t, func() bool { return p.process.Health(t, path) == status }, recovery, 20*time.Millisecond, "%s never %d", path, status)
	return time.Since(begin)
}

func TestWH06_NATSAway(t *testing.T) {
	p := newPlace(t, whole.InstallationOptions{})
	ctx := t.Context()
	p.company.Backend.Answer(busy)
	early := p.open(t, "early", half)
	p.company.Backend.Await(t, recovery, "all messages", delivered(early, 0))
	// Held since before, this read learns of the answer without NATS.
	page, err := p.agent.Read(ctx, early[0].id, "", 0)
	require.NoError(t, err)
	held := make(chan error, 1)
	go func() {
		page, err := p.agent.Read(ctx, early[0].id, page.Cursor, 30)
		if err == nil && len(page.Events) == 0 {
			err = errors.New("nothing came")
		}
		held <- err
	}()
	other, err := p.agent.Read(ctx, early[1].id, "", 0)
	require.NoError(t, err)
	_, err = p.agent.Read(ctx, early[1].id, other.Cursor, 1) // a second later the first is held for sure
	require.NoError(t, err)

	p.NATS.Kill(t)
	p.becomes(t, "/readyz", http.StatusServiceUnavailable)
	require.Equal(t, http.StatusOK, p.process.Health(t, "/livez"))
	_, err = p.agent.Open(ctx, fixture.RandomID(), "refused")
	unavailable(t, err)
	unavailable(t, whole.NewAgent(t, p.outside, p.Client, p.agent.Endpoints).StartSession(ctx))
	require.NoError(t, p.API.Call(ctx, http.MethodGet, p.company.Name+"/conversations", nil, nil))

	since := len(p.company.Backend.Received())
	p.company.Backend.Answer(whole.Echo)
	p.company.Backend.Await(t, recovery, "what was accepted, with NATS away", delivered(early, since))
	require.NoError(t, <-held)
	late := p.persistently(ctx, "late", half)

	p.NATS.Restart(t)
	back := p.becomes(t, "/readyz", http.StatusOK)
	all := early
	for range half {
		r := <-late
		require.NoError(t, r.err)
		all = append(all, r.dialogue)
	}
	p.answered(t, all)
	p.sameIDs(t, 2*half)
	t.Logf("%d messages, ready %s after NATS", len(all), back)
}

func TestSH03_PostgreSQLAway(t *testing.T) {
	p := newPlace(t, whole.InstallationOptions{Durable: true})
	ctx := t.Context()
	p.company.Backend.Answer(busy)
	early := p.open(t, "early", half)

	p.PostgreSQL.Crash(t)
	p.becomes(t, "/readyz", http.StatusServiceUnavailable)
	_, err := p.agent.Open(ctx, fixture.RandomID(), "refused")
	unavailable(t, err)
	unavailable(t, whole.NewAgent(t, p.outside, p.Client, p.agent.Endpoints).StartSession(ctx))
	answer, err := p.API.Do(ctx, http.MethodGet, p.company.Name+"/conversations", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, answer.Status, "%s", answer.Body)
	p.company.Backend.Answer(whole.Echo)
	late := p.persistently(ctx, "late", half)
	for range 50 { // alive all the time
		require.Equal(t, http.StatusOK, p.process.Health(t, "/livez"))
		time.Sleep(50 * time.Millisecond)
	}

	p.PostgreSQL.Restart(t)
	back := p.becomes(t, "/readyz", http.StatusOK)
	all := early
	for range half {
		r := <-late
		require.NoError(t, r.err)
		all = append(all, r.dialogue)
	}
	p.answered(t, all)
	p.sameIDs(t, 2*half)
	t.Logf("%d messages, ready %s after PostgreSQL", len(all), back)
}

func TestSH01_StopDrains(t *testing.T) {
	p := newPlace(t, whole.InstallationOptions{DrainDelay: "2s"})
	ctx := t.Context()
	p.company.Backend.Answer(whole.Echo)
	d := p.open(t, "before", 1)[0]
	_, cursor, err := p.agent.ReadUntil(ctx, d.id, "", whole.Idle)
	require.NoError(t, err)

	begin := time.Now()
	require.NoError(t, p.process.Signal(15))
	p.becomes(t, "/readyz", http.StatusServiceUnavailable)
	require.Less(t, time.Since(begin), time.Second)
	require.Equal(t, http.StatusOK, p.process.Health(t, "/livez"))
	// The proxy goes on to send requests until it has seen that.
	require.NoError(t, p.agent.Send(ctx, d.id, fixture.RandomID(), "during"))
	page, err := p.agent.Read(ctx, d.id, cursor, 30)
	require.NoError(t, err)
	require.NotEmpty(t, page.Events)
	require.Less(t, time.Since(begin), 2*time.Second, "nothing is held any more")
	require.NoError(t, p.process.Wait())
	require.Less(t, time.Since(begin), 10*time.Second)
	require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
}
