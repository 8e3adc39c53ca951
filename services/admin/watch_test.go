package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// talks is an owner of conversations.
type talks struct {
	a     *api
	scope tenancy.Scope
	mu    sync.Mutex
	all   map[string]*adminv1.Conversation
}

func newTalks(a *api, scope tenancy.Scope) *talks {
	ts := &talks{a: a, scope: scope, all: map[string]*adminv1.Conversation{}}
	a.owner.script(ts.answer)
	return ts
}

func (ts *talks) answer(_ context.Context, m *method.Method, req proto.Message) (proto.Message, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	switch r := req.(type) {
	case *adminv1.GetConversationRequest:
		c, ok := ts.all[r.GetName()]
		if !ok {
			return nil, resource.NotFound()
		}
		return c, nil
	case *adminv1.ListInboxItemsRequest:
		out := &adminv1.ListInboxItemsResponse{}
		for _, c := range ts.all {
			if c.GetStatus() == "queued" || c.GetResponder() == "human" {
				out.Items = append(out.Items, &adminv1.InboxItem{Conversation: c})
			}
		}
		return out, nil
	case *adminv1.ListConversationsRequest:
		var list []*adminv1.Conversation
		for _, c := range ts.all {
			list = append(list, c)
		}
		slices.SortFunc(list, func(x, y *adminv1.Conversation) int {
			return y.GetLastEventTime().AsTime().Compare(x.GetLastEventTime().AsTime())
		})
		from, _ := strconv.Atoi(r.GetPageToken())
		out := &adminv1.ListConversationsResponse{}
		for i, c := range list[from:] {
			if i == int(r.GetPageSize()) {
				out.NextPageToken = strconv.Itoa(from + i)
				break
			}
			out.Conversations = append(out.Conversations, c)
		}
		return out, nil
	}
	return m.NewOutput(), nil
}

// set makes or changes a conversation at the present time, without a doorbell.
func (ts *talks) set(id, etag string) string {
	name := ts.scope.Name() + "/conversations/" + id
	at := timestamppb.New(ts.a.clock.Now())
	ts.mu.Lock()
	ts.all[name] = &adminv1.Conversation{Name: name, Uid: id, Etag: etag, UpdateTime: at, LastEventTime: at}
	ts.mu.Unlock()
	return name
}

func (ts *talks) ring(t testing.TB, id string) {
	t.Helper()
	subject, err := bus.ConversationSubject(ts.scope.CompanyID(), id)
	require.NoError(t, err)
	ts.a.bus.Publish(t.Context(), subject, nil)
}

// change is set and ring.
func (ts *talks) change(t testing.TB, id, etag string) string {
	t.Helper()
	name := ts.set(id, etag)
	ts.ring(t, id)
	return name
}

type frame struct {
	event string
	id    string
	data  map[string]string
}

type watching struct {
	frames chan frame
	header http.Header
	stop   context.CancelFunc
}

func (a *api) watch(t testing.TB, origin, key, path, lastEventID string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	res, err := a.http.Client().Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	w := &watching{frames: make(chan frame, 4096), header: res.Header, stop: stop}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.frames)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		var f frame
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				f.event = value
			case "id":
				f.id = value
			case "data":
				if json.Unmarshal([]byte(value), &f.data) != nil {
					return
				}
			case "":
				w.frames <- f
				f = frame{}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return w
}

// next returns the next frame that is no heartbeat.
func (w *watching) next(t testing.TB) frame {
	t.Helper()
	for {
		f := w.any(t)
		if f.event != "heartbeat" {
			return f
		}
	}
}

func (w *watching) any(t testing.TB) frame {
	t.Helper()
	select {
	case f, ok := <-w.frames:
		require.True(t, ok, "the stream ended")
		return f
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no frame came")
		return frame{}
	}
}

func (w *watching) ended(t testing.TB) {
	t.Helper()
	for {
		select {
		case _, ok := <-w.frames:
			if !ok {
				return
			}
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the stream goes on")
		}
	}
}

