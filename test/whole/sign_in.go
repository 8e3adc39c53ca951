package whole

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
)

// Accounts is a Company's own sign-in system, as it answers signed webhooks: one
// account, whose password and one-time code it knows.
type Accounts struct {
	*Backend
	Email, Password, Code, State string
}

// Accounts sets up a Company whose Users sign in by e-mail, password and one-time code,
// by every type.
func (e Everybody) Accounts(t testing.TB) *Accounts {
	t.Helper()
	a := &Accounts{
		Backend: e.Outside.Backend(e.Company.Domain + "-accounts"), Email: e.Recorder.Text("email"),
		Password: e.Recorder.Credential("password"), Code: e.Recorder.Credential("code"), State: e.Recorder.Credential("state"),
	}
	a.Answer(func(w Webhook) (int, string) {
		var body struct {
			Type string
			Data struct {
				Credentials map[string]string
				Code, State string
			}
		}
		if json.Unmarshal(w.Raw, &body) != nil || w.Verify(e.Company.Secret) != nil {
			return http.StatusBadRequest, `{}`
		}
		switch {
		case body.Type == "sign_in.credentials" && body.Data.Credentials["email"] == a.Email && body.Data.Credentials["password"] == a.Password:
			return http.StatusOK, `{"result":"code_required","sent_to":"your phone","state":"` + a.State + `"}`
		case body.Type == "sign_in.code" && body.Data.State == a.State && body.Data.Code == a.Code:
			return http.StatusOK, `{"result":"complete","account":"acc-1","account_label":"Mia"}`
		case body.Type == "sign_in.code" && body.Data.State == a.State:
			return http.StatusOK, `{"result":"code_required","sent_to":"your phone","state":"` + a.State + `"}`
		}
		return http.StatusOK, `{"result":"failed"}`
	})
	ctx := t.Context()
	require.NoError(t, e.API.Call(ctx, http.MethodPatch, e.Company.Name+"/signInConnection", object{
		"method": "SIGN_IN_METHOD_CREDENTIAL_CHECK", "credential_check": object{"url": a.URL, "fields": []any{
			object{"name": "email", "label": "E-mail", "secret": false}, object{"name": "password", "label": "Password", "secret": true},
		}},
	}, nil))
	scopes := []string{"poppy:read", "poppy:write"}
	require.NoError(t, e.API.Call(ctx, http.MethodPatch, e.Company.Name+"/discoverySettings", object{
		"direct_scopes": scopes, "device_scopes": scopes, "mediated_scopes": scopes[:1],
	}, nil))
	return a
}

// Tokens is a token response.
type Tokens struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	SessionID    string `json:"session_id"`
	Scope        string
	SignedIn     bool `json:"signed_in"`
	Error        string
	Status       string // Mediated Sign-In
	SignInID     string `json:"sign_in_id"`
}

// Exchange sends a grant of the agent to the token endpoint.
func (a *Agent) Exchange(t testing.TB, grant string, parameters url.Values) Tokens {
	t.Helper()
	form := a.ClientForm(t, a.Endpoints.Token, time.Now())
	form.Set("grant_type", grant)
	for name, list := range parameters {
		form[name] = list
	}
	answer, err := a.Form(t.Context(), a.Endpoints.Token, a.Endpoints.Token, form)
	require.NoError(t, err)
	var out Tokens
	require.NoError(t, json.Unmarshal(answer.Body, &out), "%s", answer.Body)
	return out
}

// signIn goes through every way to sign in and out, with canaries as credentials.
func (e Everybody) signIn(t testing.TB) {
	t.Helper()
	accounts := e.Accounts(t)
	e.mediated(t, accounts)
	e.direct(t, accounts)
	e.device(t, accounts)
	e.failingSignIns(t)
}

// session starts a Session and returns its id.
func (e Everybody) session(t testing.TB) string {
	t.Helper()
	answer, err := e.Agent.Form(t.Context(), e.Agent.Endpoints.Token, e.Agent.Endpoints.Token, e.Agent.TokenForm(t, e.Agent.User, e.Agent.Endpoints.Token, time.Now()))
	require.NoError(t, err)
	var got Tokens
	require.NoError(t, json.Unmarshal(answer.Body, &got))
	e.Agent.Token = got.AccessToken
	return got.SessionID
}

