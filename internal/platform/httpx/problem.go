package httpx

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

// problemBody is the answer of RFC 9457 with the members of the admin API.
type problemBody struct {
	Type            string            `json:"type"`
	Title           string            `json:"title"`
	Status          int               `json:"status"`
	Detail          string            `json:"detail,omitempty"`
	Reason          string            `json:"reason"`
	Clause          string            `json:"clause,omitempty"`
	FieldViolations []fieldViolation  `json:"field_violations,omitempty"`
	RequestID       string            `json:"request_id,omitempty"`
	RetryDelay      string            `json:"retry_delay,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
}

type fieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// WriteProblem answers err on the admin API as application/problem+json. Anything
// but a problem becomes an internal error, with the request's id as the only trace
// of it. retry_delay is in seconds, such as "3s"; Extra members go to metadata.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	e := problem.As(err)
	status := Status(e)
	logFailure(r, status, e)
	h := w.Header()
	body := problemBody{
		Type:      "urn:poppyfield:problem:" + strings.ReplaceAll(e.Reason.Wire(), "_", "-"),
		Title:     http.StatusText(status),
		Status:    status,
		Detail:    e.Detail,
		Reason:    string(e.Reason),
		Clause:    string(e.Clause),
		RequestID: RequestIDFrom(r.Context()),
		Metadata:  e.Extra,
	}
	if status == http.StatusInternalServerError {
		body.Detail = "internal error" // a wrong Detail must not be the one that tells
	}
	for _, f := range e.Fields {
		body.FieldViolations = append(body.FieldViolations, fieldViolation{Field: f.Path, Description: f.Detail})
	}
	refusal.SetRetryAfter(h, status, e)
	if s := h.Get(headerRetry); s != "" {
		body.RetryDelay = s + "s"
	}
	if status == http.StatusUnauthorized { // RFC9110/15.5.2
		h.Set(headerChallenge, `Bearer realm="poppyfield"`)
	}
	h.Set("Cache-Control", "no-store")
	out, err := json.Marshal(body)
	if err != nil { // strings and numbers always encode
		out = []byte(`{"type":"about:blank","status":` + strconv.Itoa(status) + `}`)
	}
	writeBody(w, status, "application/problem+json", out)
}
