package relaybench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
)

// agent has one conversation with a Company, over one connection. It writes its requests
// itself: agents share the processors with what is measured.
type agent struct {
	company *company
	address string
	token   string
	name    string
	sent    int

	conversation, cursor string

	conn net.Conn
	in   *bufio.Reader
	used time.Time
}

func (r *rig) agents(n int, companies ...*company) []*agent {
	out := make([]*agent, n)
	for i := range out {
		out[i] = &agent{company: companies[i%len(companies)], address: r.address, token: r.sessions.open(), name: ids.New(ids.Message)}
	}
	return out
}

const endpoint = "/poppy/conversations"

// turn says something and waits for what the backend says to it.
func (a *agent) turn(ctx context.Context) error { return a.say(ctx, 20*time.Second, true) }

func (a *agent) say(ctx context.Context, wait time.Duration, answered bool) error {
	query := "?wait=" + strconv.Itoa(int(wait.Seconds()))
	path, want := endpoint+query, http.StatusCreated
	if a.conversation != "" {
		path, want = endpoint+"/"+a.conversation+"/messages"+query+"&cursor="+a.cursor, http.StatusAccepted
	}
	a.sent++
	status, body, err := a.post(ctx, path, fmt.Sprintf(`{"message":{"id":"%s%d","sender":"agent","text":"ping"}}`, a.name, a.sent))
	if err != nil {
		return err
	}
	if status != want {
		return fmt.Errorf("%s: status %d: %s", path, status, body)
	}
	var page struct {
		ConversationID string `json:"conversation_id"`
		Status         string `json:"status"`
		Cursor         string `json:"cursor"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return err
	}
	a.conversation, a.cursor = page.ConversationID, page.Cursor
	if answered && page.Status != "idle" {
		return fmt.Errorf("%s: no answer: %s", path, body)
	}
	return nil
}

// end closes the conversation.
func (a *agent) end(ctx context.Context) error {
	if a.conversation == "" {
		return nil
	}
	status, body, err := a.post(ctx, endpoint+"/"+a.conversation+"/close", "{}")
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("close: status %d: %s", status, body)
	}
	a.conversation, a.cursor = "", ""
	return err
}

// post sends a request; the end of ctx ends it, and the connection.
func (a *agent) post(ctx context.Context, path, body string) (int, []byte, error) {
	// A server ends a connection that was idle for long.
	if a.conn == nil || time.Since(a.used) > 10*time.Second {
		if err := a.connect(ctx); err != nil {
			return 0, nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = a.conn.SetDeadline(time.Unix(1, 0)) })()
	status, raw, err := a.exchange(path, body)
	if err != nil {
		_ = a.conn.Close()
		a.conn = nil
		return 0, nil, err
	}
	a.used = time.Now()
	return status, raw, nil
}

func (a *agent) connect(ctx context.Context) error {
	a.close()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", a.address)
	if err != nil {
		return err
	}
	a.conn, a.in = conn, bufio.NewReader(conn)
	return nil
}

func (a *agent) close() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}

func (a *agent) exchange(path, body string) (int, []byte, error) {
	_, err := fmt.Fprintf(a.conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: DPoP %s\r\nDPoP: proof\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, a.company.host, a.token, len(body), body)
	if err != nil {
		return 0, nil, err
	}
	res, err := http.ReadResponse(a.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, raw, err
}

func hangUp(agents []*agent) {
	for _, a := range agents {
		a.close()
	}
}

// figures are what a run of turns gave.
type figures struct {
	Turns     int     `json:"turns"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

func summed(took []time.Duration, over time.Duration) figures {
	out := figures{Turns: len(took), PerSecond: float64(len(took)) / over.Seconds()}
	if len(took) > 0 {
		slices.Sort(took)
		out.P50, out.P95, out.P99 = at(took, 50), at(took, 95), at(took, 99)
	}
	return out
}

func at(sorted []time.Duration, percent int) float64 {
	return float64(sorted[(len(sorted)-1)*percent/100].Microseconds()) / 1000
}

// closedLoop has n workers work one time after the other for a while. It returns what of
// their work ended within that, by worker.
func closedLoop(ctx context.Context, n int, over time.Duration, work func(ctx context.Context, worker int) error) ([][]time.Duration, error) {
	took := make([][]time.Duration, n)
	failed := make(chan error, n)
	stop := time.Now().Add(over)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			for {
				begun := time.Now()
				if !begun.Before(stop) {
					return
				}
				if err := work(ctx, i); err != nil {
					failed <- err
					return
				}
				if end := time.Now(); end.Before(stop) {
					took[i] = append(took[i], end.Sub(begun))
				}
			}
		})
	}
	wait.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return took, nil
	}
}

// openLoop starts turns at a rate, whether earlier ones have ended or not, and returns how
// long each took from its start, the wait for a free agent included.
func openLoop(ctx context.Context, agents []*agent, rate float64, over time.Duration) ([]time.Duration, error) {
	starts := make(chan time.Time, int(rate*over.Seconds())+1)
	took := make([][]time.Duration, len(agents))
	failed := make(chan error, len(agents))
	var wait sync.WaitGroup
	for i, a := range agents {
		wait.Go(func() {
			for begun := range starts {
				if err := a.turn(ctx); err != nil {
					failed <- err
					return
				}
				took[i] = append(took[i], time.Since(begun))
			}
		})
	}
	begun := time.Now()
	timer := time.NewTimer(0)
	for n := 0; n < cap(starts)-1; n++ {
		timer.Reset(time.Until(begun.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		<-timer.C
		starts <- time.Now() // never blocks
	}
	close(starts)
	wait.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return slices.Concat(took...), nil
	}
}
