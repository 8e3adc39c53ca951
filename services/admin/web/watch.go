package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/gate"
)

const (
	watchPermission = "conversations.read"
	inboxPermission = "inbox.read"
	maxTopics       = 50

	topicConversations = "conversations"
	topicConversation  = "conversation:"
	topicInbox         = "inbox"
)

// watched returns the Company of a path /v1/companies/{company}:watch.
func watched(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/v1/companies/")
	if !ok {
		return "", false
	}
	company, ok := strings.CutSuffix(rest, ":watch")
	return company, ok && company != "" && !strings.Contains(company, "/")
}

// watch answers GET /v1/companies/{company}:watch as a stream of events. Whatever is
// wrong is told before the stream begins.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, companyID string) {
	if r.Method != http.MethodGet {
		notAllowed(w, r, http.MethodGet)
		return
	}
	ctx := r.Context()
	caller, err := h.deps.Gate.Authenticate(ctx, gate.Bearer(r.Header.Get("Authorization")), h.deps.Gate.Address(r))
	if err != nil {
		httpx.WriteProblem(w, r, err)
		return
	}
	asked, err := parseWatch(r.URL.RawQuery, r.Header.Get("Last-Event-ID"))
	if err != nil {
		httpx.WriteProblem(w, r, err)
		return
	}
	var scope tenancy.Scope
	for _, permission := range asked.permissions() {
		if scope, err = h.deps.Gate.Watch(ctx, caller, permission, companyID); err != nil {
			httpx.WriteProblem(w, r, err)
			return
		}
	}
	end, err := h.deps.Gate.OpenStream(caller)
	if err != nil {
		httpx.WriteProblem(w, r, err)
		return
	}
	defer end()

	// Before anything is read, or a change in between is missed.
	changes, cancel := h.deps.Hub.Open(scope)
	defer cancel()
	ctx = rpc.WithActor(tenancy.Into(ctx, scope), caller.Name())
	reader := &reader{api: h.deps.Conversations, people: h.deps.Inbox, scope: scope, all: asked.all, ids: asked.ids, inbox: asked.inbox}
	if err := reader.check(ctx); err != nil {
		httpx.WriteProblem(w, r, err)
		return
	}
	s := &stream{
		out: newEvents(w), reader: reader, changes: changes, sent: map[string]string{},
		now: h.deps.Now, log: h.deps.Log, connected: h.deps.Connected,
		allowed: func(ctx context.Context) (bool, error) {
			for _, permission := range asked.permissions() {
				if ok, err := h.deps.Auth.StillHolds(ctx, caller, permission); err != nil || !ok {
					return false, err
				}
			}
			return true, nil
		},
	}
	s.run(ctx, asked, h.cfg.Heartbeat, httpx.DrainDone(r.Context()), h.deps.Stopping)
}

// asking is what a watch asks for.
type asking struct {
	all   bool
	ids   []string
	inbox bool
	// since is the resume token in microseconds; 0 for from now on.
	since int64
	// lost says that the client came back with a token that means nothing.
	lost bool
}

// permissions are what the caller needs for all that it asks for.
func (a asking) permissions() []string {
	var out []string
	if a.all || len(a.ids) > 0 {
		out = append(out, watchPermission)
	}
	if a.inbox {
		out = append(out, inboxPermission)
	}
	return out
}

func parseWatch(rawQuery, lastEventID string) (asking, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return asking{}, problem.New(problem.Invalid, problem.InvalidRequest, "", "the query can't be read")
	}
	for key, values := range query {
		if key != "topics" && key != "watch_token" {
			return asking{}, resource.Invalid(clip(key), "there is no such parameter")
		}
		if key == "watch_token" && len(values) > 1 {
			return asking{}, resource.Invalid(key, "comes more than once")
		}
	}
	var a asking
	topics := strings.Split(strings.Join(query["topics"], ","), ",")
	if len(topics) > maxTopics {
		return asking{}, resource.Invalid("topics", "are more than "+strconv.Itoa(maxTopics))
	}
	for _, t := range topics {
		id, one := strings.CutPrefix(t, topicConversation)
		switch {
		case t == topicConversations:
			a.all = true
		case t == topicInbox:
			a.inbox = true
		case one && id != "":
			if _, err := bus.Subject("conversation", id); err != nil {
				return asking{}, resource.NotFound()
			}
			if !slices.Contains(a.ids, id) {
				a.ids = append(a.ids, id)
			}
		default:
			return asking{}, resource.Invalid("topics", `takes "conversations", "conversation:{id}" and "inbox", with commas between them`)
		}
	}
	if lastEventID != "" {
		// Refusing would let the client come back with the same id for ever.
		since, ok := parseToken(lastEventID)
		a.since, a.lost = since, !ok
		return a, nil
	}
	if token := query.Get("watch_token"); token != "" {
		since, ok := parseToken(token)
		if !ok {
			return asking{}, resource.Invalid("watch_token", "is none of a list or a watch")
		}
		a.since = since
	}
	return a, nil
}

// parseToken reads a resume token: the update time, in microseconds, of the newest
// change that was seen. Lists give the same as their watch_token.
func parseToken(s string) (int64, bool) {
	if len(s) > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0
}

func token(t time.Time) int64 { return t.UnixMicro() }
