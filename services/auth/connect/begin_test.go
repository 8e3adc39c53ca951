package connect_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
)

const wellKnown = "/.well-known/openid-configuration"

func TestBegin_AuthorizationURL(t *testing.T) {
	r := newRig(t)
	r.company.SignIn.OIDC.Scopes = []string{"email", "openid", "profile"}
	redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
	base, raw, _ := strings.Cut(redirect, "?")
	require.Equal(t, idpIssuer+"/authorize", base)
	q, err := url.ParseQuery(raw)
	require.NoError(t, err)
	sum := sha256.Sum256([]byte(up.Verifier))
	require.Equal(t, url.Values{
		"tenant": {"1"}, "response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {"https://shop.example/oauth/callback"},
		"scope": {"openid email profile"}, "state": {up.State}, "nonce": {up.Nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}, q)
	require.Len(t, up.Verifier, 43)
	require.GreaterOrEqual(t, len(up.State), 26)
	require.NotContains(t, redirect, up.Verifier)

	redirect, again, err := r.oidc.Begin(t.Context(), r.company, true)
	require.NoError(t, err)
	require.Contains(t, redirect, "prompt=login")
	require.Contains(t, redirect, "max_age=0")
	require.NotEqual(t, up.State, again.State)
	require.NotEqual(t, up.Nonce, again.Nonce)
	require.NotEqual(t, up.Verifier, again.Verifier)
}

func TestBegin_MetadataAreReadOnceInAWhile(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, _, err := r.oidc.Begin(t.Context(), r.company, false); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := r.idp.count(wellKnown)
	require.LessOrEqual(t, n, 8)
	r.begin(t)
	require.Equal(t, n, r.idp.count(wellKnown))
	r.clock.Advance(5*time.Minute - 1)
	r.begin(t)
	require.Equal(t, n, r.idp.count(wellKnown))
	r.clock.Advance(time.Second)
	r.begin(t)
	require.Equal(t, n+1, r.idp.count(wellKnown))
}

func TestMT03_Begin_EachCompanyReadsForItself(t *testing.T) {
	r := newRig(t)
	r.begin(t)
	other := r.newCompany(t, "cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz")
	_, _, err := r.oidc.Begin(t.Context(), other, false)
	require.NoError(t, err)
	require.Equal(t, 2, r.idp.count(wellKnown))
	require.Equal(t, r.company.Scope, r.outside.scopes[0])
	require.Equal(t, other.Scope, r.outside.scopes[1])

	other.SignIn.OIDC.SealedSecret = r.company.SignIn.OIDC.SealedSecret
	_, _, err = r.oidc.Begin(t.Context(), other, false)
	requireUnavailable(t, err) // another Company's secret does not open
}

func TestBegin_FailureIsForgottenSoon(t *testing.T) {
	r := newRig(t)
	r.idp.fails(wellKnown, 503, "text/html", "canary")
	for range 3 {
		_, _, err := r.oidc.Begin(t.Context(), r.company, false)
		requireUnavailable(t, err)
		require.ErrorContains(t, err, "503")
	}
	require.Equal(t, 1, r.idp.count(wellKnown))
	r.idp.mu.Lock()
	clear(r.idp.fault)
	r.idp.mu.Unlock()
	r.clock.Advance(3 * time.Second)
	r.begin(t)
}

func TestBegin_UnusableMetadata(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"of another issuer":     func(r *rig) { r.idp.metadata["issuer"] = "https://other.example" },
		"slash at the end":      func(r *rig) { r.idp.metadata["issuer"] = idpIssuer + "/" },
		"no issuer":             func(r *rig) { delete(r.idp.metadata, "issuer") },
		"plain authorization":   func(r *rig) { r.idp.metadata["authorization_endpoint"] = "http://login.example/authorize" },
		"script":                func(r *rig) { r.idp.metadata["authorization_endpoint"] = "javascript:alert(1)" },
		"relative":              func(r *rig) { r.idp.metadata["authorization_endpoint"] = "/authorize" },
		"user in authorization": func(r *rig) { r.idp.metadata["authorization_endpoint"] = "https://a@login.example/" },
		"fragment":              func(r *rig) { r.idp.metadata["authorization_endpoint"] = "https://login.example/#a" },
		"no token endpoint":     func(r *rig) { delete(r.idp.metadata, "token_endpoint") },
		"plain keys":            func(r *rig) { r.idp.metadata["jwks_uri"] = "http://login.example/keys" },
		"other kind":            func(r *rig) { r.idp.metadata["token_endpoint"] = []string{"canary"} },
		"other authentication": func(r *rig) {
			r.idp.metadata["token_endpoint_auth_methods_supported"] = []string{"private_key_jwt", "tls_client_auth"}
		},
		"redirect":      func(r *rig) { r.idp.fails(wellKnown, 302, "application/json", "") },
		"not there":     func(r *rig) { r.idp.fails(wellKnown, 404, "application/json", "{}") },
		"no JSON":       func(r *rig) { r.idp.fails(wellKnown, 200, "application/json", "canary") },
		"no JSON type":  func(r *rig) { r.idp.fails(wellKnown, 200, "text/html", "{}") },
		"too large":     func(r *rig) { r.idp.fails(wellKnown, 200, "application/json", strings.Repeat(" ", 1<<20+1)) },
		"broken":        func(r *rig) { r.idp.fails(wellKnown, 0, "", "") },
		"unknown host":  func(r *rig) { r.company.SignIn.OIDC.Issuer = "https://nowhere.invalid" },
		"inside":        func(r *rig) { r.company.SignIn.OIDC.Issuer = "https://127.0.0.1" },
		"plain issuer":  func(r *rig) { r.company.SignIn.OIDC.Issuer = "http://login.example" },
		"bad issuer":    func(r *rig) { r.company.SignIn.OIDC.Issuer = "https://login.example:port" },
		"bad secret":    func(r *rig) { r.company.SignIn.OIDC.SealedSecret = []byte("canary") },
		"other method":  func(r *rig) { r.company.SignIn.Method = directory.Handoff },
		"no sign-in":    func(r *rig) { r.company.SignIn = nil },
		"relay is down": func(r *rig) { r.outside.says(nil, context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			change(r)
			redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
			requireUnavailable(t, err)
			require.Empty(t, redirect)
			require.Zero(t, up)
		})
	}
}

func TestBegin_CallerThatGivesUpFailsNobodyElse(t *testing.T) {
	r := newRig(t)
	asked, goOn := make(chan struct{}), make(chan struct{})
	r.idp.fault[wellKnown] = func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-goOn
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer":"` + idpIssuer + `","authorization_endpoint":"https://login.example/a","token_endpoint":"https://login.example/t","jwks_uri":"https://login.example/k"}`))
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, _, err := r.oidc.Begin(ctx, r.company, false)
		gaveUp <- err
	}()
	<-asked
	cancel()
	err := <-gaveUp
	require.ErrorIs(t, err, context.Canceled)
	requireUnavailable(t, err)
	close(goOn)
	_, _, err = r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
}
