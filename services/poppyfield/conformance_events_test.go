package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// GW-02: a read has every field, in its type, whether there is anything to read or not.
func TestGW02_Reads(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#1", "poppy-0.1/7.5#2", "poppy-0.1/7.5#3", "poppy-0.1/7.5#4", "poppy-0.1/7.5#5", "poppy-0.1/7.5#6", "poppy-0.1/7.5#7", "poppy-0.1/7.5#16", "poppy-0.1/7.5#17", "poppy-0.1/7.5#20", "poppy-0.1/7.5#21", "poppy-0.1/7.5#23",
			"poppy-0.1/7.5#24", "poppy-0.1/7.5#25", "poppy-0.1/7.5#d19", "poppy-0.1/7.2#6", "poppy-0.1/7.2#10", "poppy-0.1/7.4#8", "poppy-0.1/7.4#9")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		events := s.settled(t, id)
		got := s.read(t, id, "").is(t, http.StatusOK, "")
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		require.Len(t, got.body, 6)
		require.Equal(t, id, got.str("conversation_id"))
		require.Equal(t, events[3].ID, got.str("cursor"))
		require.Equal(t, false, got.body["has_more"])
		require.Equal(t, "idle", got.str("status"))
		require.Equal(t, "agent", got.str("responder"))
		seen := map[string]bool{}
		for i, e := range events {
			require.False(t, seen[e.ID])
			seen[e.ID] = true
			at, err := time.Parse(time.RFC3339, e.CreatedAt)
			require.NoError(t, err)
			require.WithinDuration(t, now(), at, time.Minute)
			switch e.Type {
			case "message":
				require.NotEmpty(t, e.Message["id"])
				require.Contains(t, []any{"user", "company"}, e.Message["role"])
				require.Equal(t, "agent", e.Message["sender"])
				require.IsType(t, "", e.Message["text"])
			case "state":
				require.Contains(t, []string{"working", "idle"}, e.Status)
				require.Equal(t, "agent", e.Responder)
			default:
				require.Fail(t, e.Type)
			}
			// Each id is a cursor: the read begins after it.
			rest := s.read(t, id, "cursor="+e.ID).is(t, http.StatusOK, "")
			require.Equal(t, events[i+1:], append([]event{}, rest.events(t)...))
		}
		got = s.read(t, id, "cursor="+events[3].ID).is(t, http.StatusOK, "")
		require.Equal(t, []any{}, got.body["events"])
		require.Equal(t, object{"conversation_id": id, "events": []any{}, "cursor": events[3].ID, "has_more": false, "status": "idle", "responder": "agent"}, got.body)
		require.Less(t, got.took, 5*time.Second)
		// Reading changes nothing: the same read again gives the same.
		once, again := s.read(t, id, ""), s.read(t, id, "")
		require.Equal(t, once.raw, again.raw)
	})
}

func TestEvents_ALongPollEndsWithTheNextEvent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#2", "poppy-0.1/7.5#19", "poppy-0.1/7.5#20", "poppy-0.1/7.5#22", "poppy-0.1/7.5#23", "poppy-0.1/7.5#d18")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		events := s.settled(t, id)
		cursor := events[len(events)-1].ID
		// Nothing comes: an empty list when the time is over.
		got := s.read(t, id, "wait=1&cursor="+cursor).is(t, http.StatusOK, "")
		require.GreaterOrEqual(t, got.took, 950*time.Millisecond)
		require.Equal(t, []any{}, got.body["events"])
		require.Equal(t, cursor, got.str("cursor"))
		// Something is there already: no wait.
		require.Less(t, s.read(t, id, "wait=30").is(t, http.StatusOK, "").took, 10*time.Second)
		// Something comes: at once, also where the caller asked for more time than there is.
		for i, wait := range []string{"30", "1000000000", "9999999999999999999999"} {
			r := s.request(t, http.MethodGet, eventsPath(id)+"?wait="+wait+"&cursor="+cursor, nil)
			type result struct {
				got answer
				err error
			}
			done := make(chan result, 1)
			go func() {
				got, err := in.try(r)
				done <- result{got, err}
			}()
			timer := time.NewTimer(200 * time.Millisecond)
			select {
			case early := <-done:
				require.Fail(t, "the read did not wait", "%s %v", early.got.raw, early.err)
			case <-timer.C:
			}
			co.say(t, id, object{"text": fmt.Sprint("News ", i)}).is(t, http.StatusOK, "")
			woken := <-done
			require.NoError(t, woken.err)
			require.Less(t, woken.got.took, 15*time.Second)
			got := woken.got.is(t, http.StatusOK, "").events(t)
			require.Len(t, got, 1)
			require.Equal(t, fmt.Sprint("News ", i), got[0].words())
			cursor = got[0].ID
		}
	})
}

