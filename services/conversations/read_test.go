package conversations_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func TestRead_FromCursorToCursor(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#6", "poppy-0.1/7.5#1", "poppy-0.1/7.5#2", "poppy-0.1/7.5#3", "poppy-0.1/7.5#16", "poppy-0.1/7.5#17", "poppy-0.1/7.5#21", "poppy-0.1/7.5#24", "poppy-0.1/7.5#d19", "poppy-0.1/7.13#d19")
		u := in.user("usr_1")
		all := u.start(t, "msg_1", "hello")
		for i := range all.Events {
			got := u.read(t, all.ConversationID, "?cursor="+all.Events[i].ID)
			require.Equal(t, http.StatusOK, got.Status)
			require.Len(t, got.Events, len(all.Events)-1-i)
			require.Equal(t, all.Cursor, got.Cursor)
		}
		fromStart := u.read(t, all.ConversationID, "")
		require.Equal(t, all.Events, fromStart.Events)
		require.Equal(t, fromStart.Raw, u.read(t, all.ConversationID, "?cursor=").Raw)
	})
}

func TestGW02_EmptyReadHasEveryField(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#22", "poppy-0.1/7.5#23", "poppy-0.1/7.5#24", "poppy-0.1/7.7#10", "poppy-0.1/7.5#21")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		for _, query := range []string{"?cursor=" + got.Cursor, "?wait=0&cursor=" + got.Cursor, "?wait=1&cursor=" + got.Cursor} {
			require.JSONEq(t, fmt.Sprintf(`{"conversation_id":%q,"events":[],"cursor":%q,"has_more":false,"status":"idle","responder":"agent"}`, got.ConversationID, got.Cursor),
				u.read(t, got.ConversationID, query).Raw)
		}
	})
}

func TestCU05_PagesOfExactlyAHundred(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#23", "poppy-0.1/7.5#25")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		grow := func(to int) {
			for i := len(in.events(t, id)); i < to; i++ {
				in.post(t, id, false, &adminv1.Message{Text: "more"})
			}
		}
		grow(100)
		page := u.read(t, id, "")
		require.Len(t, page.Events, 100)
		require.False(t, page.HasMore)
		grow(101)
		page = u.read(t, id, "")
		require.Len(t, page.Events, 100)
		require.True(t, page.HasMore)
		require.Equal(t, page.Events[99].ID, page.Cursor)
		rest := u.read(t, id, "?wait=20&cursor="+page.Cursor)
		require.Len(t, rest.Events, 1)
		require.False(t, rest.HasMore)
		// A POST that wants its reply is not held while there is another page.
		in.backend.always(fails)
		posted := u.send(t, id, "?wait=20", text("msg_2", "and?"))
		require.True(t, posted.HasMore)
		require.Len(t, posted.Events, 100)
	})
}

func (in *installation) events(t testing.TB, id string) []*adminv1.ConversationEvent {
	t.Helper()
	page, err := in.admin.ListConversationEvents(in.company.Ctx(t.Context()), &adminv1.ListConversationEventsRequest{Parent: in.name(id), PageSize: 200})
	require.NoError(t, err)
	return page.GetEvents()
}

func TestRead_BadCursors(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.5#16", "poppy-0.1/7.5#d19", "poppy-0.1/7.13#11", "poppy-0.1/7.13#d19", "poppy-0.1/7.13#2")
		u := in.user("usr_1")
		a, b := u.start(t, "msg_1", "hello"), u.start(t, "msg_2", "hello")
		for name, cursor := range map[string]string{
			"malformed": "nonsense", "of another conversation": b.Cursor, "made up": "evt_AAAAAAAAAAAAAAAAAAAAAA", "number": "4", "cut": a.Cursor[:10], "longer": a.Cursor + "A",
		} {
			got := u.read(t, a.ConversationID, "?cursor="+cursor)
			require.Equal(t, http.StatusBadRequest, got.Status, name)
			require.Equal(t, "invalid_cursor", got.Error, name)
		}
	})
}

