package agent

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
)

const (
	shopAuthorize = shopIssuer + "/oauth/authorize"
	shopDevice    = shopIssuer + "/oauth/device"
	shopRevoke    = shopIssuer + "/oauth/revoke"
	shopMediated  = shopIssuer + "/poppy/sign-in"
	mediatedAt    = "auth.shop.example/poppy/sign-in"
	deviceAt      = "auth.shop.example/oauth/device"
	revokeAt      = "auth.shop.example/oauth/revoke"
	testRedirect  = "https://agent.example/oauth/callback"
)

// grant is what the fake Company keeps for an Account Token.
type grant struct {
	account string
	scope   string
	over    bool
}

type authorization struct {
	challenge, redirect, scope, account string
	used                                bool
}

// fakeSignIns is the company side of 4.4 to 4.9, written for these tests alone: it
// takes exactly the requests of the draft's examples.
type fakeSignIns struct {
	by       map[string]string // Session Token → Account Token
	sessions map[string]string // Session Token → Session
	accounts map[string]string // Session → account
	grants   map[string]*grant // Account Token → what it gives
	codes    map[string]*authorization
	account  string // whom the next sign-in is of
	granted  string // what the User approves; "" for all
	rotate   bool
	needed   bool // conversations are for signed-in Sessions only
	lifetime int  // refresh_token_expires_in; 0 for none

	deviceCode, deviceScope string
	deviceAnswers           []string // errors of the polls; then the tokens
	device                  map[string]any
	polls                   []time.Time

	password  string
	code      string // the one-time code; "" for none
	codeTries int
	pending   map[string]string // sign_in_id → Session
}

func newFakeSignIns() fakeSignIns {
	return fakeSignIns{
		by: map[string]string{}, sessions: map[string]string{}, accounts: map[string]string{}, grants: map[string]*grant{}, codes: map[string]*authorization{},
		account: "acc_mia", pending: map[string]string{}, password: "hunter2 & <söhne>", codeTries: 3,
		device: map[string]any{
			"user_code": "WDJB-MJHT", "verification_uri": shopIssuer + "/device",
			"verification_uri_complete": shopIssuer + "/device?user_code=WDJB-MJHT", "expires_in": 600, "interval": 5,
		},
	}
}

// offerSignIns makes the Company offer types of sign-in, with the broad scopes each.
func (c *fakeCompany) offerSignIns(kinds ...string) {
	auth := map[string]any{"issuer": shopIssuer}
	for _, kind := range kinds {
		auth[kind] = map[string]any{"scopes": []string{"poppy:read", "poppy:write"}}
	}
	if slices.Contains(kinds, SignInMediated) {
		auth[SignInMediated] = map[string]any{
			"endpoint": shopMediated, "scopes": []string{"poppy:read"},
			"fields": []any{
				map[string]any{"name": "email", "label": "Email", "secret": false},
				map[string]any{"name": "password", "label": "Password", "secret": true},
			},
		}
	}
	c.document["auth"] = auth
	c.metadata["authorization_endpoint"], c.metadata["device_authorization_endpoint"] = shopAuthorize, shopDevice
}

// authorize is the User who opens link, signs in and approves: it returns where the
// Company sends them.
func (c *fakeCompany) authorize(link string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, err := url.Parse(link)
	if err != nil || !strings.HasPrefix(link, shopAuthorize+"?") {
		c.t.Errorf("authorization URL %q: %v", link, err)
		return ""
	}
	q := u.Query()
	var doc clientDocument
	if err := json.Unmarshal(c.identity.Document, &doc); err != nil {
		c.t.Errorf("client document: %v", err)
	}
	for _, name := range []string{"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method"} {
		if len(q[name]) != 1 || q.Get(name) == "" {
			c.t.Errorf("authorization URL without one %s", name)
		}
	}
	if q.Get("response_type") != "code" || q.Get("client_id") != c.clientID || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || !slices.Contains(doc.RedirectURIs, q.Get("redirect_uri")) {
		c.t.Errorf("authorization URL refused: %s", link)
	}
	code := "poc_" + randomText(18)
	c.signIns.codes[code] = &authorization{
		challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri"), scope: q.Get("scope"), account: c.signIns.account,
	}
	return q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {shopIssuer}}.Encode()
}

