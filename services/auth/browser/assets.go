package browser

import (
	"net/http"
	"strconv"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/web/pages"
)

// stylesheet serves the style of all pages. A page of an older or newer process names
// another version: it gets this one, but not for good.
func (s *Site) stylesheet(w http.ResponseWriter, r *http.Request, _ *directory.Company) {
	body, version := pages.Stylesheet()
	cache := "public, max-age=60"
	if r.PathValue("version") == version {
		cache = "public, max-age=31536000, immutable"
	}
	writeCSS(w, body, cache)
}

// brandStylesheet serves the Company's colour.
func (s *Site) brandStylesheet(w http.ResponseWriter, _ *http.Request, c *directory.Company) {
	accent := ""
	if c.SignIn != nil {
		accent = c.SignIn.Design.AccentColor
	}
	writeCSS(w, pages.BrandStylesheet(accent), "public, max-age=60")
}

func writeCSS(w http.ResponseWriter, body []byte, cache string) {
	writeAsset(w, "text/css; charset=utf-8", cache, body)
}

func writeAsset(w http.ResponseWriter, contentType, cache string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", cache)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the browser has gone if this fails
}
