package conversations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/doorbell"
	"github.com/poppyfield/poppyfield/services/conversations/web"
)

func TestSS01_OnlyRecordedEventsHaveIDs(t *testing.T) {
	overEach(t, web.Streams{Heartbeat: 20 * time.Millisecond}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#1", "poppy-0.1/7.6#2", "poppy-0.1/7.6#4", "poppy-0.1/7.6#5", "poppy-0.1/7.6#6", "poppy-0.1/7.6#9", "poppy-0.1/7.6#10", "poppy-0.1/7.5#14")
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		s := u.stream(t, tr, got.ConversationID, "")
		var raw []string
		for i, e := range s.events(t, len(got.Events)) {
			require.Equal(t, got.Events[i].ID, e.id)
			require.Equal(t, e.id, e.event.ID)
			raw = append(raw, e.data)
		}
		require.Contains(t, got.Raw, `"events":[`+strings.Join(raw, ",")+`]`, "the same bytes as in a read")
		in.bells(t).Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_new", 1, "I can ")
		piece, _ := s.next(t)
		require.Equal(t, "text-delta", piece.name)
		require.Empty(t, piece.id)
		require.JSONEq(t, `{"message_id":"msg_new","text":"I can "}`, piece.data)
		in.post(t, got.ConversationID, false, &adminv1.Message{Text: "news"})
		require.Equal(t, "news", s.events(t, 1)[0].event.Message.Text)
		comments := 0
		for comments < 5 {
			i, ok := <-s.items
			require.True(t, ok)
			require.Equal(t, item{comment: true}, i)
			comments++
		}
		u.close(t, got.ConversationID)
		require.Equal(t, "closed", s.events(t, 1)[0].event.Status)
		s.ends(t)
	})
}

// bells is another process's.
func (in *installation) bells(t *testing.T) *doorbell.Bells {
	t.Helper()
	b, err := doorbell.New(in.Bus)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestSS02_ResumeTwiceFromTheSameEvent(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#8", "poppy-0.1/7.6#d42", "poppy-0.1/7.2#11")
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		first := got.Events[0].ID
		u.stream(t, tr, got.ConversationID, "", lastEventID(first)).stop() // cut before anything was read
		for range 2 {
			s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor, lastEventID(first))
			for i, e := range s.events(t, len(got.Events)-1) {
				require.Equal(t, got.Events[i+1].ID, e.id)
			}
			s.stop()
		}
		// An empty one counts as none.
		s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Events[2].ID, lastEventID(""))
		require.Equal(t, got.Events[3].ID, s.events(t, 1)[0].id)
	})
}

func TestSS05_SS07_QuietStreamsGoOn(t *testing.T) {
	overEach(t, web.Streams{Heartbeat: stall + 200*time.Millisecond}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
		begun := time.Now()
		for range 5 { // the first one is the beginning, and the second may come at any time
			i := <-s.items
			require.True(t, i.comment)
		}
		require.Greater(t, time.Since(begun), 3*stall)
		in.post(t, got.ConversationID, false, &adminv1.Message{Text: "news"})
		require.Equal(t, "news", s.events(t, 1)[0].event.Message.Text)
	})
}

func TestSS06_NothingOnTheWayCollectsAStream(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		in.sessions.mu.Lock()
		u.session.DpopNonce = "nonce-1"
		in.sessions.mu.Unlock()
		s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
		h := s.res.Header
		require.Equal(t, "text/event-stream", h.Get("Content-Type"))
		require.Contains(t, h.Get("Cache-Control"), "no-cache")
		require.Contains(t, h.Get("Cache-Control"), "no-transform")
		require.Equal(t, "no", h.Get("X-Accel-Buffering"))
		require.Empty(t, h.Get("Content-Encoding"))
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "nonce-1", h.Get("DPoP-Nonce"))
		require.NotEmpty(t, h.Get("X-Request-Id"))
		require.NotEmpty(t, h.Get("Date"))
		require.True(t, (<-s.items).comment, "the first bytes come at once")
	})
}

func TestCU03_ErrorsComeBeforeAStream(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#d42", "poppy-0.1/7.5#29")
		clausetest.Refuses(t, "poppy-0.1/7.6#d42", "poppy-0.1/7.5#29")
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		for name, c := range map[string]struct {
			user   *user
			path   string
			change func(*http.Request)
			status int
			error  string
		}{
			"bad id":            {u, got.ConversationID, lastEventID("nonsense"), http.StatusBadRequest, "invalid_cursor"},
			"two ids":           {u, got.ConversationID, func(r *http.Request) { r.Header["Last-Event-Id"] = []string{got.Cursor, got.Cursor} }, http.StatusBadRequest, "invalid_request"},
			"no token":          {u, got.ConversationID, func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized, "invalid_token"},
			"not there":         {u, "cnv_nowhere", lastEventID(""), http.StatusNotFound, "conversation_not_found"},
			"of somebody else":  {in.user("usr_other"), got.ConversationID, lastEventID(""), http.StatusNotFound, "conversation_not_found"},
			"malformed queries": {u, got.ConversationID + "/events?wait=x#", lastEventID(""), http.StatusBadRequest, "invalid_request"},
		} {
			path := strings.TrimSuffix(c.path, "/events?wait=x#")
			query := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.path, path), "/events"), "#")
			s, refused := c.user.open(t, tr, path, query, c.change)
			require.Nil(t, s, name)
			require.Equal(t, c.status, refused.Status, name)
			require.Equal(t, c.error, refused.Error, name)
			require.Equal(t, "application/json", refused.Header.Get("Content-Type"), name)
		}
		// Who doesn't ask for a stream by name gets JSON, header or not.
		_, plain := u.open(t, tr, got.ConversationID, "", func(r *http.Request) { r.Header.Set("Accept", "*/*") })
		require.Len(t, plain.Events, len(got.Events))
	})
}