func TestLP03_WaitValues(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#20", "poppy-0.1/7.5#d18", "poppy-0.1/7.2#10")
		clausetest.Refuses(t, "poppy-0.1/7.5#d18", "poppy-0.1/7.3#d18", "poppy-0.1/7.2#10")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		for _, wait := range []string{"-1", "abc", "", "1.5", "1e9", "%2B1", "0x1", "%201", "1&wait=1", "1&wait=2"} {
			for _, send := range []func() answer{
				func() answer { return u.read(t, got.ConversationID, "?wait="+wait) },
				func() answer { return u.send(t, got.ConversationID, "?wait="+wait, text("msg_2", "x")) },
			} {
				refused := send()
				require.Equal(t, http.StatusBadRequest, refused.Status, "wait=%q", wait)
				require.Equal(t, "invalid_request", refused.Error, "wait=%q", wait)
			}
		}
		require.Equal(t, http.StatusBadRequest, u.read(t, got.ConversationID, "?cursor=a&cursor=b").Status)
		// Large values are capped, and an event that is there ends any of them at once.
		for _, wait := range []string{"0", "00", "30", "31", "9999999999999", "99999999999999999999999999"} {
			require.Len(t, u.read(t, got.ConversationID, "?wait="+wait).Events, 4, "wait=%q", wait)
		}
		require.Empty(t, u.read(t, got.ConversationID, "?wait=0&cursor="+got.Cursor).Events)
	})
}

func TestRead_WaitEndsWithTheNextEvent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#19", "poppy-0.1/7.5#d18")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		answers := make(chan answer, 1)
		go func() {
			read, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, "")
			if err == nil {
				answers <- read
			}
		}()
		eventually(t, func() bool { return in.service.Waiting() == 1 }, "the read waits")
		in.post(t, got.ConversationID, false, &adminv1.Message{Text: "news"})
		read := <-answers
		require.Equal(t, []string{"company: news"}, read.told())
	})
}

func TestPost_OwnMessageDoesNotEndTheHold(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#d18", "poppy-0.1/7.3#14", "poppy-0.1/7.5#19")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			return says("at last"), nil
		})
		answers := make(chan answer, 2)
		for _, query := range []string{"?wait=30&cursor=" + first.Cursor, "?wait=30"} {
			go func() {
				got, err := u.try(t.Context(), http.MethodPost, endpoint+"/"+first.ConversationID+"/messages"+query, text("msg_2", "and?"))
				if err == nil {
					answers <- got
				}
			}()
		}
		eventually(t, func() bool { return in.service.Waiting() == 2 }, "both posts wait")
		in.backend.await(t, 2)
		require.Empty(t, answers)
		close(release)
		for range 2 {
			got := <-answers
			told := got.told()
			require.Equal(t, []string{"user: and?", "=working", "company: at last", "=idle"}, told[len(told)-4:])
			require.Equal(t, http.StatusAccepted, got.Status)
		}
	})
}

func TestPost_EarlierEventAfterTheCursorEndsTheHold(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#14")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		in.post(t, first.ConversationID, false, &adminv1.Message{Text: "unread"})
		in.backend.always(fails)
		got := u.send(t, first.ConversationID, "?wait=30&cursor="+first.Cursor, text("msg_2", "and?"))
		require.Equal(t, []string{"company: unread", "user: and?", "=working"}, got.told())
	})
}

func TestCV02_CloseEndsWaitingReads(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#2")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		answers := make(chan answer, 1)
		go func() {
			read, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, "")
			if err == nil {
				answers <- read
			}
		}()
		eventually(t, func() bool { return in.service.Waiting() == 1 }, "the read waits")
		u.close(t, got.ConversationID)
		read := <-answers
		require.Equal(t, []string{"=closed"}, read.told())
		require.Equal(t, "closed", read.State)
		// Nothing more will come: a read does not wait for it.
		require.Empty(t, u.read(t, got.ConversationID, "?wait=30&cursor="+read.Cursor).Events)
	})
}

