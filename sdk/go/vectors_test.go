package poppy

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// wanted is what a case of the vectors wants.
type wanted struct {
	Allowed bool
	Error   string
	Status  int
	Headers map[string]string
	Body    string
}

func (w wanted) check(t *testing.T, d *Decision) {
	t.Helper()
	require.Equal(t, []any{w.Allowed, w.Error, w.Status, w.Body}, []any{d.Allowed, d.Reason, d.Status, string(d.Body)})
	got := map[string]string{}
	for name := range d.Header {
		got[name] = d.Header.Get(name)
	}
	if w.Headers == nil {
		w.Headers = map[string]string{}
	}
	require.Equal(t, w.Headers, got)
}

func vectors(t *testing.T, name string, out any) {
	t.Helper()
	raw, err := os.ReadFile("../vectors/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, out))
}

func TestVectors_Proofs(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#23", "poppy-0.1/4.3#21")
	clausetest.Refuses(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#22", "poppy-0.1/4.3#23")
	var f struct {
		Now   int64
		Token struct{ Value, JKT string }
		Cases []struct {
			Name, Method, URL   string
			Authorization, DPoP []string
			Again               bool
			Want                wanted
		}
	}
	vectors(t, "proofs.json", &f)
	require.NotEmpty(t, f.Cases)
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			r := newRig(t, nil)
			require.Equal(t, f.Now, r.server.now.Now().Unix())
			r.server.put(f.Token.Value, f.Token.JKT)
			r.known.learn(t.Context(), r.api, r.cfg, f.Token.Value)
			q := Request{Method: c.Method, URL: c.URL, Authorization: c.Authorization, DPoP: c.DPoP}
			if c.Again {
				require.True(t, r.verify(t, q).Allowed)
			}
			c.Want.check(t, r.verify(t, q))
			require.Zero(t, r.server.count(), "it is decided here")
		})
	}
}

func TestVectors_Rules(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#23", "poppy-0.1/6#25")
	clausetest.Refuses(t, "poppy-0.1/6#23", "poppy-0.1/6#25")
	var f struct {
		APIs []struct {
			URL, Resource string
			MCP           bool
			BaseURLs      []string `json:"base_urls"`
			Rules         []struct {
				Methods []string
				Path    string
				SignIn  bool `json:"sign_in"`
				Scopes  []string
			}
		}
		Cases []struct {
			Name, Method, URL string
			SignedIn          bool `json:"signed_in"`
			Scopes            []string
			Listed            bool
			API, HTU          string
			Want              wanted
		}
	}
	vectors(t, "rules.json", &f)
	table := &adminv1.AccessTable{}
	for _, a := range f.APIs {
		entry := &adminv1.AccessTableApi{Url: a.URL, Resource: a.Resource, Mcp: a.MCP, BaseUrls: a.BaseURLs}
		for _, r := range a.Rules {
			entry.Rules = append(entry.Rules, &adminv1.AccessRule{Methods: r.Methods, Path: r.Path, SignIn: r.SignIn, Scopes: r.Scopes})
		}
		table.Apis = append(table.Apis, entry)
	}
	require.NotEmpty(t, f.Cases)
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.LocalMethods = []string{c.Method} })
			r.server.table = table
			s := r.server.tokens[r.token]
			s.Session.SignedIn, s.Session.Scopes = c.SignedIn, c.Scopes
			if c.API == "https://mcp.example.com/mcp" {
				s.Jkt, s.Resource = "", c.API
			}
			r.known.learn(t.Context(), r.api, r.cfg, r.token)
			rules, ok := r.known.table(r.cfg.Now())
			require.True(t, ok)
			target, err := rules.apis.Find(c.Method, c.URL)
			require.Equal(t, c.Listed, err == nil, "%v", err)
			q := r.request(t, c.Method, "")
			q.URL = c.URL
			if !c.Listed {
				_, ok = r.local(q)
				require.False(t, ok, "the server says what is wrong with it")
				return
			}
			require.Equal(t, []string{c.API, c.HTU}, []string{target.API.URL, target.URL})
			q.DPoP = []string{r.proof(t, c.Method, c.HTU)}
			if s.GetJkt() == "" {
				q.Authorization, q.DPoP = []string{"Bearer " + r.token}, nil
			}
			d, ok := r.local(q)
			require.True(t, ok)
			c.Want.check(t, d)
		})
	}
}

func TestVectors_Webhooks(t *testing.T) {
	var f struct {
		Now       int64
		Tolerance int `json:"tolerance_seconds"`
		Cases     []struct {
			Name    string
			Keys    []string
			Headers map[string]string
			Body    string
			Genuine bool
		}
	}
	vectors(t, "webhooks.json", &f)
	require.NotEmpty(t, f.Cases)
	require.Equal(t, 300, f.Tolerance)
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			w, err := NewWebhooks(func() time.Time { return time.Unix(f.Now, 0) }, c.Keys...)
			require.NoError(t, err)
			h := http.Header{}
			for name, value := range c.Headers {
				h.Set(name, value)
			}
			err = w.Verify(h, []byte(c.Body))
			require.Equal(t, c.Genuine, err == nil, "%v", err)
			if err != nil {
				require.ErrorIs(t, err, ErrNotGenuine)
			}
		})
	}
}