func TestCV08_PiecesAreWholeOrNotAtAll(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#9", "poppy-0.1/7.6#11")
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		bells := in.bells(t)
		say := func(id, text string) { bells.Delta(t.Context(), in.company.Scope, got.ConversationID, id, 1, text) }
		polled := make(chan answer, 1)
		go func() {
			if a, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, ""); err == nil {
				polled <- a
			}
		}()
		early := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
		eventually(t, func() bool { return in.service.Waiting() == 2 }, "both wait")
		say("msg_a", "one ")
		piece, _ := early.next(t)
		require.Equal(t, "one ", piece.delta.Text)
		late := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
		say("msg_a", "two ") // of a message that late has not seen the beginning of
		say("msg_b", "other")
		var read strings.Builder
		for read.Len() < len("two other") {
			piece, _ := early.next(t)
			read.WriteString(piece.delta.Text)
		}
		require.Equal(t, "two other", read.String())
		piece, _ = late.next(t)
		require.Equal(t, "msg_b", piece.delta.MessageID)
		require.Empty(t, polled, "a poll is not woken by a piece")
		// A piece that comes after its message was complete is not shown.
		in.post(t, got.ConversationID, false, &adminv1.Message{Text: "complete"})
		done := early.events(t, 1)[0].event
		late.events(t, 1)
		say(done.Message.ID, "comp")
		say("msg_c", "next")
		for _, s := range []*sse{early, late} {
			piece, _ := s.next(t)
			require.Equal(t, "msg_c", piece.delta.MessageID)
		}
		a := <-polled
		require.NotContains(t, a.Raw, "one ")
		require.Len(t, a.Events, 1)
		// After a reconnect there is the complete message alone.
		again := u.stream(t, tr, got.ConversationID, "", lastEventID(got.Cursor))
		require.Equal(t, "complete", again.events(t, 1)[0].event.Message.Text)
		for _, s := range []*sse{early, late, again} {
			s.stop()
		}
		eventually(t, func() bool { return in.service.Waiting() == 0 }, "nobody is left")
	})
}

func TestStream_EndsWithWhatItMayShow(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#7")
		open := func(u *user) (*sse, string) {
			got := u.start(t, "msg_"+u.token, "hello")
			s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
			require.True(t, (<-s.items).comment)
			return s, got.ConversationID
		}
		t.Run("the Session", func(t *testing.T) {
			u := in.user("usr_a" + tr.name)
			s, _ := open(u)
			subject, err := bus.SessionSubject(in.company.Scope.CompanyID(), u.session.GetSessionId())
			require.NoError(t, err)
			in.Bus.Publish(t.Context(), subject, nil)
			s.ends(t)
		})
		t.Run("the token", func(t *testing.T) {
			u := in.user("usr_b" + tr.name)
			in.sessions.mu.Lock()
			u.session.ExpireTime = timestamppb.New(in.Clock.Now().Add(300 * time.Millisecond))
			in.sessions.mu.Unlock()
			s, _ := open(u)
			s.ends(t)
		})
		t.Run("the owner", func(t *testing.T) {
			u := in.user("usr_c" + tr.name)
			s, id := open(u)
			signed := u.signedIn("acc_1")
			require.Equal(t, http.StatusAccepted, signed.send(t, id, "", text("msg_"+signed.token, "mine")).Status)
			// What belongs to the account is not for who isn't signed in to it.
			s.ends(t)
			_, refused := u.open(t, tr, id, "")
			require.Equal(t, "sign_in_required", refused.Error)
		})
		t.Run("a conversation that is closed already", func(t *testing.T) {
			u := in.user("usr_d" + tr.name)
			got := u.start(t, "msg_"+u.token, "hello")
			u.close(t, got.ConversationID)
			s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
			require.Equal(t, "closed", s.events(t, 1)[0].event.Status)
			s.ends(t)
		})
	})
}

func TestStream_LastsNoLongerThanItsLife(t *testing.T) {
	overEach(t, web.Streams{Life: 300 * time.Millisecond}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor).ends(t)
	})
}

