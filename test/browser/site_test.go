package browser_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/web/pages"
	"github.com/poppyfield/poppyfield/web/pages/pagestest"
)

// accents are colours that Companies choose: some are hard to read on, or are hard to
// tell from the page.
func accents() []string { return []string{"d92d20", "ffd400", "fefefe", "050505", "808080", "00c2a8"} }

// startSite serves every page in every language and with every accent, at
// /page/{name}?lang=…&accent=…, and answers forms with what they sent.
func startSite(t *testing.T) string {
	t.Helper()
	renderer, err := pages.New()
	require.NoError(t, err)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	samples := make(map[string]pagestest.Sample)
	var names []string
	for _, s := range pagestest.Samples(server.URL) {
		samples[s.Name] = s
		names = append(names, s.Name)
	}
	mux.HandleFunc("GET /samples", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string][]string{"names": names, "accents": accents()})
	})
	mux.HandleFunc("GET /page/{name}", func(w http.ResponseWriter, r *http.Request) {
		s := samples[r.PathValue("name")]
		if accent := r.FormValue("accent"); accent != "" {
			s.Brand.AccentColor = "#" + accent
		}
		if err := renderer.Write(w, http.StatusOK, language.Make(r.FormValue("lang")), s.Brand, s.Page, pages.Options{}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(r.PostForm)
	})
	serveAssets(t, mux)
	return server.URL
}

func serveAssets(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	sheet, version := pages.Stylesheet()
	mux.HandleFunc("GET /assets/pages-"+version+".css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(sheet)
	})
	mux.HandleFunc("GET /assets/brand.css", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(pages.BrandStylesheet("#" + r.FormValue("c")))
	})
	for path, picture := range map[string][]byte{
		"/poppy/logo":               disc(t, color.RGBA{R: 0xd9, G: 0x2d, B: 0x20, A: 0xff}),
		"/sign-in/sgn_1/agent-logo": disc(t, color.RGBA{R: 0x5b, G: 0x3d, B: 0xf5, A: 0xff}),
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write(picture)
		})
	}
}

// disc is a picture of one.
func disc(t *testing.T, c color.RGBA) []byte {
	t.Helper()
	const size = 96
	picture := image.NewRGBA(image.Rect(0, 0, size, size))
	for x := range size {
		for y := range size {
			dx, dy := x-size/2, y-size/2
			if d := dx*dx + dy*dy; d < size*size*16/100 && d > size*size*3/100 {
				picture.SetRGBA(x, y, c)
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, picture))
	return b.Bytes()
}
