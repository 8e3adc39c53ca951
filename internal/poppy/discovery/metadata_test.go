package discovery_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// metadata is what an ordinary issuer of two domains publishes.
func metadata(issuer string) []byte {
	return []byte(`{"issuer":"` + issuer + `","token_endpoint":"https://auth.harbor.example/oauth/token",
		"revocation_endpoint":"https://auth.harbor.example/oauth/revoke","authorization_endpoint":"https://auth.harbor.example/oauth/authorize",
		"device_authorization_endpoint":"https://auth.harbor.example/oauth/device","poppy_domains":["harbor.co.example","harbor.example"],
		"dpop_signing_alg_values_supported":["ES256"],"token_endpoint_auth_signing_alg_values_supported":"ES256","something_else":[1]}`)
}

func parsedDocument(t testing.TB, issuer string, more string) discovery.Document {
	t.Helper()
	doc, err := discovery.ParseDocument(document(organizationPart, `"auth":{"issuer":"`+issuer+`"`+more+`}`, agentPart), "harbor.example")
	require.NoError(t, err)
	return doc
}

func TestParseMetadata_TakesTheEndpoints(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#6", "poppy-0.1/3.2#7", "poppy-0.1/3.2#9", "poppy-0.1/3.2#10", "poppy-0.1/3.2#15", "poppy-0.1/3.2#16")
	m, err := discovery.ParseMetadata(metadata("https://auth.harbor.example"), "https://auth.harbor.example")
	require.NoError(t, err)
	require.Equal(t, discovery.Metadata{
		Issuer:                      "https://auth.harbor.example",
		TokenEndpoint:               "https://auth.harbor.example/oauth/token",
		RevocationEndpoint:          "https://auth.harbor.example/oauth/revoke",
		AuthorizationEndpoint:       "https://auth.harbor.example/oauth/authorize",
		DeviceAuthorizationEndpoint: "https://auth.harbor.example/oauth/device",
		PoppyDomains:                []string{"harbor.co.example", "harbor.example"},
		DPoPSigningAlgs:             []string{"ES256"},
	}, m)
	require.NoError(t, discovery.CheckPair(parsedDocument(t, "https://auth.harbor.example", `,"direct":{"scopes":[]},"device":{"scopes":[]}`), m))
}

func TestPJ07_IS03_IssuerMismatch_ShowsBoth(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.2#6", "poppy-0.1/3.1#7")
	for _, c := range []struct{ document, metadata, hint string }{
		{"https://auth.harbor.example/", "https://auth.harbor.example", "trailing slash"},
		{"https://auth.harbor.example", "https://auth.harbor.example/", "trailing slash"},
		{"https://Auth.harbor.example", "https://auth.harbor.example", "upper and lower case"},
		{"https://auth.harbor.example:443", "https://auth.harbor.example", "has to change"},
		{"https://auth.harbor.example/t/acme", "https://auth.harbor.example", "without the path"},
		{"https://auth.harbor.example", "https://api.harbor.example/mcp", "has to change"},
		{"https://auth.harbor.example", "", "has to change"},
	} {
		_, err := discovery.ParseMetadata(metadata(c.metadata), c.document)
		require.True(t, problem.Is(err, discovery.IssuerMismatch), "%+v: %v", c, err)
		for _, part := range []string{`"` + c.document + `"`, `"` + c.metadata + `"`, c.hint} {
			require.Contains(t, problem.As(err).Detail, part)
		}
		err = discovery.CheckPair(parsedDocument(t, c.document, ""), discovery.Metadata{Issuer: c.metadata})
		require.True(t, problem.Is(err, discovery.IssuerMismatch))
	}
	// The same string on both sides is right, a trailing slash included.
	m, err := discovery.ParseMetadata(metadata("https://auth.harbor.example/"), "https://auth.harbor.example/")
	require.NoError(t, err)
	require.NoError(t, discovery.CheckPair(parsedDocument(t, "https://auth.harbor.example/", ""), m))
}

func TestPJ02_CheckPair_DomainNotListed(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.2#7")
	clausetest.Covers(t, "poppy-0.1/3.2#7")
	doc := parsedDocument(t, "https://auth.harbor.example", "")
	for _, domains := range [][]string{nil, {"other.example"}, {"shop.harbor.example"}, {"www.harbor.example"}, {"*.harbor.example"}, {""}} {
		err := discovery.CheckPair(doc, discovery.Metadata{Issuer: "https://auth.harbor.example", PoppyDomains: domains})
		require.True(t, problem.Is(err, discovery.DomainNotListed), domains)
	}
	for _, domains := range [][]string{{"harbor.example"}, {"x", "HARBOR.example"}, {"harbor.example."}} {
		require.NoError(t, discovery.CheckPair(doc, discovery.Metadata{Issuer: "https://auth.harbor.example", PoppyDomains: domains}))
	}
}

func TestCheckPair_SignInEndpoints(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.2#13", "poppy-0.1/3.2#14")
	doc := parsedDocument(t, "https://auth.harbor.example", `,"direct":{"scopes":["poppy:read"]},"device":{"scopes":["poppy:read"]}`)
	err := discovery.CheckPair(doc, discovery.Metadata{Issuer: "https://auth.harbor.example", PoppyDomains: []string{"harbor.example"}})
	require.True(t, problem.Is(err, discovery.InvalidDocument))
	require.Len(t, problem.As(err).Fields, 2)
}

func TestCheckPair_WebOnly(t *testing.T) {
	doc, err := discovery.ParseDocument(document(organizationPart, `"web":{}`), "harbor.example")
	require.NoError(t, err)
	require.NoError(t, discovery.CheckPair(doc, discovery.Metadata{}))
}

func TestParseMetadata_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.2#4", "poppy-0.1/3.2#9", "poppy-0.1/3.2#11", "poppy-0.1/3.2#12")
	const issuer = "https://auth.harbor.example"
	whole := string(metadata(issuer))
	for _, raw := range []string{
		``, `[]`, `<html>`, strings.Replace(whole, `"token_endpoint"`, `"x"`, 1), strings.Replace(whole, `"revocation_endpoint"`, `"x"`, 1),
		strings.Replace(whole, `"poppy_domains"`, `"x"`, 1), strings.Replace(whole, `["harbor.co.example"`, `[5`, 1),
		strings.Replace(whole, `https://auth.harbor.example/oauth/token`, `http://auth.harbor.example/oauth/token`, 1),
		strings.Replace(whole, `"https://auth.harbor.example/oauth/device"`, `7`, 1),
		strings.Replace(whole, `"something_else"`, `"poppy_domains"`, 1),
	} {
		_, err := discovery.ParseMetadata([]byte(raw), issuer)
		require.True(t, problem.Is(err, discovery.InvalidDocument), "%s: %v", raw, err)
	}
	_, err := discovery.ParseMetadata(make([]byte, discovery.MaxDocument+1), issuer)
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
}

func FuzzParseMetadata(f *testing.F) {
	f.Add(metadata("https://auth.harbor.example"), "https://auth.harbor.example")
	f.Add([]byte(`{"issuer":""}`), "")
	f.Add([]byte(`{"issuer":"a","issuer":"b"}`), "a")
	f.Fuzz(func(t *testing.T, raw []byte, issuer string) {
		m, err := discovery.ParseMetadata(raw, issuer)
		if err != nil {
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		require.Equal(t, issuer, m.Issuer)
		require.True(t, strings.HasPrefix(m.TokenEndpoint, "https://"), m.TokenEndpoint)
	})
}
