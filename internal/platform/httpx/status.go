package httpx

import (
	"net/http"

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

// setRetryAfter advises on every 429 and 503, and wherever the problem carries advice.
func setRetryAfter(h http.Header, status int, e *problem.Error) {
	if e.RetryAfter > 0 || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set(headerRetry, retryAfter(e.RetryAfter))
	}
}

// logFailure logs what the caller must not see: the causes of answers that are our fault.
func logFailure(r *http.Request, status int, e *problem.Error) {
	if status < http.StatusInternalServerError {
		return
	}
	log := LoggerFrom(r.Context())
	if status == http.StatusServiceUnavailable {
		log.WarnContext(r.Context(), "answered unavailable", "route", r.Pattern, "error", e)
		return
	}
	log.ErrorContext(r.Context(), "request failed", "route", r.Pattern, "error", e)
}
