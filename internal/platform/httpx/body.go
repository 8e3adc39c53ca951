package httpx

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// ReadBody reads a request's body of at most maxBytes. A longer one is
// REQUEST_TOO_LARGE, one that ends early INVALID_REQUEST.
func ReadBody(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	if r.ContentLength > maxBytes { // told before a byte of it is read
		w.Header().Set("Connection", "close")
		return nil, tooLarge(maxBytes)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if err == nil {
		return body, nil
	}
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(over.Limit)
	}
	return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the request's body could not be read").WithCause(err)
}

func tooLarge(limit int64) error {
	return problem.New(problem.TooLarge, problem.RequestTooLarge, "", "the request's body has more than %d bytes", limit)
}

// bodyTimeout is how long a client may take over its body once a handler reads it.
const bodyTimeout = 30 * time.Second

// LimitBody ends a body after maxBytes and after 30 s; what reads it gets an
// *http.MaxBytesError or a time-out.
func LimitBody(maxBytes int64) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body != nil && r.Body != http.NoBody {
				r.Body = &timedBody{ReadCloser: http.MaxBytesReader(w, r.Body, maxBytes), control: http.NewResponseController(w)}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// timedBody sets the connection's read deadline for as long as the body lasts.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	begun   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		// Writers of tests have no deadlines; the body's size is bounded all the same.
		_ = b.control.SetReadDeadline(clock.System().Add(bodyTimeout))
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
