package gateways_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A library for resource servers, which knows nothing of us, looks at tokens.
func TestIntrospection_ByAForeignLibrary(t *testing.T) {
	r := start(t)
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign client runs on Node.js: run `make setup`")
	ask := func(key, token string) map[string]any {
		t.Helper()
		id := strings.TrimPrefix(r.company.Name, "companies/")
		cmd := exec.CommandContext(t.Context(), node, "introspect.mjs", r.company.Issuer, r.server.APIOrigin+"/v1/"+r.company.Name+"/introspect", r.server.CAFile, id, key, token)
		cmd.Dir = "../interop"
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		var got map[string]any
		require.NoError(t, json.Unmarshal(out, &got), "%s", out)
		return got
	}
	r.startSession(t)
	got := ask(r.key, r.agent.Token)
	require.Equal(t, []any{true, "DPoP", r.agent.ClientID, r.company.Issuer}, []any{got["active"], got["token_type"], got["client_id"], got["iss"]})
	confirmed, ok := got["cnf"].(map[string]any)
	require.True(t, ok, got)
	require.NotEmpty(t, confirmed["jkt"])
	require.NotContains(t, got, "sub")
	require.NotContains(t, got, "scope")
	tokens := r.signIn(t)
	got = ask(r.key, tokens.AccessToken)
	require.Equal(t, []any{true, "acc-1", "acc-1", "poppy:read"}, []any{got["active"], got["sub"], got["username"], got["scope"]})
	r.signOut(t, tokens)
	require.NotContains(t, ask(r.key, tokens.AccessToken), "sub")
	require.Equal(t, map[string]any{"active": false}, ask(r.key, "pst_unknown"))
	require.Equal(t, map[string]any{"active": false}, ask(r.key, tokens.RefreshToken))
	require.EqualValues(t, 401, ask("pfk_"+strings.Repeat("x", 43), tokens.AccessToken)["status"])
	require.EqualValues(t, 404, ask(r.other.Key, tokens.AccessToken)["status"])
}