func TestStream_ResumedUnderLoadMissesAndRepeatsNothing(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/7.6#8")
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		const n = 120
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range n {
				if _, err := in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{
					Conversation: in.name(got.ConversationID), Message: &adminv1.Message{Text: fmt.Sprint(i)},
				}); err != nil {
					return
				}
			}
		}()
		last, next := got.Cursor, 0
		for next < n {
			s := u.stream(t, tr, got.ConversationID, "", lastEventID(last))
			for range 1 + rand.IntN(12) {
				i, ok := s.next(t)
				if !ok || next == n {
					break
				}
				if i.event.Message != nil {
					require.Equal(t, fmt.Sprint(next), i.event.Message.Text)
					next++
				}
				last = i.id
				if next == n {
					break
				}
			}
			s.stop()
		}
		<-done
	})
}

func TestLP01_ReadersThatGoLeaveNothing(t *testing.T) {
	overEachWith(t, web.Streams{Readers: many}, patience, func(t *testing.T, in *installation, tr transport) {
		n := 2_000
		if tr.name != "plain" {
			n = 200 // they cost handshakes, or share a few connections
		}
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		tr.client.CloseIdleConnections()
		before, subscriptions := runtime.NumGoroutine(), in.Bus.Conn().NumSubscriptions()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		gate := make(chan struct{}, 64)
		var failed atomic.Value
		for i := range n {
			wg.Go(func() {
				req, err := u.request(ctx, http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, "")
				if err != nil {
					return
				}
				req.URL.Scheme, req.URL.Host = tr.scheme, tr.addr
				req.Body, req.ContentLength = nil, 0
				if i%2 == 0 {
					req.Header.Set("Accept", "text/event-stream")
				}
				gate <- struct{}{}
				time.AfterFunc(50*time.Millisecond, func() { <-gate })
				res, err := tr.client.Do(req)
				if err != nil {
					failed.Store(err.Error())
					return
				}
				<-ctx.Done()
				_ = res.Body.Close() // it is cut
			})
		}
		eventually(t, func() bool { return in.service.Waiting() == n || failed.Load() != nil }, "all wait")
		require.Nil(t, failed.Load())
		eventually(t, func() bool { return in.DB.Raw().Stats().InUse == 0 }, "a waiting reader holds no database connection")
		cancel()
		wg.Wait()
		cut := time.Now()
		eventually(t, func() bool { return in.service.Waiting() == 0 }, "all listeners are gone")
		t.Logf("%d readers were gone after %s", n, time.Since(cut))
		tr.client.CloseIdleConnections()
		eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 }, "all goroutines are gone")
		require.Equal(t, subscriptions, in.Bus.Conn().NumSubscriptions())
	})
}

// many lets one Session have many readers.
var many = web.Readers{PerConversation: 10_000, PerSession: 10_000}

func TestLP02_DrainEndsPollsAndStreams(t *testing.T) {
	overEach(t, web.Streams{Readers: many}, func(t *testing.T, in *installation, tr transport) {
		const polls, streams = 200, 50
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		answers := make(chan answer, polls)
		for range polls {
			go func() {
				a, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, "", func(r *http.Request) {
					r.URL.Host = tr.addr
					r.Body, r.ContentLength = nil, 0
				})
				if err != nil {
					a.Raw = err.Error()
				}
				answers <- a
			}()
		}
		var open []*sse
		for range streams {
			open = append(open, u.stream(t, tr, got.ConversationID, ""))
		}
		if tr.name != "plain" {
			t.Skip("polls of this test speak plain HTTP")
		}
		eventually(t, func() bool { return in.service.Waiting() == polls+streams }, "all wait")
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, tr.web.Shutdown(ctx))
		require.Less(t, time.Since(begun), 10*time.Second)
		for range polls {
			a := <-answers
			require.Equal(t, http.StatusOK, a.Status, a.Raw)
			require.Empty(t, a.Events)
			require.Equal(t, got.Cursor, a.Cursor)
		}
		for _, s := range open {
			s.events(t, len(got.Events))
			s.ends(t)
		}
		require.Zero(t, in.service.Waiting())
	})
}

func TestPoll_ConnectionsGoOn(t *testing.T) {
	in := newInstallation(t, dbtest.SQLite(t))
	tr := in.transport(t, "plain", stall)
	u := in.user("usr_1")
	got := u.start(t, "msg_1", "hello")
	for i := range 3 {
		posted := make(chan struct{})
		go func() {
			defer close(posted)
			for in.service.Waiting() == 0 {
				runtime.Gosched()
			}
			raw, _ := json.Marshal(i)
			_, _ = in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{
				Conversation: in.name(got.ConversationID), Message: &adminv1.Message{Text: string(raw)},
			})
		}()
		_, a := u.open(t, tr, got.ConversationID, "?wait=20&cursor="+got.Cursor, func(r *http.Request) { r.Header.Del("Accept") })
		require.Len(t, a.Events, 1, a.Raw)
		require.Empty(t, a.Header.Get("Connection"))
		require.NotEmpty(t, a.Header.Get("X-Request-Id"))
		got.Cursor = a.Cursor
		<-posted
	}
}
