package oauth_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const browserEndpoint = "https://example.com/poppy/browser-session"

func (a *agent) browserClaims() map[string]any {
	c := a.claims(userID)
	c["aud"], c["session_id"], c["return_to"] = browserEndpoint, "ses_2Lm0", "https://example.com/orders"
	return c
}

func (a *agent) browserAssertion(t testing.TB, name string, value any) string {
	t.Helper()
	c := a.browserClaims()
	c[name] = value
	if value == nil {
		delete(c, name)
	}
	return a.sign(t, jose.SignHeader{Typ: oauth.BrowserTyp, KID: "k1"}, c)
}

func (a *agent) checkBrowser(raw string, keys jose.KeySet) (oauth.BrowserAssertion, error) {
	claimed, err := oauth.ParseBrowserAssertion(raw, browserEndpoint, a.now)
	if err != nil {
		return oauth.BrowserAssertion{}, err
	}
	return claimed.Check(keys)
}

func TestBrowserAssertion_Passes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#7", "poppy-0.1/5#8", "poppy-0.1/5#9", "poppy-0.1/5#10", "poppy-0.1/5#11", "poppy-0.1/5#12", "poppy-0.1/5#14", "poppy-0.1/5#19",
		"poppy-0.1/5#20", "poppy-0.1/5#23", "poppy-0.1/5#25", "poppy-0.1/5#27", "poppy-0.1/5#d7")
	a := newAgent(t)
	v, err := a.checkBrowser(a.browserAssertion(t, "extra", 1), a.keys)
	require.NoError(t, err)
	returnTo, named := v.ReturnTo()
	require.Equal(t, []any{clientID, userID, "ses_2Lm0", jti, "https://example.com/orders", true}, []any{v.ClientID(), v.UserID(), v.SessionID(), v.JTI(), returnTo, named})
	require.Equal(t, a.now.Add(90*time.Second), v.ReplayUntil())
	v, err = a.checkBrowser(a.browserAssertion(t, "return_to", nil), a.keys)
	require.NoError(t, err)
	_, named = v.ReturnTo()
	require.False(t, named)
	for _, iat := range []time.Duration{-89 * time.Second, 30 * time.Second} { // skew counts on both sides
		c := a.browserClaims()
		c["iat"], c["exp"] = a.now.Add(iat).Unix(), a.now.Add(iat).Add(time.Minute).Unix()
		_, err = a.checkBrowser(a.sign(t, jose.SignHeader{Typ: oauth.BrowserTyp, KID: "k1"}, c), a.keys)
		require.NoError(t, err, iat)
	}
}

func TestBrowserAssertion_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/5#7", "poppy-0.1/5#8", "poppy-0.1/5#9", "poppy-0.1/5#11", "poppy-0.1/5#19", "poppy-0.1/5#20", "poppy-0.1/5#23", "poppy-0.1/5#24", "poppy-0.1/5#25",
		"poppy-0.1/5#d6", "poppy-0.1/5#d7")
	a := newAgent(t)
	now := a.now.Unix()
	for name, c := range map[string]struct {
		raw string
		id  clause.ID
	}{
		"not a JWT":         {"hello", "poppy-0.1/5#7"},
		"typ JWT":           {a.sign(t, jose.SignHeader{Typ: "JWT", KID: "k1"}, a.browserClaims()), "poppy-0.1/5#20"},
		"no typ":            {a.sign(t, jose.SignHeader{KID: "k1"}, a.browserClaims()), "poppy-0.1/5#20"},
		"typ of a proof":    {a.sign(t, jose.SignHeader{Typ: "dpop+jwt", KID: "k1"}, a.browserClaims()), "poppy-0.1/5#20"},
		"typ as media type": {a.sign(t, jose.SignHeader{Typ: "application/poppy-browser+jwt", KID: "k1"}, a.browserClaims()), "poppy-0.1/5#20"},
		"aud elsewhere":     {a.browserAssertion(t, "aud", tokenEndpoint), "poppy-0.1/5#23"},
		"aud a list":        {a.browserAssertion(t, "aud", []string{browserEndpoint}), "poppy-0.1/5#23"},
		"aud with a slash":  {a.browserAssertion(t, "aud", browserEndpoint+"/"), "poppy-0.1/5#23"},
		"no aud":            {a.browserAssertion(t, "aud", nil), "poppy-0.1/5#23"},
		"sub the client":    {a.browserAssertion(t, "sub", clientID), "poppy-0.1/5#9"},
		"no sub":            {a.browserAssertion(t, "sub", nil), "poppy-0.1/5#9"},
		"no session":        {a.browserAssertion(t, "session_id", nil), "poppy-0.1/5#11"},
		"session a number":  {a.browserAssertion(t, "session_id", 7), "poppy-0.1/5#11"},
		"61 seconds":        {a.browserAssertion(t, "exp", now+61), "poppy-0.1/5#25"},
		"exp at iat":        {a.browserAssertion(t, "exp", now), "poppy-0.1/5#25"},
		"no exp":            {a.browserAssertion(t, "exp", nil), "poppy-0.1/5#25"},
		"no iat":            {a.browserAssertion(t, "iat", nil), "poppy-0.1/5#25"},
		"short jti":         {a.browserAssertion(t, "jti", "123456789012345"), "poppy-0.1/5#d7"},
		"key of another":    {newAgent(t).browserAssertion(t, "extra", 1), "poppy-0.1/5#19"},
	} {
		v, err := a.checkBrowser(c.raw, a.keys)
		require.Error(t, err, name)
		requireProblem(t, err, problem.InvalidRequest, c.id)
		require.Empty(t, v.ClientID(), name)
	}
	for _, iat := range []time.Duration{-90 * time.Second, 31 * time.Second} {
		c := a.browserClaims()
		c["iat"], c["exp"] = a.now.Add(iat).Unix(), a.now.Add(iat).Add(time.Minute).Unix()
		_, err := a.checkBrowser(a.sign(t, jose.SignHeader{Typ: oauth.BrowserTyp, KID: "k1"}, c), a.keys)
		requireProblem(t, err, problem.InvalidRequest, "poppy-0.1/5#25")
	}
	claimed, err := oauth.ParseBrowserAssertion(a.sign(t, jose.SignHeader{Typ: oauth.BrowserTyp, KID: "k2"}, a.browserClaims()), browserEndpoint, a.now)
	require.NoError(t, err)
	_, err = claimed.Check(a.keys)
	require.ErrorIs(t, err, jose.ErrUnknownKID)
}

// The other way round: with right claims otherwise, a browser assertion passes as nothing else.
func TestBrowserAssertion_PassesAsNothingElse(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/5#22", "poppy-0.1/5#d6", "poppy-0.1/4.2#d6")
	for _, k := range kinds(t) {
		k.requireRefused(t, k.sign(t, jose.SignHeader{Typ: oauth.BrowserTyp, KID: "k1"}, k.claims(k.sub)))
	}
}
