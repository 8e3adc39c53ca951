package httpx

import (
	"net/http"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

// Place is where an error happened, which decides its status and its challenge.
type Place = refusal.Place

// The places.
const (
	Resource       = refusal.Resource
	TokenEndpoint  = refusal.TokenEndpoint
	BearerResource = refusal.BearerResource
)

// WriteOAuthError answers err at an OAuth or Poppy endpoint as refusal.OAuth says, and a
// NotFound problem as WriteNotFound.
func WriteOAuthError(w http.ResponseWriter, r *http.Request, err error, place Place) {
	e := problem.As(err)
	answer := refusal.OAuth(err, place, RequestIDFrom(r.Context()))
	logFailure(r, answer.Status, e)
	if e.Reason == problem.NotFoundReason {
		w.Header().Set("Cache-Control", "no-store")
		WriteNotFound(w)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	WriteJSON(w, answer.Status, answer.Body)
}
