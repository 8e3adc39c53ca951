package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gateway"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

const (
	// keyHeader has the key: Authorization is the agent's.
	keyHeader = "Poppyfield-Key"
	// statusHeader and bodyHeader have what nginx can't take as status and body.
	statusHeader = "X-Poppy-Status"
	bodyHeader   = "X-Poppy-Body"
	// faultHeader says what is wrong with the gateway, and not with the agent.
	faultHeader = "Poppyfield-Error"
)

// forwardAuth answers a gateway that asks with the header fields of the agent's request.
// The gateway gives the agent whatever this answers, so an answer that is about the
// gateway itself must not look like one about the agent.
func (h *Handler) forwardAuth(w http.ResponseWriter, r *http.Request, m *method.Method, companyID string) {
	w.Header().Set("Cache-Control", "no-store")
	key := one(r.Header, keyHeader)
	if !app.WellFormed(key) {
		gatewayFault(w, r, problem.New(problem.Unauthenticated, problem.Unauthenticated401, "", "%s has to be a valid API key, once", keyHeader))
		return
	}
	original, nginx, err := forwarded(r.Header)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	ctx := h.deps.Gate.FromHTTP(r, key, httpx.RequestIDFrom(r.Context()))
	verdict, err := gateway.Ask(ctx, h.deps.Gate, m, func(*app.Key) (string, error) { return gateway.CompanyName(companyID), nil }, original)
	if err != nil {
		gatewayFault(w, r, toProblem(err))
		return
	}
	for _, f := range verdict.GetHeaders() {
		w.Header().Set(f.GetName(), f.GetValue())
	}
	switch {
	case verdict.GetAllowed():
		for _, f := range gateway.Identity(verdict.GetSession()) {
			w.Header().Set(f.Name, f.Value)
		}
		w.WriteHeader(http.StatusOK)
	case nginx:
		refuseNginx(w, verdict)
	default:
		httpx.WriteJSON(w, int(verdict.GetStatus()), []byte(verdict.GetBody()))
	}
}

// refuseNginx refuses by the two statuses that auth_request knows; to any other it makes a 500.
func refuseNginx(w http.ResponseWriter, verdict *adminv1.VerifyRequestResponse) {
	status := int(verdict.GetStatus())
	w.Header().Set(statusHeader, strconv.Itoa(status))
	w.Header().Set(bodyHeader, verdict.GetBody())
	if status != http.StatusUnauthorized {
		status = http.StatusForbidden
	}
	httpx.WriteJSON(w, status, []byte(verdict.GetBody()))
}

// forwarded reads the original request out of one of the two families of header fields.
// A request that has both may have one of them from the agent: then nobody knows which.
func forwarded(h http.Header) (o gateway.Original, nginx bool, err error) {
	o = gateway.Original{
		Method: one(h, "X-Forwarded-Method"), Scheme: one(h, "X-Forwarded-Proto"), Host: one(h, "X-Forwarded-Host"), URI: one(h, "X-Forwarded-Uri"),
	}
	method, url := one(h, "X-Original-Method"), one(h, "X-Original-Url")
	usual := o.Method != "" && o.Scheme != "" && o.Host != "" && o.URI != ""
	nginx = method != "" && url != ""
	switch {
	case usual == nginx:
		return o, false, problem.New(problem.Invalid, problem.InvalidRequest, "",
			"the gateway has to send X-Forwarded-Method, -Proto, -Host and -Uri, or X-Original-Method and X-Original-URL, each once, and not both")
	case nginx:
		o.Method = method
		scheme, rest, _ := strings.Cut(url, "://")
		o.Scheme = scheme
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		o.Host, o.URI = rest[:end], rest[end:]
	}
	o.Authorization, o.DPoP = h.Values("Authorization"), h.Values("DPoP")
	return o, nginx, nil
}

// one is the value of a field that is there once; "" otherwise.
func one(h http.Header, name string) string {
	if v := h.Values(name); len(v) == 1 {
		return v[0]
	}
	return ""
}

// gatewayFault answers what is no matter of the agent's. A 401 or 403 of ours would tell
// it that its token is no good, so it is a server's error to it, and says to whoever
// set the gateway up what is wrong.
func gatewayFault(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.As(err)
	switch p.Kind {
	case problem.Internal, problem.Unavailable:
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
	case problem.RateLimited:
		writeFault(w, p, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the request can't be judged at the moment").WithRetryAfter(p.RetryAfter))
	default:
		writeFault(w, p, problem.New(problem.Internal, problem.ServerError, "", "internal error"))
	}
}

// writeFault answers told for p, which is a caller's fault and so none that is logged.
func writeFault(w http.ResponseWriter, p, told *problem.Error) {
	answer := refusal.OAuth(told, refusal.Resource, "")
	for name := range answer.Header {
		w.Header().Set(name, answer.Header.Get(name))
	}
	w.Header().Set(faultHeader, string(p.Reason))
	httpx.WriteJSON(w, answer.Status, answer.Body)
}
