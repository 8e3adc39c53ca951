package whole

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An API is a caller of the admin API over REST.
type API struct {
	Origin, Key string
	Client      *http.Client
}

// Call makes a request below /v1/ and decodes the answer into out unless that is nil.
// Any status but 200 is an error.
func (a API) Call(ctx context.Context, method, path string, in, out any) error {
	answer, err := a.Do(ctx, method, path, in)
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK {
		return fmt.Errorf("%s %s: %w", method, path, &RefusedError{answer})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Body, out)
}

// Do is Call for tests that look at the answer themselves.
func (a API) Do(ctx context.Context, method, path string, in any) (Answer, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return Answer{}, err
	}
	if in == nil {
		body = nil
	}
	r, err := http.NewRequestWithContext(ctx, method, a.Origin+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+a.Key)
	r.Header.Set("Content-Type", "application/json")
	return do(a.Client, r)
}

// Spec says what Company to make.
type Spec struct {
	Slug string
	// Issuer is empty for one below the hosted domain.
	Issuer string
	Domain string
	// Deadline is the answer deadline, such as "10s"; empty is the installation's.
	Deadline string
}

// A Company is published, has a verified domain, a backend and a key.
type Company struct {
	Name, Issuer, Domain string
	Key, KeyName         string
	Secret               string
	Backend              *Backend
}

// Onboard makes a Company through the admin API, as an operator does.
func Onboard(t testing.TB, api API, o *Outside, spec Spec) *Company {
	t.Helper()
	ctx := t.Context()
	call := func(method, path string, in, out any) {
		t.Helper()
		require.NoError(t, api.Call(ctx, method, path, in, out))
	}
	type fields map[string]any
	var made struct{ Name, Issuer string }
	call(http.MethodPost, "companies", fields{
		"slug": spec.Slug, "display_name": "Company " + spec.Slug, "kind": "COMPANY_KIND_TEST", "issuer": spec.Issuer,
	}, &made)
	c := &Company{Name: made.Name, Issuer: made.Issuer, Domain: spec.Domain, Backend: o.Backend(spec.Slug)}
	call(http.MethodPatch, c.Name+"/discoverySettings", fields{"organization_name": spec.Slug, "conversations_enabled": true}, nil)
	call(http.MethodPatch, c.Name+"/backend", fields{"url": c.Backend.URL}, nil)
	limits := fields{"session_starts_per_minute": 6_000, "requests_per_minute": 60_000}
	if spec.Deadline != "" {
		limits["answer_deadline"] = spec.Deadline
	}
	call(http.MethodPatch, c.Name+"/limits", limits, nil)
	var secret struct{ Secret string }
	call(http.MethodPost, c.Name+"/backend:rotateSecret", fields{"kind": "SECRET_KIND_HMAC"}, &secret)
	c.Secret = secret.Secret
	call(http.MethodPost, c.Name+":publish", fields{}, nil)
	var key struct{ Name, Key string }
	call(http.MethodPost, c.Name+"/apiKeys", fields{"display_name": "its own", "scopes": []string{"*"}}, &key)
	c.Key, c.KeyName = key.Key, key.Name
	if spec.Domain == "" {
		return c
	}
	var domain struct {
		Name, State    string
		RedirectTarget string `json:"redirect_target"`
		Observations   []any
	}
	call(http.MethodPost, c.Name+"/domains", fields{"domain": spec.Domain}, &domain)
	o.Redirect(spec.Domain, domain.RedirectTarget)
	call(http.MethodPost, domain.Name+":check", fields{}, &domain)
	require.Equal(t, "DOMAIN_STATE_VERIFIED", domain.State, "%v", domain.Observations)
	return c
}
