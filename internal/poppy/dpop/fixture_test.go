package dpop_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	tokenEndpoint = "https://auth.example.com/oauth/token"
	eventsURL     = "https://api.example.com/poppy/conversations/cnv_1/events"
	token         = "st_3x4mpl3"
)

// fixture is an agent with one key and a request that its proof belongs to.
type fixture struct {
	signer *jose.Signer
	now    time.Time
	req    dpop.Request
	policy dpop.Policy
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	return &fixture{
		signer: s,
		now:    time.Unix(1790900000, 0).UTC(),
		req: dpop.Request{
			Method: "POST", URL: eventsURL, TokenHash: dpop.TokenHash(token), KeyThumbprint: s.Thumbprint(),
		},
	}
}

// claims are those of a proof that passes; a test changes what it is about.
func (f *fixture) claims() map[string]any {
	return map[string]any{
		"jti": "V6vJGs2ixBAvGdaQgGaTzg", "htm": f.req.Method, "htu": f.req.URL, "iat": f.now.Unix(), "ath": dpop.TokenHash(token),
	}
}

func (f *fixture) sign(t testing.TB, h jose.SignHeader, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	raw, err := f.signer.Sign(h, payload)
	require.NoError(t, err)
	return raw
}

func header() jose.SignHeader { return jose.SignHeader{Typ: "dpop+jwt", EmbedKey: true} }

// proof signs the passing claims with one of them changed; a nil value leaves it out.
func (f *fixture) proof(t testing.TB, name string, value any) string {
	t.Helper()
	c := f.claims()
	if name != "" {
		c[name] = value
	}
	if value == nil {
		delete(c, name)
	}
	return f.sign(t, header(), c)
}

func (f *fixture) check(raw string) (dpop.VerifiedProof, error) {
	return dpop.CheckProof(raw, f.req, f.now, f.policy)
}

func (f *fixture) requirePasses(t *testing.T, raw string) {
	t.Helper()
	_, err := f.check(raw)
	require.NoError(t, err)
}

func (f *fixture) requireRefused(t *testing.T, raw string, id clause.ID) {
	t.Helper()
	p, err := f.check(raw)
	requireProblem(t, err, problem.InvalidDPoPProof, id)
	require.Zero(t, p)
}

func requireProblem(t *testing.T, err error, reason problem.Reason, id clause.ID) {
	t.Helper()
	var e *problem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason, "%v", err)
	require.Equal(t, id, e.Clause, "%v", err)
}
