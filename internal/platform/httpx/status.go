package httpx

import (
	"net/http"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

// Status gives the status that a reason has everywhere, or else that of its kind.
func Status(e *problem.Error) int { return refusal.Status(e) }

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