func TestWatch_TellsChangesAndResumes(t *testing.T) {
	a, scope, key := rig(t)
	ts := newTalks(a, scope)
	ts.set("cnv_0", "old")
	a.clock.Advance(time.Hour)
	path := "/v1/" + scope.Name() + ":watch?topics=conversations"
	w := a.watch(t, a.http.URL, key, path, "")
	require.Equal(t, "text/event-stream", w.header.Get("Content-Type"))
	require.Equal(t, "no", w.header.Get("X-Accel-Buffering"))
	require.Equal(t, "no-store", w.header.Get("Cache-Control"))
	hello := w.any(t)
	require.Equal(t, "heartbeat", hello.event)
	require.NotEmpty(t, hello.id)
	at, err := time.Parse(time.RFC3339Nano, hello.data["time"])
	require.NoError(t, err)
	require.WithinDuration(t, a.clock.Now(), at, time.Millisecond)

	a.clock.Advance(time.Second)
	name := ts.change(t, "cnv_1", "e1")
	first := w.next(t)
	require.Equal(t, "changed", first.event)
	require.Equal(t, map[string]string{"name": name, "etag": "e1"}, first.data)
	require.Greater(t, first.id, hello.id)
	ts.ring(t, "cnv_1") // for nothing
	a.clock.Advance(time.Second)
	ts.change(t, "cnv_1", "e2")
	second := w.next(t)
	require.Equal(t, "e2", second.data["etag"])
	w.stop()
	w.ended(t)

	// While nobody watched.
	a.clock.Advance(time.Minute)
	ts.change(t, "cnv_2", "f1")
	a.clock.Advance(time.Second)
	ts.change(t, "cnv_3", "g1")
	a.clock.Advance(time.Minute)
	again := a.watch(t, a.http.URL, key, path, second.id)
	var got []string
	for range 3 {
		f := again.next(t)
		require.Equal(t, "changed", f.event)
		got = append(got, f.data["etag"])
	}
	require.Equal(t, []string{"e2", "f1", "g1"}, got, "oldest first; what was just told may come again, what is older doesn't")
	a.clock.Advance(time.Second)
	ts.change(t, "cnv_4", "h1")
	require.Equal(t, "h1", again.next(t).data["etag"])
	again.stop()
	again.ended(t)

	// A list's watch_token starts a watch as well.
	byToken := a.watch(t, a.http.URL, key, path+"&watch_token="+strconv.FormatInt(a.clock.Now().UnixMicro(), 10), "")
	require.Equal(t, "h1", byToken.next(t).data["etag"])
}

func TestWatch_OfOneConversation(t *testing.T) {
	a, scope, key := rig(t)
	ts := newTalks(a, scope)
	name := ts.set("cnv_1", "e1")
	ts.set("cnv_2", "f1")
	in := "/v1/" + scope.Name() + ":watch?topics="
	w := a.watch(t, a.http.URL, key, in+"conversation:cnv_1", "")
	require.Equal(t, "heartbeat", w.any(t).event)
	a.clock.Advance(time.Second)
	ts.change(t, "cnv_2", "f2")
	ts.change(t, "cnv_1", "e2")
	require.Equal(t, frame{event: "changed", id: strconv.FormatInt(a.clock.Now().UnixMicro(), 10), data: map[string]string{"name": name, "etag": "e2"}}, w.next(t))
	ts.mu.Lock()
	delete(ts.all, name)
	ts.mu.Unlock()
	ts.ring(t, "cnv_1")
	gone := w.next(t)
	require.Equal(t, "removed", gone.event)
	require.Equal(t, name, gone.data["name"])
	a.rest(t, key, "GET", in+"conversation:cnv_9", "").problem(t, 404, "NOT_FOUND")
	a.rest(t, key, "GET", in+"conversation:cnv.*", "").problem(t, 404, "NOT_FOUND")
}

func TestWatch_OtherCompaniesRingForThemselves(t *testing.T) {
	a, scope, key := rig(t)
	other := dbtest.Company(t, a.db)
	ts := newTalks(a, scope)
	w := a.watch(t, a.http.URL, key, "/v1/"+scope.Name()+":watch?topics=conversations", "")
	require.Equal(t, "heartbeat", w.any(t).event)
	before := len(a.owner.got())
	subject, err := bus.ConversationSubject(other.CompanyID(), "cnv_1")
	require.NoError(t, err)
	a.bus.Publish(t.Context(), subject, nil)
	ts.change(t, "cnv_1", "e1")
	require.Equal(t, "e1", w.next(t).data["etag"])
	for _, c := range a.owner.got()[before:] {
		require.Equal(t, scope.CompanyID(), c.company)
	}
	require.Len(t, a.owner.got(), before+1)
	theirs := a.key(t, other, "*")
	a.rest(t, theirs, "GET", "/v1/"+scope.Name()+":watch?topics=conversations", "").problem(t, 404, "NOT_FOUND")
}

func TestWatch_ResyncWhereNotAllCanBeTold(t *testing.T) {
	a, scope, key := rig(t)
	ts := newTalks(a, scope)
	path := "/v1/" + scope.Name() + ":watch?topics=conversations"
	for _, c := range []struct{ id, why string }{
		{"garbage", "token_invalid"},
		{"-1", "token_invalid"},
		{"99999999999999999999", "token_invalid"},
		{strconv.FormatInt(a.clock.Now().Add(-25*time.Hour).UnixMicro(), 10), "token_expired"},
	} {
		w := a.watch(t, a.http.URL, key, path, c.id)
		f := w.next(t)
		require.Equal(t, "resync", f.event)
		require.Equal(t, map[string]string{"topic": "conversations", "why": c.why}, f.data)
		// It goes on from there.
		ts.change(t, "cnv_1", c.id)
		require.Equal(t, c.id, w.next(t).data["etag"])
		w.stop()
		w.ended(t)
	}
	for i := range 2100 {
		ts.set(fmt.Sprintf("cnv_%d", i), "e")
	}
	w := a.watch(t, a.http.URL, key, path, strconv.FormatInt(a.clock.Now().Add(-time.Minute).UnixMicro(), 10))
	require.Equal(t, "too_many_changes", w.next(t).data["why"])
}

