package guard

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

// Config of a proxy.
type Config struct {
	Verifier *poppy.Verifier
	// BaseURL is where agents find the API, as the Verifier has it.
	BaseURL string
	// To is the API itself, an http or https URL without query.
	To *url.URL
	// KeyFile has the key that signs who is asking, PKCS #8 in PEM; made where there is none.
	KeyFile string
	Now     clock.Clock
	Log     *slog.Logger
}

var errNoSession = errors.New("a request without a Session came through")

// New makes the proxy. What the API answers goes to the agent as it comes, so that
// streams stay streams.
func New(cfg Config) (http.Handler, error) {
	if cfg.To == nil || cfg.To.Scheme != "http" && cfg.To.Scheme != "https" || cfg.To.Host == "" || cfg.To.RawQuery != "" || cfg.To.User != nil {
		return nil, errors.New("the API's address is no http or https URL without query")
	}
	base := strings.TrimSuffix(cfg.BaseURL, "/")
	key, err := loadKey(cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(cfg.To)
			p.SetXForwarded()
			// The API has no use for them, and its logs none.
			p.Out.Header.Del("Authorization")
			p.Out.Header.Del("DPoP")
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, "the API did not answer", slog.String("method", r.Method), slog.Any("error", err))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(`{"error":"temporarily_unavailable"}`)) // a client that is gone needs no answer
		},
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	return cfg.Verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, ok := poppy.SessionFrom(r.Context())
		if !ok {
			proxy.ErrorHandler(w, r, errNoSession)
			return
		}
		signed, err := key.identify(base, r, by, cfg.Now())
		if err != nil {
			proxy.ErrorHandler(w, r, err)
			return
		}
		for name := range r.Header {
			if access.IsIdentityHeader(name) {
				delete(r.Header, name)
			}
		}
		r.Header.Set(IdentityHeader, signed)
		proxy.ServeHTTP(w, r)
	})), nil
}