// signedIn judges a Session Token by the Account Token it came from.
func (c *fakeCompany) signedIn(token string) bool {
	g := c.signIns.grants[c.signIns.by[token]]
	return g != nil && !g.over
}

// signInSession is the end of all three types (4.4).
func (c *fakeCompany) signInSession(id, account, scope, thumbprint string) map[string]any {
	if c.signIns.granted != "" {
		scope = c.signIns.granted
	}
	token := "pat_" + randomText(24)
	c.signIns.grants[token] = &grant{account: account, scope: scope}
	c.signIns.accounts[id] = account
	out := c.sessionToken(id, thumbprint, token)
	out["scope"], out["refresh_token"] = scope, token
	if c.signIns.lifetime > 0 {
		out["refresh_token_expires_in"] = c.signIns.lifetime
	}
	return out
}

// sessionFits checks that a Session can be signed in to account; false means it was answered.
func (c *fakeCompany) sessionFits(w http.ResponseWriter, id, account string) bool {
	switch have := c.signIns.accounts[id]; {
	case id == "":
		oauthError(w, 400, "invalid_request")
	case c.ended:
		c.ended = false
		oauthError(w, 400, "invalid_session")
	case have != "" && have != account:
		oauthError(w, 400, "account_mismatch")
	default:
		return true
	}
	return false
}

// only refuses a form with other parameters than those of the draft's example.
func (c *fakeCompany) only(form url.Values, names ...string) {
	names = append(names, "client_id", "client_assertion_type", "client_assertion")
	for name := range form {
		if !slices.Contains(names, name) {
			c.t.Errorf("unexpected parameter %s", name)
		}
	}
}

func (c *fakeCompany) codeGrant(w http.ResponseWriter, form url.Values, proof dpop.VerifiedProof) {
	c.only(form, "grant_type", "code", "redirect_uri", "code_verifier", "session_id")
	a := c.signIns.codes[form.Get("code")]
	hash := sha256.Sum256([]byte(form.Get("code_verifier")))
	if a == nil || a.used || a.redirect != form.Get("redirect_uri") || a.challenge != base64.RawURLEncoding.EncodeToString(hash[:]) {
		oauthError(w, 400, "invalid_grant")
		return
	}
	if !c.sessionFits(w, form.Get("session_id"), a.account) {
		return
	}
	a.used = true
	writeJSON(w, 200, c.signInSession(form.Get("session_id"), a.account, a.scope, proof.JKT()))
}

func (c *fakeCompany) deviceAuthorization(w http.ResponseWriter, r *http.Request, form url.Values) {
	if !c.client(w, r, form) {
		return
	}
	c.only(form, "scope")
	if r.Header.Get("DPoP") != "" || form.Get("scope") == "" {
		c.t.Errorf("device authorization with a proof, or without scope")
	}
	c.signIns.deviceCode, c.signIns.deviceScope = "pdc_"+randomText(24), form.Get("scope")
	out := maps.Clone(c.signIns.device)
	out["device_code"] = c.signIns.deviceCode
	writeJSON(w, 200, out)
}

func (c *fakeCompany) deviceGrant(w http.ResponseWriter, form url.Values, proof dpop.VerifiedProof) {
	c.only(form, "grant_type", "device_code", "session_id")
	c.signIns.polls = append(c.signIns.polls, c.clock.Now())
	if form.Get("device_code") != c.signIns.deviceCode {
		oauthError(w, 400, "invalid_grant")
		return
	}
	if len(c.signIns.deviceAnswers) > 0 {
		code := c.signIns.deviceAnswers[0]
		c.signIns.deviceAnswers = c.signIns.deviceAnswers[1:]
		oauthError(w, 400, code)
		return
	}
	if c.sessionFits(w, form.Get("session_id"), c.signIns.account) {
		writeJSON(w, 200, c.signInSession(form.Get("session_id"), c.signIns.account, c.signIns.deviceScope, proof.JKT()))
	}
}