func TestWatch_RefusedBeforeItBegins(t *testing.T) {
	a, scope, key := rig(t)
	newTalks(a, scope)
	path := "/v1/" + scope.Name() + ":watch"
	a.rest(t, "", "GET", path+"?topics=conversations", "").problem(t, 401, "UNAUTHENTICATED")
	a.rest(t, a.key(t, scope, "domains.*"), "GET", path+"?topics=conversations", "").problem(t, 403, "PERMISSION_DENIED")
	for _, q := range []string{"", "?topics=", "?topics=inbox:x", "?topics=conversation:", "?topics=conversations,nothing", "?topic=conversations", "?topics=conversations&watch_token=x", "?topics=" + strings.Repeat("conversations,", 60)} {
		a.rest(t, key, "GET", path+q, "").problem(t, 400, "INVALID_REQUEST")
	}
	a.rest(t, key, "POST", path+"?topics=conversations", "{}").problem(t, 405, "METHOD_NOT_ALLOWED")
}

func TestWatch_EndsWithItsKey(t *testing.T) {
	a, scope, _ := rig(t)
	newTalks(a, scope)
	made := a.rest(t, a.operator, "POST", "/v1/"+scope.Name()+"/apiKeys", `{"scopes":["conversations.read"]}`).json(t)
	w := a.watch(t, a.http.URL, made["key"].(string), "/v1/"+scope.Name()+":watch?topics=conversations", "")
	require.Equal(t, "heartbeat", w.any(t).event)
	require.Equal(t, 200, a.rest(t, a.operator, "POST", "/v1/"+made["name"].(string)+":revoke", "{}").status)
	f := w.next(t)
	require.Equal(t, "goodbye", f.event)
	require.Equal(t, "permission", f.data["why"])
	w.ended(t)
}

func TestWatch_HeartbeatsAndExpiry(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{Heartbeat: 20 * time.Millisecond})
	scope := dbtest.Company(t, d)
	newTalks(a, scope)
	made := a.rest(t, a.operator, "POST", "/v1/"+scope.Name()+"/apiKeys",
		`{"scopes":["*"],"expire_time":"`+a.clock.Now().Add(time.Hour).Format(time.RFC3339Nano)+`"}`).json(t)
	w := a.watch(t, a.http.URL, made["key"].(string), "/v1/"+scope.Name()+":watch?topics=conversations", "")
	for range 3 {
		require.Equal(t, "heartbeat", w.any(t).event)
	}
	a.clock.Advance(2 * time.Hour)
	f := w.next(t)
	require.Equal(t, "goodbye", f.event)
	require.Equal(t, "permission", f.data["why"])
	w.ended(t)
}

func TestWatch_GoodbyeAtDrain(t *testing.T) {
	a, scope, key := rig(t)
	newTalks(a, scope)
	path := "/v1/" + scope.Name() + ":watch?topics=conversations"
	// The drain of the HTTP server that serves it.
	drainer := httpx.NewDrainer()
	front := httpx.NewServer(t.Context(), httpx.Config{Handler: a.svc.HTTP(), Drainer: drainer})
	lis := listen(t)
	done := make(chan error, 1)
	go func() { done <- front.Serve(lis) }()
	w := a.watch(t, "http://"+lis.Addr().String(), key, path, "")
	require.Equal(t, "heartbeat", w.any(t).event)
	require.NoError(t, front.Shutdown(t.Context()))
	require.NoError(t, <-done)
	f := w.next(t)
	require.Equal(t, "goodbye", f.event)
	require.Equal(t, "drain", f.data["why"])
	w.ended(t)
	// And that of the service.
	w = a.watch(t, a.http.URL, key, path, "")
	require.Equal(t, "heartbeat", w.any(t).event)
	require.NoError(t, a.svc.Stop(t.Context()))
	require.Equal(t, "drain", w.next(t).data["why"])
	w.ended(t)
}

func TestWatch_OwnerThatIsAwayEndsTheStream(t *testing.T) {
	a, scope, key := rig(t)
	ts := newTalks(a, scope)
	w := a.watch(t, a.http.URL, key, "/v1/"+scope.Name()+":watch?topics=conversations", "")
	require.Equal(t, "heartbeat", w.any(t).event)
	a.owner.script(failing)
	ts.ring(t, "cnv_1")
	require.Equal(t, "unavailable", w.next(t).data["why"])
	w.ended(t)
}

func TestWatch_NoMoreThanAKeyMayHave(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{StreamsPerKey: 2})
	scope := dbtest.Company(t, d)
	newTalks(a, scope)
	key := a.key(t, scope, "*")
	path := "/v1/" + scope.Name() + ":watch?topics=conversations"
	one := a.watch(t, a.http.URL, key, path, "")
	a.watch(t, a.http.URL, key, path, "")
	a.rest(t, key, "GET", path, "").problem(t, 429, "RATE_LIMITED")
	one.stop()
	one.ended(t)
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.http.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := a.http.Client().Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, 10*time.Second, 20*time.Millisecond)
}