func (e Everybody) mediated(t testing.TB, accounts *Accounts) {
	t.Helper()
	id := e.session(t)
	post := func(path string, body any) Tokens {
		t.Helper()
		answer, err := e.Agent.Call(t.Context(), http.MethodPost, e.Company.Issuer+"/poppy/sign-in"+path, body)
		require.NoError(t, err)
		e.Recorder.HidesCredentialsBut(t, "an answer of Mediated Sign-In", answer.Body, "access_token", "refresh_token")
		var got Tokens
		require.NoError(t, json.Unmarshal(answer.Body, &got), "%s", answer.Body)
		return got
	}
	credentials := func(password string) object {
		return object{"scope": "poppy:read", "credentials": object{"email": accounts.Email, "password": password}}
	}
	// The setting reaches the endpoint within moments.
	var got Tokens
	for until := time.Now().Add(10 * time.Second); got.Status != "failed"; got = post("", credentials(e.Recorder.Credential("wrong"))) {
		require.True(t, time.Now().Before(until), "%+v", got)
	}
	require.Equal(t, "invalid_request", post("", object{"scope": "poppy:read", "credentials": object{"email": accounts.Email, "pin": e.Recorder.Credential("pin")}}).Error)
	asked := post("", credentials(accounts.Password))
	require.Equal(t, "code_required", asked.Status)
	require.Equal(t, "code_required", post("/"+asked.SignInID, object{"code": e.Recorder.Credential("wrong-code")}).Status)
	got = post("/"+asked.SignInID, object{"code": accounts.Code})
	require.Equal(t, "complete", got.Status)
	require.Equal(t, id, got.SessionID)
	e.seenByBackend(t, got)
	require.True(t, e.Agent.Exchange(t, "refresh_token", url.Values{"refresh_token": {got.RefreshToken}}).SignedIn)
	e.signOut(t, got)
}

// seenByBackend says something with a signed-in token, and finds account and scopes in the webhook.
func (e Everybody) seenByBackend(t testing.TB, tokens Tokens) {
	t.Helper()
	e.Agent.Token = tokens.AccessToken
	e.Company.Backend.Answer(Echo)
	text := e.Recorder.Text("signed-in")
	said := func(w Webhook) bool { return w.Text == text }
	_, err := e.Agent.Open(t.Context(), fixture.RandomID(), text)
	require.NoError(t, err)
	got := e.Company.Backend.Await(t, 20*time.Second, "the signed-in message", func(got []Webhook) bool {
		return slices.ContainsFunc(got, said)
	})
	var body struct {
		Data struct {
			Session struct {
				SignedIn bool `json:"signed_in"`
				Account  string
				Scopes   []string
			}
		}
	}
	require.NoError(t, json.Unmarshal(got[slices.IndexFunc(got, said)].Raw, &body))
	require.True(t, body.Data.Session.SignedIn)
	require.Equal(t, "acc-1", body.Data.Session.Account)
	require.Equal(t, tokens.Scope, strings.Join(body.Data.Session.Scopes, " "))
}

// signOut revokes the Account Token, twice; what was signed in with it no longer is.
func (e Everybody) signOut(t testing.TB, tokens Tokens) {
	t.Helper()
	for range 2 {
		form := e.Agent.ClientForm(t, e.Agent.Endpoints.Token, time.Now())
		form.Set("token", tokens.RefreshToken)
		answer, err := e.Agent.Form(t.Context(), e.Agent.Revocation, e.Agent.Revocation, form)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	}
	require.Equal(t, "invalid_grant", e.Agent.Exchange(t, "refresh_token", url.Values{"refresh_token": {tokens.RefreshToken}}).Error)
}

// login goes from a login page through credentials and code to consent.
func (e Everybody) login(t testing.TB, b *Browser, page View, accounts *Accounts) View {
	t.Helper()
	for _, step := range []url.Values{
		{"action": {"login"}, "field.email": {accounts.Email}, "field.password": {e.Recorder.Credential("wrong")}},
		{"action": {"login"}, "field.email": {accounts.Email}, "field.password": {accounts.Password}},
		{"action": {"code"}, "code": {e.Recorder.Credential("wrong-code")}},
		{"action": {"code"}, "code": {accounts.Code}},
	} {
		var err error
		page, err = b.Submit(t.Context(), e.Company.Issuer, page, step)
		require.NoError(t, err)
		require.NotContains(t, page.HTML, accounts.Password)
	}
	require.Equal(t, http.StatusOK, page.Status)
	require.Contains(t, page.HTML, "Mia")
	return page
}