func (c *fakeCompany) refreshGrant(w http.ResponseWriter, form url.Values, proof dpop.VerifiedProof) {
	c.only(form, "grant_type", "refresh_token", "session_id", "scope")
	token := form.Get("refresh_token")
	g := c.signIns.grants[token]
	if g == nil || g.over {
		oauthError(w, 400, "invalid_grant")
		return
	}
	scope := g.scope
	if form.Has("scope") {
		scope = form.Get("scope")
		for name := range strings.FieldsSeq(scope) {
			if !slices.Contains(strings.Fields(g.scope), name) {
				oauthError(w, 400, "invalid_scope")
				return
			}
		}
	}
	id := form.Get("session_id")
	if id == "" {
		id = c.newSession()
	} else if !c.sessionFits(w, id, g.account) {
		return
	}
	c.signIns.accounts[id] = g.account
	next := ""
	if c.signIns.rotate {
		next = "pat_" + randomText(24)
		c.signIns.grants[next] = &grant{account: g.account, scope: g.scope}
		g.over = true // no grace: a second use is refused at once
		token = next
	}
	out := c.sessionToken(id, proof.JKT(), token)
	out["scope"] = scope
	if next != "" {
		out["refresh_token"] = next
	}
	writeJSON(w, 200, out)
}

func (c *fakeCompany) revoke(w http.ResponseWriter, r *http.Request, form url.Values) {
	if !c.client(w, r, form) {
		return
	}
	c.only(form, "token", "token_type_hint")
	if r.Header.Get("DPoP") != "" || form.Get("token_type_hint") != "refresh_token" {
		c.t.Errorf("revocation with a proof, or without the hint")
	}
	if g := c.signIns.grants[form.Get("token")]; g != nil {
		g.over = true
	}
	w.WriteHeader(http.StatusOK)
}

func (c *fakeCompany) mediated(w http.ResponseWriter, r *http.Request, body []byte) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
	if c.tokens[token] == "" || c.revoked[token] {
		oauthError(w, 401, "invalid_token")
		return
	}
	proof, ok := c.proof(w, r, "https://"+r.Host+r.URL.Path, token, 401)
	if !ok {
		return
	}
	var in struct {
		Scope       string            `json:"scope"`
		Credentials map[string]string `json:"credentials"`
		Code        string            `json:"code"`
	}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || r.Header.Get("Content-Type") != jsonType || r.Method != http.MethodPost {
		c.t.Errorf("mediated request: %v", err)
	}
	session := c.signIns.sessions[token]
	id, second := strings.CutPrefix(r.URL.Path, "/poppy/sign-in/")
	switch {
	case second && (in.Credentials != nil || in.Scope != ""):
		c.t.Errorf("the second step repeats the first")
	case second && c.signIns.pending[id] != session:
		writeJSON(w, 404, map[string]any{"error": "sign_in_not_found"})
	case second && in.Code == "late":
		writeJSON(w, 200, map[string]any{"status": "expired"})
	case second && in.Code != c.signIns.code:
		if c.signIns.codeTries--; c.signIns.codeTries <= 0 {
			writeJSON(w, 200, map[string]any{"status": "failed"})
			return
		}
		c.askCode(w, id)
	case !second && (len(in.Credentials) != 2 || in.Credentials["email"] == "" || in.Scope != "poppy:read"):
		c.t.Errorf("credentials refused")
		oauthError(w, 400, "invalid_request")
	case !second && in.Credentials["password"] != c.signIns.password:
		writeJSON(w, 200, map[string]any{"status": "failed"})
	case !second && c.signIns.code != "":
		id := "sgn_" + randomText(9)
		c.signIns.pending[id] = session
		c.askCode(w, id)
	case c.sessionFits(w, session, c.signIns.account):
		out := c.signInSession(session, c.signIns.account, "poppy:read", proof.JKT())
		out["status"] = "complete"
		writeJSON(w, 200, out)
	}
}

func (c *fakeCompany) askCode(w http.ResponseWriter, id string) {
	writeJSON(w, 200, map[string]any{
		"status": "code_required", "sign_in_id": id, "code": map[string]any{"sent_to": "Text to the phone number ending in 71"},
		"expires_at": c.clock.Now().Add(10 * time.Minute).Format(time.RFC3339),
	})
}
