package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// streams makes the Company answer reads of cnv_1 that ask for a stream by parts, one
// for each connection; the last one counts for all later ones. Other reads stay as they are.
func (c *fakeCompany) streams(parts ...func(*streamWriter)) {
	n := 0
	c.routes[eventsAt] = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != streamType {
			c.read(w, r, "cnv_1", 200)
			return
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "DPoP ")
		if _, ok := c.proof(w, r, "https://"+r.Host+r.URL.Path, token, 401); !ok {
			return
		}
		w.Header().Set("Content-Type", streamType)
		s := &streamWriter{c: c, w: w, r: r}
		n++
		parts[min(n, len(parts))-1](s)
		s.flush()
	}
}

type streamWriter struct {
	c *fakeCompany
	w http.ResponseWriter
	r *http.Request
}

func (s *streamWriter) flush() { _ = http.NewResponseController(s.w).Flush() }

// raw writes text as it is.
func (s *streamWriter) raw(text string) { _, _ = fmt.Fprint(s.w, text) }

// events writes the Company's events from the nth to the one before the mth, counted from 0.
func (s *streamWriter) events(n, m int) {
	for _, ev := range s.c.events["cnv_1"][n:m] {
		raw, _ := json.Marshal(ev)
		s.raw(fmt.Sprintf("id: %s\ndata: %s\n\n", ev["id"], raw))
	}
}

func (s *streamWriter) delta(id, text string) {
	raw, _ := json.Marshal(map[string]string{"message_id": id, "text": text})
	s.raw(fmt.Sprintf("event: text-delta\ndata: %s\n\n", raw))
}

// cut breaks the connection off.
func (s *streamWriter) cut() {
	s.flush()
	panic(http.ErrAbortHandler)
}

// says is a message of the Company with an id that pieces can name.
func says(id, text string) map[string]any {
	return map[string]any{"type": "message", "message": map[string]any{"id": id, "role": "company", "sender": "agent", "text": text}}
}

func state(status, responder string) map[string]any {
	return map[string]any{"type": "state", "status": status, "responder": responder}
}

// writes makes the Company work on every message, say text and be idle again.
func (c *fakeCompany) writes(id, text string) {
	c.status = statusWorking
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{state("working", "agent"), says(id, text), state("idle", "agent")}
	}
}

func TestStream_ShowsAMessageWhileItIsWritten(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#2", "poppy-0.1/7.6#12")
	for name, quiet := range map[string]bool{"steps": false, "quiet": true} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.writes("msg_a", "We have ramen.")
			c.streams(func(s *streamWriter) {
				s.events(0, 2)
				s.delta("msg_a", "We have \x1b[2J")
				s.raw(": \n\nevent: later-version\ndata: ?\n\n")
				s.delta("msg_a", "ramen")
				s.delta("msg a", "no ID")
				s.raw("event: text-delta\ndata: no JSON\n\n")
				s.events(2, 4)
				s.cut()
			})
			c.answer = func(int, string) []map[string]any {
				return []map[string]any{state("working", "agent"), says("msg_a", "We have \x1b[2Jramen."), state("idle", "agent")}
			}
			var out bytes.Buffer
			steps := &collect{}
			reply, err := c.agent(t.TempDir(), both{NewTextReporter(&out, quiet), steps}).Talk(t.Context(), shopDomain, "menu", human())
			require.NoError(t, err)
			require.Equal(t, []string{"We have \x1b[2Jramen."}, texts(reply))
			require.Equal(t, 1, strings.Count(out.String(), "We have"), out.String())
			require.Equal(t, !quiet, strings.Contains(out.String(), "\nShop (agent): We have [2Jramen.\n"))
			require.Equal(t, quiet, strings.HasPrefix(out.String(), "We have [2Jramen.\n"))
			require.Len(t, steps.titled("Message from the Company"), 1, "programs get the whole message")
			sent := c.requests(talkAt)
			require.Len(t, sent, 1)
			require.Empty(t, sent[0].query)
			require.Len(t, c.requests(eventsAt), 1)
		})
	}
}

// both reports to a TextReporter and a collect.
type both struct {
	*TextReporter
	steps *collect
}

func (b both) Report(s Step) {
	b.TextReporter.Report(s)
	b.steps.Report(s)
}

