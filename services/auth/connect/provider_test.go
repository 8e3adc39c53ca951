package connect_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/services/auth/connect"
)

// newRigAtProvider makes a rig whose provider is the OpenID provider of zitadel/oidc,
// which others have certified.
func newRigAtProvider(t testing.TB) *rig {
	t.Helper()
	callback := "https://shop.example/oauth/callback"
	store := storage.NewStorageWithClients(storage.NewUserStore(idpIssuer), map[string]*storage.Client{
		"with-secret": storage.WebClient("with-secret", secret, callback), "public": storage.NativeClient("public", callback),
	})
	r := &rig{clock: clock.NewManual(time.Now())} // the provider knows no other clock
	r.with(t, exampleop.SetupServer(idpIssuer, store, nil, true), "login.example")
	r.company.SignIn.OIDC.ClientID = "with-secret"
	return r
}

// get follows the provider's redirects from one URL of it to where they leave it, or
// to a page of it.
func (r *rig) get(t testing.TB, raw string) *url.URL {
	t.Helper()
	for {
		at, err := url.Parse(raw)
		require.NoError(t, err)
		if at.Host != "login.example" {
			return at
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, raw, http.NoBody)
		require.NoError(t, err)
		res, err := r.browser.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if res.StatusCode == http.StatusOK {
			return at
		}
		next, err := res.Location()
		require.NoError(t, err, "%s: %s", raw, res.Status)
		raw = next.String()
	}
}

// signsIn goes from where Begin leads through the provider's login page, and returns
// what the browser comes back with.
func (r *rig) signsIn(t testing.TB, redirect string) url.Values {
	t.Helper()
	page := r.get(t, redirect)
	require.Equal(t, "/login/username", page.Path)
	form := url.Values{"id": {page.Query().Get("authRequestID")}, "username": {"test-user2"}, "password": {"verysecure"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, idpIssuer+page.Path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := r.browser.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	next, err := res.Location()
	require.NoError(t, err)
	back := r.get(t, next.String())
	require.Equal(t, "https://shop.example/oauth/callback", "https://"+back.Host+back.Path)
	return back.Query()
}

func TestOIDC_AtAnotherImplementation(t *testing.T) {
	r := newRigAtProvider(t)
	r.company.SignIn.OIDC.Scopes = []string{"email", "profile"}
	for _, force := range []bool{false, true} {
		redirect, up, err := r.oidc.Begin(t.Context(), r.company, force)
		require.NoError(t, err)
		query := r.signsIn(t, redirect)

		other := up
		other.Verifier = strings.Repeat("a", 43)
		_, err = r.oidc.Finish(t.Context(), r.company, other, query)
		require.ErrorIs(t, err, connect.ErrRefused, "PKCE protects the code")

		redirect, up, err = r.oidc.Begin(t.Context(), r.company, force)
		require.NoError(t, err)
		query = r.signsIn(t, redirect)
		got, err := r.oidc.Finish(t.Context(), r.company, up, query)
		require.NoError(t, err)
		require.Equal(t, connect.Account{ID: "id2", Label: "test-user2@zitadel.ch"}, got)

		_, err = r.oidc.Finish(t.Context(), r.company, up, query)
		requireRefused(t, err, "invalid_grant")
	}
}

func TestOIDC_AtAnotherImplementation_PublicClient(t *testing.T) {
	r := newRigAtProvider(t)
	r.company.SignIn.OIDC.ClientID, r.company.SignIn.OIDC.SealedSecret = "public", nil
	redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
	got, err := r.oidc.Finish(t.Context(), r.company, up, r.signsIn(t, redirect))
	require.NoError(t, err)
	require.Equal(t, "id2", got.ID)
}

func TestOIDC_AtAnotherImplementation_WrongSecret(t *testing.T) {
	r := newRigAtProvider(t)
	sealed, err := r.keys.Seal(r.company.Scope.CompanyID(), "oidc client secret", "oidc", []byte("canary"))
	require.NoError(t, err)
	r.company.SignIn.OIDC.SealedSecret = sealed
	redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
	_, err = r.oidc.Finish(t.Context(), r.company, up, r.signsIn(t, redirect))
	requireRefused(t, err, "invalid_client")
}

func TestOIDC_AtAnotherImplementation_ErrorOfTheProvider(t *testing.T) {
	r := newRigAtProvider(t)
	redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
	// The provider's own error, as it comes back to us.
	back := r.get(t, strings.Replace(redirect, "response_type=code", "response_type=nothing", 1))
	_, err = r.oidc.Finish(t.Context(), r.company, up, back.Query())
	require.ErrorIs(t, err, connect.ErrRefused)
}
