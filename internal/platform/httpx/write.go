package httpx

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

// HeaderDPoPNonce holds the nonce for the client's next proof (RFC 9449 section 8.1).
const HeaderDPoPNonce = "DPoP-Nonce"

// Headers that only this package writes by their names.
const (
	headerRequestID = "X-Request-Id"
	headerChallenge = "WWW-Authenticate"
	headerRetry     = "Retry-After"
)

// WriteJSON writes v, which must be JSON already. Without a Cache-Control of the
// handler's own nobody may store the answer. A client that takes it too slowly is cut.
func WriteJSON(w http.ResponseWriter, status int, v []byte) {
	writeBody(w, status, "application/json", v)
}

func writeBody(w http.ResponseWriter, status int, contentType string, v []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(v)))
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	control := http.NewResponseController(w)
	deadline := func() { _ = control.SetWriteDeadline(clock.System().Add(stallTimeout)) } // recorders have none
	deadline()
	w.WriteHeader(status)
	for len(v) > 0 {
		n := min(len(v), stallBytes)
		deadline()
		if _, err := w.Write(v[:n]); err != nil {
			return // the client has gone, or stalls: there is nobody left to tell
		}
		v = v[n:]
	}
	// What is still in a buffer has to be out before the deadline goes: it isn't the next answer's.
	if control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	}
}

// WriteNotFound writes the one answer for everything that is not there or not the
// caller's: an unknown host, Company, domain or path. Headers that a handler set
// for another answer are taken back, so that the bytes tell nothing.
func WriteNotFound(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range [...]string{
		HeaderDPoPNonce, headerChallenge, headerRetry, "Allow", "Content-Language", "ETag", "Expires", "Last-Modified", "Link", "Location", "Vary",
	} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	WriteJSON(w, http.StatusNotFound, []byte(`{"error":"not_found"}`))
}

// WriteMethodNotAllowed writes a 405 that names the methods of the resource (RFC 9110 section 15.5.6).
func WriteMethodNotAllowed(w http.ResponseWriter, allow ...string) {
	w.Header().Set("Allow", strings.Join(allow, ", "))
	w.Header().Set("Cache-Control", "no-store")
	WriteJSON(w, http.StatusMethodNotAllowed, []byte(`{"error":"method_not_allowed"}`))
}

// SetDPoPNonce puts the nonce that the client's next proof needs into the answer
// (RFC 9449 section 8.1); call it before the answer is written.
func SetDPoPNonce(w http.ResponseWriter, nonce string) {
	if nonce != "" {
		w.Header().Set(HeaderDPoPNonce, nonce)
	}
}