// LP-03: what wait may be.
func TestLP03_Waits(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#d18", "poppy-0.1/7.5#21", "poppy-0.1/7.13#14")
		clausetest.Refuses(t, "poppy-0.1/7.5#2", "poppy-0.1/7.5#19", "poppy-0.1/7.5#d18", "poppy-0.1/7.2#10", "poppy-0.1/7.13#14", "poppy-0.1/7.2#6")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		cursor := s.settled(t, id)[3].ID
		for _, wait := range []string{"-1", "abc", "", "1.5", "1e9", "+1", " 1", "0x1", "NaN", "wait"} {
			s.read(t, id, "cursor="+cursor+"&wait="+wait).is(t, http.StatusBadRequest, "invalid_request")
		}
		for _, query := range []string{"wait=1&wait=1", "wait=1&wait=2", "cursor=a&cursor=a", "%zz", "wait=1;wait=2"} {
			s.read(t, id, query).is(t, http.StatusBadRequest, "invalid_request")
		}
		got := s.read(t, id, "wait=0&cursor="+cursor).is(t, http.StatusOK, "")
		require.Equal(t, []any{}, got.body["events"])
		require.Less(t, got.took, 5*time.Second)
		s.read(t, id, "future=1").is(t, http.StatusOK, "")
	})
}

// LP-01: reads that wait hold nothing that others need, and a client that goes away leaves nothing.
func TestLP01_ManyWaitingReads(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#19")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		cursor := s.settled(t, id)[3].ID
		const readers = 120
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var gone sync.WaitGroup
		for range readers {
			r := s.request(t, http.MethodGet, eventsPath(id)+"?wait=30&cursor="+cursor, nil).WithContext(ctx)
			gone.Go(func() { _, _ = in.try(r) })
		}
		for range 20 {
			require.Less(t, s.read(t, id, "cursor="+cursor).is(t, http.StatusOK, "").took, 10*time.Second)
		}
		leave()
		gone.Wait()
		got := s.post(t, messagesPath(id)+"?wait=20&cursor="+cursor, text("And now?")).is(t, http.StatusAccepted, "")
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(got.events(t)))
	})
}

// CU-05: pages of a hundred.
func TestCU05_Pages(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#1", "poppy-0.1/7.5#23", "poppy-0.1/7.5#24", "poppy-0.1/7.5#25")
		co := in.company(t)
		s := co.visitor(t)
		note := func(i int) object { return message(object{"context": object{"n": i}}) }
		id := s.post(t, conversationsPath, note(0)).is(t, http.StatusCreated, "").str("conversation_id")
		for i := 1; i < 100; i++ {
			s.post(t, messagesPath(id), note(i)).is(t, http.StatusAccepted, "")
		}
		got := s.read(t, id, "").is(t, http.StatusOK, "")
		require.Len(t, got.events(t), 100)
		require.Equal(t, false, got.body["has_more"])
		s.post(t, messagesPath(id), note(100)).is(t, http.StatusAccepted, "")
		first := s.read(t, id, "wait=30").is(t, http.StatusOK, "")
		require.Len(t, first.events(t), 100)
		require.Equal(t, true, first.body["has_more"])
		require.Equal(t, first.events(t)[99].ID, first.str("cursor"))
		second := s.read(t, id, "cursor="+first.str("cursor")).is(t, http.StatusOK, "")
		require.Len(t, second.events(t), 1)
		require.Equal(t, false, second.body["has_more"])
		require.Equal(t, second.events(t)[0].ID, second.str("cursor"))
	})
}

