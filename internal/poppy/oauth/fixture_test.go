package oauth_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	clientID      = "https://agent.example/agent.json"
	issuer        = "https://auth.example.com"
	tokenEndpoint = "https://auth.example.com/oauth/token"
	userID        = "usr_Q7c1vK"
	jti           = "V6vJGs2ixBAvGdaQgGaTzg"
)

func requireProblem(t *testing.T, err error, reason problem.Reason, id clause.ID) {
	t.Helper()
	var e *problem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason, "%v", err)
	require.Equal(t, id, e.Clause, "%v", err)
}

// agent is a Personal Agent with one published key, and the time it is.
type agent struct {
	signer *jose.Signer
	keys   jose.KeySet
	now    time.Time
}

func newAgent(t testing.TB) *agent {
	t.Helper()
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	keys, err := jose.ParseKeySet(jose.PublicKeySet(s.PublicJWK("k1")))
	require.NoError(t, err)
	return &agent{signer: s, keys: keys, now: time.Unix(1790900000, 0).UTC()}
}

func (a *agent) claims(sub string) map[string]any {
	return map[string]any{
		"iss": clientID, "sub": sub, "aud": tokenEndpoint, "jti": jti, "iat": a.now.Unix(), "exp": a.now.Unix() + 60,
	}
}

func (a *agent) sign(t testing.TB, h jose.SignHeader, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	raw, err := a.signer.Sign(h, payload)
	require.NoError(t, err)
	return raw
}

// kind is one of the two assertions with an agent of its own, so that what they share
// is tested for both.
type kind struct {
	*agent

	name   string
	sub    string
	reason problem.Reason
	check  func(raw string) (string, error) // gives the jti
}

func kinds(t testing.TB) []kind {
	t.Helper()
	a, b := newAgent(t), newAgent(t)
	return []kind{
		{a, "client", clientID, problem.InvalidClient, func(raw string) (string, error) {
			v, err := a.checkClient(raw)
			return v.JTI(), err
		}},
		{b, "session", userID, problem.InvalidGrant, func(raw string) (string, error) {
			v, err := b.checkSession(raw)
			return v.JTI(), err
		}},
	}
}

// assertion signs a passing assertion with one claim changed; nil leaves it out.
func (k kind) assertion(t testing.TB, name string, value any) string {
	t.Helper()
	c := k.claims(k.sub)
	c[name] = value
	if value == nil {
		delete(c, name)
	}
	return k.sign(t, jose.SignHeader{Typ: "JWT", KID: "k1"}, c)
}

func (k kind) requirePasses(t *testing.T, raw string) {
	t.Helper()
	_, err := k.check(raw)
	require.NoError(t, err)
}

func (k kind) requireRefused(t *testing.T, raw string) {
	t.Helper()
	got, err := k.check(raw)
	require.True(t, problem.Is(err, k.reason), "%v", err)
	require.NotEmpty(t, problem.As(err).Clause)
	require.Empty(t, got)
}

func (a *agent) checkClient(raw string) (oauth.ClientAssertion, error) {
	return oauth.CheckClientAssertion(raw, a.keys, clientID, []string{tokenEndpoint, issuer}, a.now)
}

func (a *agent) checkSession(raw string) (oauth.SessionAssertion, error) {
	return oauth.CheckSessionAssertion(raw, a.keys, clientID, tokenEndpoint, a.now)
}

// form encodes name and value pairs in order, repeats included.
func form(pairs ...string) []byte {
	var body []byte
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			body = append(body, '&')
		}
		body = append(body, url.QueryEscape(pairs[i])+"="+url.QueryEscape(pairs[i+1])...)
	}
	return body
}

// sessionStart is the form of Poppy 4.2 that starts a Session.
func sessionStart() []string {
	return []string{
		"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion", "a.b.c", "client_id", clientID,
		"client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer", "client_assertion", "d.e.f",
	}
}

// without returns pairs without those named name.
func without(pairs []string, name string) []string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != name {
			out = append(out, pairs[i], pairs[i+1])
		}
	}
	return out
}