func (e Everybody) authorizationURL(state, verifier, redirectURI string) string {
	digest := sha256.Sum256([]byte(verifier))
	return e.Company.Issuer + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {e.Agent.ClientID}, "redirect_uri": {redirectURI}, "scope": {"poppy:read poppy:write"}, "state": {state},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(digest[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

func (e Everybody) direct(t testing.TB, accounts *Accounts) {
	t.Helper()
	ctx, issuer := t.Context(), e.Company.Issuer
	id := e.session(t)
	state, verifier := e.Recorder.Text("state"), fixture.RandomID()+fixture.RandomID()+fixture.RandomID()
	e.Recorder.keep("code_verifier", verifier)
	b := e.NewBrowser()
	page, err := b.Open(ctx, issuer, e.authorizationURL(state, verifier, e.Agent.ClientID+"/callback"))
	require.NoError(t, err)
	page = e.login(t, b, page, accounts)
	page, err = b.Submit(ctx, issuer, page, url.Values{"action": {"approve"}, "scope": {"poppy:read"}})
	require.NoError(t, err)
	require.NotNil(t, page.Left, "%s", page.HTML)
	back := page.Left.Query()
	require.Equal(t, []string{state, issuer}, []string{back.Get("state"), back.Get("iss")})
	exchange := func(verifier string) Tokens {
		t.Helper()
		return e.Agent.Exchange(t, "authorization_code", url.Values{
			"code": {back.Get("code")}, "redirect_uri": {e.Agent.ClientID + "/callback"}, "code_verifier": {verifier}, "session_id": {id},
		})
	}
	require.Equal(t, "invalid_grant", exchange(strings.Repeat("x", 43)).Error)
	got := exchange(verifier)
	require.Equal(t, "poppy:read", got.Scope)
	e.seenByBackend(t, got)
	e.disconnect(t)
	require.Equal(t, "invalid_grant", e.Agent.Exchange(t, "refresh_token", url.Values{"refresh_token": {got.RefreshToken}}).Error)
	require.Equal(t, "invalid_grant", exchange(verifier).Error)
}

// disconnect opens the page of connected agents, as the Company's account settings do, and disconnects all.
func (e Everybody) disconnect(t testing.TB) {
	t.Helper()
	var link struct{ URL string }
	require.NoError(t, e.API.Call(t.Context(), http.MethodPost, e.Company.Name+"/connectedAgents:createLink", object{"account": "acc-1"}, &link))
	at, err := url.Parse(link.URL)
	require.NoError(t, err)
	e.Recorder.keep("link", at.Query().Get("link"))
	b := e.NewBrowser()
	page, err := b.Open(t.Context(), e.Company.Issuer, link.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, page.Status)
	page, err = b.Submit(t.Context(), e.Company.Issuer, page, url.Values{"grant": {"*"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, page.Status, page.HTML)
}

func (e Everybody) device(t testing.TB, accounts *Accounts) {
	t.Helper()
	ctx, issuer := t.Context(), e.Company.Issuer
	for _, action := range []string{"approve", "decline"} {
		id := e.session(t)
		form := e.Agent.ClientForm(t, e.Agent.Endpoints.Token, time.Now())
		form.Set("scope", "poppy:read")
		answer, err := e.Agent.Form(ctx, issuer+"/oauth/device", issuer+"/oauth/device", form)
		require.NoError(t, err)
		var started struct {
			DeviceCode string `json:"device_code"`
			UserCode   string `json:"user_code"`
			Complete   string `json:"verification_uri_complete"`
		}
		require.NoError(t, json.Unmarshal(answer.Body, &started), "%s", answer.Body)
		e.Recorder.keep("device_code", started.DeviceCode)
		e.Recorder.keepShort("user_code", started.UserCode)
		poll := func() Tokens {
			t.Helper()
			return e.Agent.Exchange(t, "urn:ietf:params:oauth:grant-type:device_code", url.Values{"device_code": {started.DeviceCode}, "session_id": {id}})
		}
		require.Equal(t, "authorization_pending", poll().Error)
		b := e.NewBrowser()
		page, err := b.Open(ctx, issuer, started.Complete)
		require.NoError(t, err)
		page, err = b.Submit(ctx, issuer, page, url.Values{"user_code": {started.UserCode}})
		require.NoError(t, err)
		if action == "approve" {
			page = e.login(t, b, page, accounts)
		}
		page, err = b.Submit(ctx, issuer, page, url.Values{"action": {action}, "scope": {"poppy:read"}})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, page.Status, page.HTML)
		if action == "decline" {
			require.Equal(t, "access_denied", poll().Error)
			continue
		}
		got := poll()
		require.True(t, got.SignedIn, "%+v", got)
		e.signOut(t, got)
	}
}

// failingSignIns sends canaries where nobody expects them.
func (e Everybody) failingSignIns(t testing.TB) {
	t.Helper()
	ctx, issuer := t.Context(), e.Company.Issuer
	for _, address := range []string{
		e.authorizationURL(e.Recorder.Text("state"), "v", "https://evil.example/"+e.Recorder.Credential("redirect")),
		issuer + "/oauth/authorize?client_id=" + e.Recorder.Credential("client"),
		issuer + "/oauth/callback?state=" + e.Recorder.Credential("state") + "&code=" + e.Recorder.Credential("code"),
		issuer + "/sign-in/sgn_00000000000000000000000000/resume?login_verifier=" + e.Recorder.Credential("verifier"),
		issuer + "/account/agents?link=" + e.Recorder.Credential("link"),
	} {
		page, err := e.NewBrowser().Open(ctx, issuer, address)
		require.NoError(t, err)
		require.Nil(t, page.Left, "%s led to %s", address, page.Left)
		require.GreaterOrEqual(t, page.Status, 400, address)
		require.Less(t, page.Status, 500, address)
		e.Recorder.HidesCredentials(t, "an error page", []byte(page.HTML))
	}
	b := e.NewBrowser()
	page, err := b.Open(ctx, issuer, issuer+"/device")
	require.NoError(t, err)
	page, err = b.Submit(ctx, issuer, page, url.Values{"user_code": {e.Recorder.Credential("user_code")}})
	require.NoError(t, err)
	require.Less(t, page.Status, 500)
}