func TestStream_ResumesAfterACut(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#8", "poppy-0.1/7.6#13")
	c := newFakeCompany(t)
	c.writes("msg_a", "We have ramen.")
	c.streams(
		func(s *streamWriter) {
			s.events(0, 1)
			s.delta("msg_a", "We ha")
			s.raw("id: evt_half\ndata: {\"id\":\"evt_half\"") // no whole event: it never happened
			s.cut()
		},
		func(s *streamWriter) { s.events(0, 2); s.delta("msg_a", "We have"); s.cut() }, // an event again
		func(s *streamWriter) { s.events(2, 4) },
	)
	var out bytes.Buffer
	steps := &collect{}
	dir := t.TempDir()
	reply, err := c.agent(dir, both{NewTextReporter(&out, false), steps}).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.Equal(t, []string{"We have ramen."}, texts(reply))
	reads := c.requests(eventsAt)
	require.Len(t, reads, 3)
	require.Empty(t, reads[0].header.Get("Last-Event-ID"))
	for i, r := range reads[1:] {
		require.Equal(t, fmt.Sprintf("evt_cnv_1_%d", i+1), r.header.Get("Last-Event-ID"))
		require.NotContains(t, r.query, "cursor")
	}
	require.Len(t, steps.titled("Skip an event handled before"), 1)
	require.Contains(t, out.String(), "Shop (agent): We ha […]\n")
	require.Contains(t, out.String(), "\nShop (agent): We have ramen.\n")

	c.streams(func(s *streamWriter) { s.events(4, 8) })
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "again", human())
	require.NoError(t, err)
	last := c.requests(eventsAt)[3]
	q, err := url.ParseQuery(last.query)
	require.NoError(t, err)
	require.Equal(t, "evt_cnv_1_4", q.Get("cursor"), "another run goes on by the cursor")
	require.Empty(t, last.header.Get("Last-Event-ID"))
}

func TestStream_PiecesOfAnotherTextAreReplaced(t *testing.T) {
	c := newFakeCompany(t)
	c.writes("msg_a", "All of it.")
	c.streams(func(s *streamWriter) { s.events(0, 2); s.delta("msg_a", "of it."); s.events(2, 4) })
	var out bytes.Buffer
	_, err := c.agent(t.TempDir(), NewTextReporter(&out, true)).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.Equal(t, "of it. […]\nAll of it.\n", out.String())
}

func TestStream_NothingActsOnPieces(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.6#12")
	c := newFakeCompany(t)
	c.writes("msg_a", "no")
	c.answer = func(int, string) []map[string]any { return []map[string]any{state("working", "agent")} }
	c.streams(func(s *streamWriter) { s.events(0, 2); s.delta("msg_a", "Sign in, please."); s.cut() })
	ctx, stop := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer stop()
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(ctx, shopDomain, "menu", human())
	require.Equal(t, ExitNoAnswer, ExitCode(err))
	require.Empty(t, reply.Messages)
	require.Empty(t, reply.SignIn)
}

func TestStream_JSONWhereTheCompanyDoesNotStream(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#2")
	c := newFakeCompany(t)
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.Equal(t, []string{"answer 1 to menu"}, texts(reply))
	reads := c.requests(eventsAt)
	require.Len(t, reads, 1)
	require.Equal(t, streamType, reads[0].header.Get("Accept"))
	require.Contains(t, reads[0].query, "wait=", "a Company that doesn't stream holds the read")

	_, err = c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", waiting())
	require.NoError(t, err)
	sent := c.requests(talkAt)
	require.Contains(t, sent[1].query, "wait=20")
}

func TestStream_RefusesWhatIsNoneOfItsEvents(t *testing.T) {
	for name, text := range map[string]string{
		"another id": "id: evt_2\ndata: {\"id\":\"evt_1\",\"type\":\"state\",\"status\":\"idle\",\"responder\":\"agent\"}\n\n",
		"no id":      "data: {\"id\":\"evt_1\",\"type\":\"state\",\"status\":\"idle\",\"responder\":\"agent\"}\n\n",
		"no JSON":    "id: evt_1\ndata: hello\n\n",
		"too large":  "id: evt_1\ndata: " + strings.Repeat("x", frameLimit) + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.writes("msg_a", "no")
			c.streams(func(s *streamWriter) { s.raw(text) })
			_, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
			require.Equal(t, ExitRefused, ExitCode(err))
			require.ErrorContains(t, err, "section 7.6")
		})
	}
}

func TestStream_ReadsAfterAStreamThatBringsNothing(t *testing.T) {
	c := newFakeCompany(t)
	c.writes("msg_a", "We have ramen.")
	c.streams(func(*streamWriter) {})
	c.status = statusIdle
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.Equal(t, []string{"We have ramen."}, texts(reply))
	reads := c.requests(eventsAt)
	require.Len(t, reads, 2)
	require.Equal(t, jsonType, reads[1].header.Get("Accept"))
	require.Equal(t, []time.Duration{time.Second}, c.clock.waits)
}

