package app

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Bounds of a request to a Company's identity provider.
const (
	DefaultSendTimeout = 5 * time.Second
	MaxSendTimeout     = 15 * time.Second
	MaxSendAnswer      = 1 << 20 // bytes
)

// Request is a request to a Company's identity provider. Headers and body may hold
// secrets of the Company and its Users.
type Request struct {
	Method  string            // GET or POST
	URL     string            // https
	Headers map[string]string // Accept, Authorization and Content-Type
	Body    []byte
	Timeout time.Duration
}

// Send makes one request for the Company, and follows no redirect. An error of the
// egress says what went wrong on the way; a request that must not be made is a problem.
func (a *App) Send(ctx context.Context, scope tenancy.Scope, r Request) (egress.Response, error) {
	if scope.IsZero() {
		return egress.Response{}, problem.New(problem.Internal, problem.ServerError, "", "call without a company")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return egress.Response{}, badRequest("the method is neither GET nor POST")
	}
	if r.Method == http.MethodGet && len(r.Body) > 0 {
		return egress.Response{}, badRequest("a GET has no body")
	}
	header := make(http.Header, len(r.Headers))
	for name, value := range r.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch canonical {
		case "Accept", "Authorization", "Content-Type":
		default:
			return egress.Response{}, badRequest("only Accept, Authorization and Content-Type may be sent")
		}
		if header[canonical] != nil {
			return egress.Response{}, badRequest("a header is there twice")
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return egress.Response{}, badRequest("a header holds something else than visible ASCII")
		}
		header[canonical] = []string{value}
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = DefaultSendTimeout
	}
	return a.out.Send(ctx, egress.SendRequest{
		Method: r.Method, URL: r.URL, Header: header, Body: r.Body, MaxBytes: MaxSendAnswer, Timeout: min(timeout, MaxSendTimeout),
	})
}

func badRequest(detail string) error {
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "%s", detail)
}
