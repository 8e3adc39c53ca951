package admin_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turn has a conversation be in a status with a responder from now on.
func (ts *talks) turn(t testing.TB, id, etag, status, responder string, ring bool) string {
	t.Helper()
	name := ts.set(id, etag)
	ts.mu.Lock()
	ts.all[name].Status, ts.all[name].Responder = status, responder
	ts.mu.Unlock()
	if ring {
		ts.ring(t, id)
	}
	return name
}

func told(f frame) []string {
	return []string{f.event, f.data["topic"], f.data["name"], f.data["etag"]}
}

func TestWatch_OfTheInbox(t *testing.T) {
	a, scope, _ := rig(t)
	key := a.key(t, scope, "inbox.read")
	ts := newTalks(a, scope)
	there := ts.turn(t, "cnv_0", "a1", "queued", "agent", false)
	path := "/v1/" + scope.Name() + ":watch?topics=inbox"
	w := a.watch(t, a.http.URL, key, path, "")
	require.Equal(t, "heartbeat", w.any(t).event)

	a.clock.Advance(time.Minute)
	ts.turn(t, "cnv_1", "b1", "working", "agent", true) // no person's business
	name := ts.turn(t, "cnv_2", "c1", "queued", "agent", true)
	require.Equal(t, []string{"changed", "inbox", name, "c1"}, told(w.next(t)))
	a.clock.Advance(time.Second)
	ts.turn(t, "cnv_2", "c2", "idle", "human", true)
	require.Equal(t, []string{"changed", "inbox", name, "c2"}, told(w.next(t)))
	a.clock.Advance(time.Second)
	ts.turn(t, "cnv_2", "c3", "idle", "agent", true)
	left := w.next(t)
	require.Equal(t, []string{"removed", "inbox", name, ""}, told(left))
	a.clock.Advance(time.Second)
	ts.turn(t, "cnv_2", "c4", "closed", "human", true) // it isn't there any more
	ts.turn(t, "cnv_0", "a2", "closed", "agent", true) // it was there from the beginning
	last := w.next(t)
	require.Equal(t, []string{"removed", "inbox", there, ""}, told(last))
	w.stop()
	w.ended(t)

	// While nobody watched, one came, one went.
	a.clock.Advance(time.Minute)
	ts.turn(t, "cnv_3", "d1", "queued", "agent", false)
	again := a.watch(t, a.http.URL, key, path, strconv.FormatInt(a.clock.Now().UnixMicro(), 10))
	require.Equal(t, "d1", again.next(t).data["etag"])
	again.stop()
	again.ended(t)
	a.clock.Advance(time.Minute)
	since := strconv.FormatInt(a.clock.Now().Add(-time.Second).UnixMicro(), 10)
	gone := ts.turn(t, "cnv_3", "d2", "closed", "agent", false)
	came := ts.turn(t, "cnv_4", "e1", "idle", "human", false)
	back := a.watch(t, a.http.URL, key, path, since)
	require.ElementsMatch(t, [][]string{{"removed", "inbox", gone, ""}, {"changed", "inbox", came, "e1"}}, [][]string{told(back.next(t)), told(back.next(t))})
	a.clock.Advance(time.Second)
	ts.turn(t, "cnv_4", "e2", "working", "human", true)
	require.Equal(t, []string{"changed", "inbox", came, "e2"}, told(back.next(t)))
}

func TestWatch_InboxBesideConversations(t *testing.T) {
	a, scope, key := rig(t)
	ts := newTalks(a, scope)
	w := a.watch(t, a.http.URL, key, "/v1/"+scope.Name()+":watch?topics=inbox,conversations", "")
	require.Equal(t, "heartbeat", w.any(t).event)
	name := ts.turn(t, "cnv_1", "e1", "queued", "agent", true)
	require.Equal(t, []string{"changed", "", name, "e1"}, told(w.next(t)))
	require.Equal(t, []string{"changed", "inbox", name, "e1"}, told(w.next(t)))
	a.clock.Advance(time.Second)
	ts.turn(t, "cnv_1", "e2", "idle", "agent", true)
	require.Equal(t, []string{"changed", "", name, "e2"}, told(w.next(t)))
	require.Equal(t, []string{"removed", "inbox", name, ""}, told(w.next(t)))
	w.stop()
	w.ended(t)
	// A token that means nothing is told for each topic.
	w = a.watch(t, a.http.URL, key, "/v1/"+scope.Name()+":watch?topics=inbox,conversations", "garbage")
	require.Equal(t, "conversations", w.next(t).data["topic"])
	require.Equal(t, "inbox", w.next(t).data["topic"])
}

func TestWatch_InboxNeedsItsOwnPermission(t *testing.T) {
	a, scope, _ := rig(t)
	newTalks(a, scope)
	path := "/v1/" + scope.Name() + ":watch?topics="
	inbox, conversations := a.key(t, scope, "inbox.read"), a.key(t, scope, "conversations.read")
	a.rest(t, conversations, "GET", path+"inbox", "").problem(t, 403, "PERMISSION_DENIED")
	a.rest(t, inbox, "GET", path+"conversations", "").problem(t, 403, "PERMISSION_DENIED")
	a.rest(t, inbox, "GET", path+"inbox,conversations", "").problem(t, 403, "PERMISSION_DENIED")
	require.Equal(t, "heartbeat", a.watch(t, a.http.URL, inbox, path+"inbox", "").any(t).event)
}
