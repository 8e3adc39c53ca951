package cimd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func parseClient(t *testing.T, changes map[string]any) (cimd.Document, error) {
	t.Helper()
	body, err := json.Marshal(with(changes))
	require.NoError(t, err)
	return cimd.ParseClient(agent(t), "application/json", body)
}

func TestParseClient_WithoutAWayToAuthenticate(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#17")
	onDevice := []any{"http://127.0.0.1/back", "http://localhost:33418/back?x=1", "https://agent.example/back"}
	for name, changes := range map[string]map[string]any{
		"none":                   {"token_endpoint_auth_method": "none", "jwks_uri": nil, "redirect_uris": onDevice},
		"none, in spite of keys": {"token_endpoint_auth_method": "none", "redirect_uris": onDevice},
		"left out":               {"token_endpoint_auth_method": nil, "jwks_uri": nil, "redirect_uris": onDevice},
	} {
		d, err := parseClient(t, changes)
		require.NoError(t, err, name)
		require.True(t, d.Public, name)
		require.Len(t, d.RedirectURIs, 3)
		requireInvalidClient(t, d.CheckAgent(), cimd.SameDomain)
		body, err := json.Marshal(with(changes))
		require.NoError(t, err)
		_, err = cimd.ParseDocument(agent(t), "application/json", body)
		requireInvalidClient(t, err, cimd.SameDomain)
	}
	d, err := parseClient(t, nil)
	require.NoError(t, err)
	require.False(t, d.Public)
	require.NoError(t, d.CheckAgent())
}

func TestParseClient_Refuses(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/6#17")
	for name, changes := range map[string]map[string]any{
		"an agent's on the device":    {"redirect_uris": []any{"http://127.0.0.1/back"}},
		"nowhere to go":               {"token_endpoint_auth_method": "none", "redirect_uris": nil},
		"an empty list":               {"token_endpoint_auth_method": "none", "redirect_uris": []any{}},
		"http elsewhere":              {"token_endpoint_auth_method": "none", "redirect_uris": []any{"http://agent.example/back"}},
		"https on another host":       {"token_endpoint_auth_method": "none", "redirect_uris": []any{"https://other.example/back"}},
		"a scheme of its own":         {"token_endpoint_auth_method": "none", "redirect_uris": []any{"tool://back"}},
		"a name that looks like it":   {"token_endpoint_auth_method": "none", "redirect_uris": []any{"http://127.0.0.1.agent.example/back"}},
		"userinfo that looks like it": {"token_endpoint_auth_method": "none", "redirect_uris": []any{"http://127.0.0.1@agent.example/back"}},
		"a fragment":                  {"token_endpoint_auth_method": "none", "redirect_uris": []any{"http://127.0.0.1/back#x"}},
		"a secret":                    {"token_endpoint_auth_method": "client_secret_post"},
	} {
		_, err := parseClient(t, changes)
		require.True(t, problem.Is(err, problem.InvalidClient), "%s: %v", name, err)
	}
}

func TestHasRedirectURI_AnyPortOfTheDevice(t *testing.T) {
	d := cimd.Document{Public: true, RedirectURIs: []string{"http://127.0.0.1/back", "http://localhost:8080/cb?x=1", "https://agent.example/back"}}
	for uri, want := range map[string]bool{
		"http://127.0.0.1/back": true, "http://127.0.0.1:51000/back": true, "http://localhost/cb?x=1": true, "http://localhost:1/cb?x=1": true,
		"https://agent.example/back":  true,
		"http://localhost:51000/back": false, "http://127.0.0.1:51000/back/": false, "http://127.0.0.1:51000/": false, "http://localhost:1/cb": false,
		"http://127.0.0.1:0/back": false, "http://127.0.0.1:/back": false, "http://127.0.0.1:99999/back": false,
		"https://127.0.0.1/back": false, "https://agent.example:8443/back": false, "http://agent.example/back": false, "": false,
	} {
		require.Equal(t, want, d.HasRedirectURI(uri), uri)
	}
	d.Public = false
	require.False(t, d.HasRedirectURI("http://127.0.0.1:51000/back"), "an agent's are compared byte for byte")
}

func TestParseRegistration(t *testing.T) {
	d, err := cimd.ParseRegistration([]byte(`{"client_name":"My\u202e  tool","redirect_uris":["https://tool.example/back"],"jwks":{},"scope":"x"}`))
	require.NoError(t, err)
	require.Equal(t, cimd.Document{Name: "My tool", RedirectURIs: []string{"https://tool.example/back"}, Public: true}, d)
	d, err = cimd.ParseRegistration([]byte(`{"redirect_uris":["http://LOCALHOST.example/"]}`))
	require.True(t, problem.Is(err, problem.InvalidRedirectURI), "%v", err)
	require.Zero(t, d)
	d, err = cimd.ParseRegistration([]byte(`{"redirect_uris":["http://localhost:1/"],"grant_types":["authorization_code"],"response_types":["code"]}`))
	require.NoError(t, err)
	require.Equal(t, "localhost", d.Name)
}

func FuzzParseRegistration(f *testing.F) {
	f.Add([]byte(`{"client_name":"Tool","redirect_uris":["http://127.0.0.1:1/back"],"grant_types":["authorization_code"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := cimd.ParseRegistration(body)
		if err != nil {
			require.Zero(t, d)
			return
		}
		require.True(t, d.Public)
		require.NotEmpty(t, d.RedirectURIs)
		for _, uri := range d.RedirectURIs {
			require.Empty(t, cimd.CheckRedirectURI(uri))
			require.True(t, d.HasRedirectURI(uri))
		}
	})
}
