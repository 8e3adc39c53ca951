package adminapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
)

func TestSignInConnection_SecretsAreWrittenOnly(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const secret = "canary-client-secret"
		a := start(t, d)
		name, key, _ := a.company(t, "noodles")
		path := name + "/signInConnection"
		const body = `{"method":"SIGN_IN_METHOD_OIDC","oidc":{"issuer":"https://id.noodles.example","client_id":"poppy","client_secret":"` + secret + `"}}`
		oidc := func(answer map[string]any) map[string]any {
			require.NotContains(t, quote(t, answer), secret)
			got, ok := answer["oidc"].(map[string]any)
			require.True(t, ok)
			return got
		}
		empty := a.ok(t, key, "GET", path, "")
		require.Equal(t, "https://noodles.poppyfield.test/oauth/callback", oidc(empty)["callback_url"])
		require.Equal(t, true, oidc(a.ok(t, key, "PATCH", path+"?validate_only=true", body))["has_client_secret"], "shown as it would be")
		require.Equal(t, empty, a.ok(t, key, "GET", path, ""))
		const repeat = "?request_id=0b9f6a9e-7d1c-4b6e-9d53-0d2f0b1f7a11"
		first := a.ok(t, key, "PATCH", path+repeat, body)
		require.Equal(t, true, oidc(first)["has_client_secret"])
		require.Equal(t, first, a.ok(t, key, "PATCH", path+repeat, body), "made once")

		// What was read can be written back, and changes nothing but its version.
		raw, err := json.Marshal(first)
		require.NoError(t, err)
		again := a.ok(t, key, "PATCH", path, string(raw))
		require.Equal(t, oidc(first), oidc(again))
		status, p := a.call(t, key, "PATCH", path, string(raw))
		require.Equal(t, http.StatusPreconditionFailed, status)
		require.Equal(t, "ETAG_MISMATCH", p["reason"])

		status, p = a.call(t, key, "PATCH", path, `{"oidc":{"issuer":"http://id.noodles.example","client_id":"poppy","client_secret":"`+secret+`"}}`)
		require.Equal(t, http.StatusBadRequest, status)
		require.NotContains(t, quote(t, p), secret)
		status, p = a.call(t, key, "PATCH", path, `{"test_accounts":[{"account":"a","username":"u","password":"`+secret+`"}]}`)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "FAILED_PRECONDITION", p["reason"])
		require.NotContains(t, quote(t, p), secret)

		checked := a.ok(t, key, "POST", path+":check", "{}")
		require.Equal(t, false, checked["ok"])
		require.Len(t, checked["steps"], 1)
	})
}

func TestSignIn_PermissionsAndOtherCompanies(t *testing.T) {
	a := start(t, dbtest.SQLite(t))
	name, key, _ := a.company(t, "noodles")
	other, _, _ := a.company(t, "soup")
	reader := text(t, a.ok(t, key, "POST", name+"/apiKeys", `{"scopes":["signin.read"]}`), "key")
	for _, resource := range []string{"/signInConnection", "/pageDesign"} {
		a.ok(t, reader, "GET", name+resource, "")
		status, _ := a.call(t, key, "GET", other+resource, "")
		require.Equal(t, http.StatusNotFound, status)
	}
	status, _ := a.call(t, reader, "PATCH", name+"/pageDesign", `{"accent_color":"#112233"}`)
	require.Equal(t, http.StatusForbidden, status)
	status, _ = a.call(t, reader, "POST", name+"/signInConnection:check", `{}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "#112233", a.ok(t, key, "PATCH", name+"/pageDesign", `{"accent_color":"#112233"}`)["accent_color"])
}
