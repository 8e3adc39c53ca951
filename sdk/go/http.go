package poppy

import (
	"log/slog"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Handler serves next what agents may ask for, with the Session in the request's
// context, and answers the rest as the protocol says. The Session comes by no header
// field, which anybody could send.
func (v *Verifier) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := v.Verify(r.Context(), Request{
			Method: r.Method, URL: v.cfg.BaseURL + r.URL.EscapedPath(), Authorization: r.Header.Values("Authorization"), DPoP: r.Header.Values("DPoP"),
		})
		if err != nil {
			v.unknown(w, r, err)
			return
		}
		for name, values := range d.Header {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		if !d.Allowed {
			writeJSON(w, d.Status, d.Body)
			return
		}
		next.ServeHTTP(w, r.WithContext(withSession(r.Context(), d.Session)))
	})
}

// unknown answers where nobody knows whether to serve the request.
func (v *Verifier) unknown(w http.ResponseWriter, r *http.Request, err error) {
	v.cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, "request not judged", slog.String("method", r.Method), slog.Any("error", err))
	w.Header().Set("Cache-Control", "no-store")
	if status.Code(err) == codes.InvalidArgument { // it is under no base URL, or servers would read its path in different ways
		writeJSON(w, http.StatusBadRequest, []byte(`{"error":"invalid_request"}`))
		return
	}
	w.Header().Set("Retry-After", "1")
	writeJSON(w, http.StatusServiceUnavailable, []byte(`{"error":"temporarily_unavailable"}`))
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
