package gateways_test

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// traefikConfig is as much of Traefik's dynamic configuration as the docs use.
type traefikConfig struct {
	HTTP struct {
		Routers map[string]struct {
			Rule        string
			EntryPoints []string `yaml:"entryPoints"`
			TLS         struct{}
			Middlewares []string
			Service     string
		}
		Middlewares map[string]struct {
			Headers struct {
				CustomRequestHeaders map[string]string `yaml:"customRequestHeaders"`
			}
			ForwardAuth struct {
				Address                  string
				AuthResponseHeadersRegex string `yaml:"authResponseHeadersRegex"`
			} `yaml:"forwardAuth"`
		}
		Services map[string]struct {
			LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
		}
	}
}

// traefik does what Traefik's middlewares headers and forwardAuth do.
type traefik struct {
	config traefikConfig
	client *http.Client
}

// ServeHTTP implements http.Handler.
func (f *traefik) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	router := f.config.HTTP.Routers["orders"]
	if router.Rule != "Host(`"+r.Host+"`)" {
		http.NotFound(w, r)
		return
	}
	for _, name := range router.Middlewares {
		m := f.config.HTTP.Middlewares[name]
		for field, value := range m.Headers.CustomRequestHeaders {
			r.Header.Del(field)
			if value != "" {
				r.Header.Set(field, value)
			}
		}
		if m.ForwardAuth.Address != "" && !f.forward(w, r, m.ForwardAuth.Address, regexp.MustCompile(m.ForwardAuth.AuthResponseHeadersRegex)) {
			return
		}
	}
	server, err := url.Parse(f.config.HTTP.Services[router.Service].LoadBalancer.Servers[0].URL)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	pass(server.Host).ServeHTTP(w, r)
}

func (f *traefik) forward(w http.ResponseWriter, r *http.Request, address string, fields *regexp.Regexp) bool {
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, address, nil)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return false
	}
	q.Header = r.Header.Clone()
	q.Header.Set("X-Forwarded-Method", r.Method)
	q.Header.Set("X-Forwarded-Proto", "https")
	q.Header.Set("X-Forwarded-Host", r.Host)
	q.Header.Set("X-Forwarded-Uri", r.RequestURI)
	answer, err := f.client.Do(q)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return false
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
		return false
	}
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return fields.MatchString(name) })
	for name, values := range answer.Header {
		if fields.MatchString(name) {
			r.Header[name] = slices.Clone(values)
		}
	}
	return true
}

func startTraefik(t *testing.T, r *rig, text string) {
	t.Helper()
	f := &traefik{client: r.client}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&f.config))
	serveGateway(t, r, f)
}

func TestTraefik(t *testing.T) {
	r := start(t)
	r.passesNonces = false
	text := r.configuration(t, "yml")
	t.Run("as told", func(t *testing.T) {
		startTraefik(t, r, text)
		r.everyCase(t)
	})
	r.otherKeys(t, func(t *testing.T, key string) { startTraefik(t, r, strings.ReplaceAll(text, r.key, key)) })
}