func TestLP01_ClientsThatGoAwayLeaveNothingBehind(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		const n = 100
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				_, _ = u.try(ctx, http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+got.Cursor, "")
			})
		}
		eventually(t, func() bool { return in.service.Waiting() == n }, "all wait")
		eventually(t, func() bool { return in.DB.Raw().Stats().InUse == 0 }, "a waiting read holds no database connection")
		cancel()
		wg.Wait()
		eventually(t, func() bool { return in.service.Waiting() == 0 }, "all listeners are gone")
	})
}

func TestLP02_DrainAnswersWaitingReadsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#20")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		const n = 40
		answers := make(chan answer, n)
		for i := range n {
			go func() {
				path, method, body := "/events?wait=30&cursor="+got.Cursor, http.MethodGet, ""
				if i == 0 {
					in.backend.always(fails)
					path, method, body = "/messages?wait=30&cursor="+got.Cursor, http.MethodPost, text("msg_2", "and?")
				}
				a, err := u.try(t.Context(), method, endpoint+"/"+got.ConversationID+path, body)
				if err == nil {
					answers <- a
				}
			}()
		}
		// The message ends the reads; then all read again from behind it.
		eventually(t, func() bool { return in.service.Waiting() == 1 }, "the post waits")
		for range n - 1 {
			a := <-answers
			go func() {
				again, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+got.ConversationID+"/events?wait=30&cursor="+in.newest(t, u, a), "")
				if err == nil {
					answers <- again
				}
			}()
		}
		eventually(t, func() bool { return in.service.Waiting() == n }, "all wait")
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.NoError(t, in.web.Shutdown(ctx))
		require.Less(t, time.Since(begun), 15*time.Second) // a connection without a request keeps net/http for 5 s
		for range n {
			a := <-answers
			require.Less(t, a.Status, 300)
			require.Equal(t, "working", a.State)
		}
	})
}

// newest reads on from an answer until there is nothing more.
func (in *installation) newest(t testing.TB, u *user, a answer) string {
	got, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+a.ConversationID+"/events?cursor="+a.Cursor, "")
	if err != nil {
		return ""
	}
	return got.Cursor
}

func TestDB01_ParallelWritersAndAReaderThatMissesNothing(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#1", "poppy-0.1/7.5#16")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		const writers, each = 8, 15
		var wg sync.WaitGroup
		failed := make(chan error, writers*each)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					got, err := u.try(t.Context(), http.MethodPost, endpoint+"/"+id+"/messages", text(fmt.Sprintf("msg_%d_%d", w, i), "x"))
					if err == nil && got.Status != http.StatusAccepted {
						err = fmt.Errorf("DB-01: status %d: %s", got.Status, got.Raw)
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		// A reader that follows the cursor sees every message once, each writer's in its order.
		seen := map[string]bool{}
		next := make([]int, writers)
		total, replies, cursor := 0, 0, ""
		for total < writers*each || replies < writers*each+1 {
			page := u.read(t, id, "?wait=20&cursor="+cursor)
			require.Equal(t, http.StatusOK, page.Status)
			require.NotEmpty(t, page.Events, "after %d messages and %d replies", total, replies)
			for _, e := range page.Events {
				require.False(t, seen[e.ID], "an event came twice")
				seen[e.ID] = true
				if e.Message == nil || e.Message.ID == "msg_1" {
					continue
				}
				if e.Message.Role == "company" {
					replies++
					continue
				}
				var w, i int
				_, err := fmt.Sscanf(e.Message.ID, "msg_%d_%d", &w, &i)
				require.NoError(t, err)
				require.Equal(t, next[w], i)
				next[w]++
				total++
			}
			cursor = page.Cursor
		}
		wg.Wait()
		require.Empty(t, failed)
		sequences := in.events(t, id)
		for i, e := range sequences {
			require.Equal(t, int64(i+1), e.GetSequence())
		}
		final := u.read(t, id, "?cursor="+cursor)
		require.Equal(t, "idle", final.State)
	})
}
