package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
)

// logoAge is how long browsers keep a logo that was asked for by its version.
const logoAge = 24 * time.Hour

// logo serves the Company's logo. Its bytes are a Company's own, so the answer says in
// every way there is that it is a picture and nothing else.
func (d *Documents) logo(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	logo, err := d.logos(r.Context(), c.Scope)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	if len(logo.Bytes) == 0 {
		httpx.WriteNotFound(w)
		return
	}
	h := w.Header()
	etag := `"` + logo.Version + `"`
	h.Set("ETag", etag)
	// An address without the version, or with another one, must not fix what it shows.
	h.Set("Cache-Control", "no-cache")
	if q, err := url.ParseQuery(r.URL.RawQuery); err == nil && q.Get("v") == logo.Version {
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(logoAge/time.Second)))
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h["Access-Control-Allow-Origin"] = anyOrigin
	if matches(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", logo.Type)
	h.Set("Content-Length", strconv.Itoa(len(logo.Bytes)))
	if r.Method == http.MethodHead {
		return
	}
	// The client went away: nothing to be done about it.
	_, _ = w.Write(logo.Bytes)
}