func TestStream_FollowsUntilClosed(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	c.streams(
		func(s *streamWriter) { c.add("cnv_1", companySays("by the way")); s.events(4, 5); s.cut() },
		func(s *streamWriter) { c.add("cnv_1", state("closed", "agent")); s.events(5, 6) },
	)
	steps := &collect{}
	require.NoError(t, c.agent(dir, steps).Events(t.Context(), shopDomain, EventsOptions{Follow: true}))
	require.Len(t, steps.titled("Message from the Company"), 1)
	require.Contains(t, steps.titled("The conversation is")[0].Detail, "closed")
	reads := c.requests(eventsAt)
	require.Equal(t, jsonType, reads[1].header.Get("Accept"), "what there is, first: the conversation may be closed")
	require.Equal(t, "evt_cnv_1_5", reads[3].header.Get("Last-Event-ID"))

	c.status = statusClosed
	require.NoError(t, c.agent(dir, steps).Events(t.Context(), shopDomain, EventsOptions{Follow: true, NoStream: true}))
}

func TestStream_ExpiredEventLeadsBackToTheBeginning(t *testing.T) {
	c := newFakeCompany(t)
	c.writes("msg_a", "We have ramen.")
	n := 0
	inner := func(*streamWriter) {}
	c.streams(func(s *streamWriter) { inner(s) })
	stream := c.routes[eventsAt]
	c.routes[eventsAt] = func(w http.ResponseWriter, r *http.Request) {
		n++
		switch n {
		case 1:
			inner = func(s *streamWriter) { s.events(0, 2); s.cut() }
		case 2:
			writeJSON(w, 410, map[string]any{"error": "cursor_expired"})
			return
		default:
			inner = func(s *streamWriter) { s.events(0, 4) }
		}
		stream(w, r)
	}
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.True(t, reply.Missing)
	require.Equal(t, []string{"We have ramen."}, texts(reply))
	last := c.requests(eventsAt)[2]
	require.Empty(t, last.header.Get("Last-Event-ID"))
	require.NotContains(t, last.query, "cursor")
}

func TestStream_RenewsTheTokenBetweenStreams(t *testing.T) {
	c := newFakeCompany(t)
	c.writes("msg_a", "We have ramen.")
	c.streams(
		func(s *streamWriter) {
			s.events(0, 2)
			c.clock.Advance(time.Hour) // the Company ends the stream with the token
		},
		func(s *streamWriter) { s.events(2, 4) },
	)
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
	require.NoError(t, err)
	require.Equal(t, []string{"We have ramen."}, texts(reply))
	require.Len(t, c.requests(tokenAt), 2)
	reads := c.requests(eventsAt)
	require.NotEqual(t, reads[0].header.Get("Authorization"), reads[1].header.Get("Authorization"))
}

func TestStream_SilenceOfAnIdleCompanyIsItsAnswer(t *testing.T) {
	c := newFakeCompany(t)
	c.answer = func(int, string) []map[string]any { return nil }
	c.streams(func(s *streamWriter) {
		s.events(0, 1)
		s.flush()
	}, func(*streamWriter) { c.clock.Advance(quietTime) })
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "bye", human())
	require.NoError(t, err)
	require.Empty(t, reply.Messages)
	require.Equal(t, statusIdle, reply.Status)
}

func TestStream_WaitsForACompanyThatStartsAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		away int // requests that don't reach the Company
		code int
	}{"back in time": {10, 0}, "gone": {1000, ExitNetwork}} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.writes("msg_a", "We have ramen.")
			c.streams(func(s *streamWriter) { s.events(0, 2); s.cut() }, func(s *streamWriter) { s.events(2, 4) })
			stream, n := c.routes[eventsAt], 0
			c.routes[eventsAt] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n > 1 && n <= 1+tc.away {
					panic(http.ErrAbortHandler)
				}
				stream(w, r)
			}
			reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "menu", human())
			require.Equal(t, tc.code, ExitCode(err), "%v", err)
			if tc.code == 0 {
				require.Equal(t, []string{"We have ramen."}, texts(reply))
				reads := c.requests(eventsAt)
				require.Equal(t, "evt_cnv_1_2", reads[len(reads)-1].header.Get("Last-Event-ID"))
			}
		})
	}
}
