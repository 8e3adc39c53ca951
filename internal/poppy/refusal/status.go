package refusal

import (
	"net/http"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Status gives the status that a reason has everywhere, or else that of its kind.
func Status(e *problem.Error) int {
	switch e.Reason {
	case problem.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case problem.UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case problem.RequestTooLarge:
		return http.StatusRequestEntityTooLarge
	case problem.RateLimitedReason:
		return http.StatusTooManyRequests
	case problem.TemporarilyUnavailable:
		return http.StatusServiceUnavailable
	case problem.NotFoundReason:
		return http.StatusNotFound
	case problem.EtagMismatch:
		return http.StatusPreconditionFailed
	}
	switch e.Kind {
	case problem.Invalid:
		return http.StatusBadRequest
	case problem.Unauthenticated:
		return http.StatusUnauthorized
	case problem.Forbidden:
		return http.StatusForbidden
	case problem.NotFound:
		return http.StatusNotFound
	case problem.Conflict:
		return http.StatusConflict
	case problem.Gone:
		return http.StatusGone
	case problem.TooLarge:
		return http.StatusRequestEntityTooLarge
	case problem.RateLimited:
		return http.StatusTooManyRequests
	case problem.Unavailable:
		return http.StatusServiceUnavailable
	case problem.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// SetRetryAfter advises on every 429 and 503, and wherever the problem carries advice.
func SetRetryAfter(h http.Header, status int, e *problem.Error) {
	if e.RetryAfter > 0 || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set(headerRetry, inSeconds(e.RetryAfter))
	}
}

// inSeconds is the value of Retry-After: whole seconds, rounded up, at least one.
func inSeconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(1, (d+time.Second-1)/time.Second)), 10)
}