// Cursors that are none of this conversation's.
func TestEvents_BadCursors(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.13#11", "poppy-0.1/7.13#d19", "poppy-0.1/7.13#2")
		clausetest.Refuses(t, "poppy-0.1/7.5#16", "poppy-0.1/7.5#24", "poppy-0.1/7.5#d19", "poppy-0.1/7.13#11", "poppy-0.1/7.13#d19", "poppy-0.1/7.2#16")
		co := in.company(t)
		s := co.visitor(t)
		id, other := s.talk(t, "Hello"), s.talk(t, "Something else")
		s.settled(t, id)
		foreign := s.settled(t, other)
		mine := s.events(t, id)[1].ID
		for _, cursor := range []string{foreign[0].ID, foreign[3].ID, "evt_", "x", "0", "1", "-1", mine + "x", mine[:len(mine)-1], "%00", "evt_99999999", id, "a%20b", "%F0%9F%8D%9C"} {
			s.read(t, id, "cursor="+cursor).is(t, http.StatusBadRequest, "invalid_cursor")
			s.post(t, messagesPath(id)+"?wait=0&cursor="+cursor, text("x")).is(t, http.StatusBadRequest, "invalid_cursor")
		}
		require.Len(t, s.events(t, id), 4)
	})
}

// CU-03: events are kept as long as the Company chooses; then their cursors have expired.
func TestCU03_EventsThatAreNoLongerKept(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#28", "poppy-0.1/7.5#29", "poppy-0.1/7.13#12", "poppy-0.1/7.13#13", "poppy-0.1/7.13#d19", "poppy-0.1/7.3#12", "poppy-0.1/7.5#17")
		clausetest.Refuses(t, "poppy-0.1/7.5#28", "poppy-0.1/7.5#29", "poppy-0.1/7.13#12", "poppy-0.1/7.13#13", "poppy-0.1/7.13#d19", "poppy-0.1/7.3#12")
		co := in.company(t, limits(object{"event_retention": "1s"}))
		s := co.visitor(t)
		body := message(object{"id": "msg_1", "text": "Hello"})
		id := s.post(t, conversationsPath, body).is(t, http.StatusCreated, "").str("conversation_id")
		cursor := s.read(t, id, "").is(t, http.StatusOK, "").str("cursor")
		s.settled(t, id)
		until(t, "the events are dropped", func() bool { return len(s.events(t, id)) == 0 })
		s.post(t, messagesPath(id), text("Still there?")).is(t, http.StatusAccepted, "")
		got := s.read(t, id, "wait=5&cursor="+cursor)
		if got.status == http.StatusOK { // the cursor was the last that was dropped: nothing is missing after it
			require.Equal(t, "Still there?", got.events(t)[0].words())
		}
		until(t, "the cursor has expired", func() bool { return s.read(t, id, "cursor="+cursor).status == http.StatusGone })
		s.read(t, id, "cursor="+cursor).is(t, http.StatusGone, "cursor_expired")
		s.post(t, messagesPath(id)+"?wait=0&cursor="+cursor, text("x")).is(t, http.StatusGone, "cursor_expired")
		s.read(t, id, "").is(t, http.StatusOK, "")
		// Retries are still known, and conflicts too.
		require.Equal(t, id, s.post(t, conversationsPath, body).is(t, http.StatusCreated, "").str("conversation_id"))
		s.post(t, conversationsPath, message(object{"id": "msg_1", "text": "Other"})).is(t, http.StatusConflict, "message_id_conflict")
	})
}

// Events become visible in their order, to every reader, while many write.
func TestEvents_OneOrderForEverybody(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#1")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		const writers, each = 6, 5
		requests := make([][]*http.Request, writers)
		for w := range requests {
			for i := range each {
				requests[w] = append(requests[w], s.request(t, http.MethodPost, messagesPath(id), message(object{"text": fmt.Sprint(w, "/", i)})))
			}
		}
		failed := make(chan error, writers)
		for _, mine := range requests {
			go func() {
				for _, r := range mine {
					got, err := in.try(r)
					if err == nil && got.status != http.StatusAccepted {
						err = fmt.Errorf("%d %s", got.status, got.raw)
					}
					if err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		var read []event
		cursor, users := "", 0
		for users < writers*each+1 {
			query := "wait=10"
			if cursor != "" {
				query += "&cursor=" + cursor
			}
			got := s.read(t, id, query).is(t, http.StatusOK, "")
			for _, e := range got.events(t) {
				read = append(read, e)
				if e.from("user") {
					users++
				}
			}
			cursor = got.str("cursor")
		}
		for range writers {
			require.NoError(t, <-failed)
		}
		all := s.settled(t, id)
		require.Equal(t, all[:len(read)], read, "a reader who followed along missed nothing and saw nothing twice")
	})
}
