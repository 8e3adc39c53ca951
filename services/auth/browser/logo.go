package browser

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"net/http"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/services/auth/agents"
)

// Bounds of an agent's logo: what is fetched, what is drawn, and what is kept of it.
const (
	maxLogo      = 256 << 10 // bytes
	maxLogoSide  = 1024      // pixels of what is fetched
	maxScans     = 32        // of a progressive JPEG
	shownSide    = 256       // pixels of what is shown
	logoTimeout  = 5 * time.Second
	logoLifetime = 10 * time.Minute
	logosKept    = 128
	logosAtOnce  = 4
)

// agentLogo shows the agent's logo without the browser talking to the agent's server,
// which would learn who is signing in, or choose what is drawn on our page.
func (s *Site) agentLogo(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	id := r.PathValue("id")
	in, err := s.app.Find(r.Context(), c, id, cookieOf(r, id))
	if err != nil || in.AgentLogoURI == "" {
		httpx.WriteNotFound(w)
		return
	}
	picture, err := s.logos.get(r.Context(), in.AgentLogoURI)
	if err != nil {
		s.log.DebugContext(r.Context(), "no logo of an agent", "company", c.Scope, "client_id", in.ClientID, "error", err)
		httpx.WriteNotFound(w)
		return
	}
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	writeAsset(w, "image/png", "private, max-age=600", picture)
}

// logos fetches pictures and keeps the last few, and that there was none.
type logos struct {
	fetch Fetcher
	now   clock.Clock
	slots chan struct{}

	mu   sync.Mutex
	kept map[string]logo
}

type logo struct {
	picture []byte // nil: there is none
	until   time.Time
}

var errNoLogo = errors.New("no picture that can be shown")

func newLogos(f Fetcher, now clock.Clock) *logos {
	return &logos{fetch: f, now: now, slots: make(chan struct{}, logosAtOnce), kept: map[string]logo{}}
}

// get returns the logo at url as a PNG of ours.
func (l *logos) get(ctx context.Context, url string) ([]byte, error) {
	if found, ok := l.find(url); ok {
		if found == nil {
			return nil, errNoLogo
		}
		return found, nil
	}
	select { // decoding takes memory
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	got, err := l.fetch.Fetch(ctx, agents.Request{URL: url, MaxBytes: maxLogo, Timeout: logoTimeout, Accept: "image/png, image/jpeg"})
	var theirs interface{ SafeDetail() string }
	if err != nil && !errors.As(err, &theirs) { // ours, and so no reason to do without for long
		return nil, err
	}
	var picture []byte
	if err == nil && got.Status == http.StatusOK {
		picture, err = redraw(got.Body)
	}
	if err == nil && picture == nil {
		err = errNoLogo
	}
	l.keep(url, picture)
	return picture, err
}

func (l *logos) find(url string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.kept[url]
	return found.picture, ok && l.now().Before(found.until)
}

func (l *logos) keep(url string, picture []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.kept) >= logosKept {
		for known, kept := range l.kept {
			if !now.Before(kept.until) {
				delete(l.kept, known)
			}
		}
	}
	for known := range l.kept { // any one: a few fetches too many do no harm
		if len(l.kept) < logosKept {
			break
		}
		delete(l.kept, known)
	}
	l.kept[url] = logo{picture, now.Add(logoLifetime)}
}

// redraw decodes a PNG or JPEG and encodes what is seen of it, so that nothing else in
// the file gets to a browser. SVG, which may have scripts, is no picture here.
func redraw(file []byte) ([]byte, error) {
	decode, config := png.Decode, png.DecodeConfig
	if !bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")) {
		decode, config = jpeg.Decode, jpeg.DecodeConfig
		// Each scan may cost a walk over the whole picture: a small file of many takes seconds.
		// Within a scan 0xFF is never followed by a marker's second byte.
		if bytes.Count(file, []byte{0xFF, 0xDA}) > maxScans {
			return nil, errNoLogo
		}
	}
	size, err := config(bytes.NewReader(file))
	if err != nil {
		return nil, errNoLogo
	}
	if size.Width < 1 || size.Height < 1 || size.Width > maxLogoSide || size.Height > maxLogoSide {
		return nil, errNoLogo
	}
	picture, err := decode(bytes.NewReader(file))
	if err != nil {
		return nil, errNoLogo
	}
	var out bytes.Buffer
	err = png.Encode(&out, shrink(picture))
	return out.Bytes(), err
}

// shrink averages squares of pixels until no side is longer than shownSide.
func shrink(in image.Image) image.Image {
	b := in.Bounds()
	square := max((b.Dx()+shownSide-1)/shownSide, (b.Dy()+shownSide-1)/shownSide)
	out := image.NewNRGBA(image.Rect(0, 0, (b.Dx()+square-1)/square, (b.Dy()+square-1)/square))
	for y := range out.Bounds().Dy() {
		for x := range out.Bounds().Dx() {
			out.Set(x, y, average(in, image.Rect(x*square, y*square, (x+1)*square, (y+1)*square).Add(b.Min).Intersect(b)))
		}
	}
	return out
}

func average(in image.Image, of image.Rectangle) color.Color {
	var red, green, blue, alpha, n uint64
	for y := of.Min.Y; y < of.Max.Y; y++ {
		for x := of.Min.X; x < of.Max.X; x++ {
			r, g, b, a := in.At(x, y).RGBA()
			red, green, blue, alpha, n = red+uint64(r), green+uint64(g), blue+uint64(b), alpha+uint64(a), n+1
		}
	}
	n = max(n, 1)
	return color.RGBA64{R: uint16(red / n), G: uint16(green / n), B: uint16(blue / n), A: uint16(alpha / n)}
}
