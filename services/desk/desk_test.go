package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const company = "companies/cmp_1"

// api is an admin API with one Company, as far as a desk needs it.
type api struct {
	t      *testing.T
	server *httptest.Server

	mu     sync.Mutex
	items  []map[string]any
	events map[string][]map[string]any
	calls  []string
	ring   map[chan string]bool
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, events: map[string][]map[string]any{}, ring: map[chan string]bool{}}
	a.server = httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.server.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer pfk_1" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/"+company)
	if path == ":watch" {
		a.watch(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		answer := map[string]any{}
		switch {
		case path == "/inbox/items":
			answer["items"] = a.items
		case strings.HasSuffix(path, "/events"):
			var list []map[string]any
			for _, e := range a.events[strings.Split(path, "/")[2]] {
				if len(e["sequence"].(string)) > 0 && e["sequence"].(string) > r.URL.Query().Get("after_sequence") {
					list = append(list, e)
				}
			}
			answer["events"] = list
		}
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	delete(body, "request_id")
	raw, _ := json.Marshal(body)
	a.calls = append(a.calls, path+" "+string(raw))
	id, verb, _ := strings.Cut(strings.TrimPrefix(path, "/conversations/"), ":")
	switch verb {
	case "join":
		if a.items[0]["conversation"].(map[string]any)["person"] == "ben" {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"status":409,"reason":"NOT_RESPONDER","detail":"ben handles the conversation"}`)
			return
		}
		a.item(id, "idle", body["person"].(string))
	case "sendAsPerson":
		for _, m := range list(body["messages"]) {
			a.event(id, "company", "human", m["text"].(string))
		}
		if body["close"] == true {
			a.items = nil
		}
	case "handBack", "transfer":
		a.items = nil
	}
	_, _ = io.WriteString(w, "{}")
}

func list(v any) []map[string]any {
	var out []map[string]any
	all, _ := v.([]any)
	for _, m := range all {
		out = append(out, m.(map[string]any))
	}
	return out
}

// item and event are for who holds the lock.
func (a *api) item(id, status, person string) {
	a.items = []map[string]any{{
		"conversation": map[string]any{"uid": id, "status": status, "person": person, "agent_name": "Example\x1b[2J Agent"},
		"last_message": map[string]any{"role": "user", "text": "hello"},
	}}
}

func (a *api) event(id, role, sender, text string) {
	a.events[id] = append(a.events[id], map[string]any{
		"sequence": fmt.Sprint(len(a.events[id]) + 1), "type": "message", "create_time": "2026-12-01T10:00:00Z",
		"message": map[string]any{"role": role, "sender": sender, "text": text},
	})
}

func (a *api) change(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
	for c := range a.ring {
		c <- "changed"
	}
}

func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	c := make(chan string, 100)
	a.mu.Lock()
	a.ring[c] = true
	a.mu.Unlock()
	defer func() { a.mu.Lock(); delete(a.ring, c); a.mu.Unlock() }()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "event: heartbeat\nid: 1\ndata: {}\n\n")
	w.(http.Flusher).Flush()
	for {
		select {
		case kind := <-c:
			_, _ = fmt.Fprintf(w, "event: %s\nid: 2\ndata: {}\n\n", kind)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (a *api) called() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.calls...)
}

// screen is what the terminal shows.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.String(), text) }, 10*time.Second, 5*time.Millisecond, "%q never came; there is:\n%s", text, s)
}

func (a *api) desk(out io.Writer, scripted bool) *Desk {
	c := newClient(a.server.URL, "pfk_1", nil)
	c.http, c.pause = a.server.Client(), time.Millisecond
	return &Desk{api: c, company: company, person: "anna", out: out, scripted: scripted, wait: 10 * time.Second}
}

func TestDesk_AScriptWaitsForWhatItNeeds(t *testing.T) {
	a, out := newAPI(t), &screen{}
	done := make(chan error, 1)
	go func() {
		done <- a.desk(out, true).Run(t.Context(), strings.NewReader("join 1\nHello, I am Anna.\nnote a nice one\nwait\nsay list\nback thanks\n"))
	}()
	out.await(t, "Nobody waits.")
	a.change(func() { a.event("cnv_1", "user", "agent", "hello"); a.item("cnv_1", "queued", "") })
	out.await(t, "Noted.")
	a.change(func() { a.event("cnv_1", "user", "human", "Hi Anna \x1b[31m") })
	require.NoError(t, <-done)
	require.Equal(t, []string{
		`/inbox:setPresence {"display_name":"anna","person":"anna","ttl":"60s"}`,
		`/conversations/cnv_1:join {"person":"anna"}`,
		`/conversations/cnv_1:sendAsPerson {"messages":[{"sender":"human","text":"Hello, I am Anna."}],"person":"anna"}`,
		`/conversations/cnv_1/notes {"note":{"author":"anna","text":"a nice one"}}`,
		`/conversations/cnv_1:sendAsPerson {"messages":[{"sender":"human","text":"list"}],"person":"anna"}`,
		`/conversations/cnv_1:handBack {"note":"thanks","person":"anna"}`,
		`/inbox:setPresence {"display_name":"anna","person":"anna","ttl":"0s"}`,
	}, a.called())
	require.Contains(t, out.String(), "agent: hello")
	require.Contains(t, out.String(), "the user: Hi Anna �[31m")
	require.Contains(t, out.String(), "has left the inbox")
	require.NotContains(t, out.String(), "\x1b")
}

func TestDesk_AScriptEndsWithTheFirstFailure(t *testing.T) {
	a, out := newAPI(t), &screen{}
	a.item("cnv_1", "idle", "ben")
	err := a.desk(out, true).Run(t.Context(), strings.NewReader("join 1\nHello\n"))
	require.EqualError(t, err, "ben handles the conversation")
	d := a.desk(out, true)
	d.wait = 10 * time.Millisecond
	require.EqualError(t, d.Run(t.Context(), strings.NewReader("join 2\n")), "there is no conversation 2")
	require.EqualError(t, a.desk(out, true).Run(t.Context(), strings.NewReader("Hello\n")), "join a conversation first: join N")
	wrongKey := a.desk(out, true)
	wrongKey.api.key = "pfk_2"
	require.ErrorContains(t, wrongKey.Run(t.Context(), strings.NewReader("list\n")), "401")
}

func TestDesk_APersonSeesWhatHappens(t *testing.T) {
	a, out := newAPI(t), &screen{}
	in, keyboard := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.desk(out, false).Run(ctx, in) }()
	enter := func(s string) { _, err := io.WriteString(keyboard, s+"\n"); require.NoError(t, err) }
	out.await(t, "Nobody waits.")
	a.change(func() { a.item("cnv_1", "queued", "") })
	out.await(t, "> 1  Example�[2J Agent  [queued]  “hello”")
	enter("join 7")
	out.await(t, "! there is no conversation 7")
	enter("join one")
	out.await(t, "! \"one\" is no number of the list")
	enter("join 1")
	out.await(t, "You handle conversation 1.")
	a.change(func() { a.event("cnv_1", "user", "agent", "it is about order 1042") })
	out.await(t, "agent: it is about order 1042")
	a.change(func() { a.item("cnv_1", "idle", "ben") })
	out.await(t, "[idle, with ben]")
	enter("away")
	enter("help")
	out.await(t, "decline N")
	enter("quit")
	require.NoError(t, <-done)
	stop()
}

func TestConnect_FindsTheDemoCompanyOfADevInstallation(t *testing.T) {
	dir := t.TempDir()
	a := newAPI(t)
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}), 0o600))
	raw, err := json.Marshal(map[string]string{
		"api_origin": a.server.URL, "ca_file": ca, "demo_domain": "noodle-bar.localhost:1234", "demo_company": company,
		"demo_company_api_key": "pfk_1", "operator_api_key": "pfo_1",
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ready.json"), raw, 0o600))
	for _, named := range []string{"", "noodle-bar.localhost", "noodle-bar.localhost:1234", company} {
		api, got, err := connect(t.Context(), Options{Dev: dir, Person: "anna", Company: named})
		require.NoError(t, err)
		require.Equal(t, company, got)
		items, err := api.items(t.Context(), got)
		require.NoError(t, err)
		require.Empty(t, items)
	}
	for _, o := range []Options{
		{Dev: dir},
		{Dev: t.TempDir(), Person: "anna"},
		{Person: "anna"},
		{Person: "anna", API: "http://x", KeyFile: ca, Company: company},
		{Person: "anna", API: "https://x", Company: company},
		{Person: "anna", API: "https://x", KeyFile: ca},
		{Person: "anna", API: "https://x", KeyFile: dir + "/none", Company: company},
	} {
		_, _, err := connect(t.Context(), o)
		var coded interface{ ExitCode() int }
		require.ErrorAs(t, err, &coded)
		require.Equal(t, 2, coded.ExitCode())
	}
}
