package agent

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// fakePerson is a User who does what the test says.
type fakePerson struct {
	shown   []string
	opened  []string
	asked   []string
	secret  map[string]bool
	browse  func(link string) error
	answers []string
	ask     func(label string) (string, error)
}

func (p *fakePerson) Show(text string) { p.shown = append(p.shown, text) }

func (p *fakePerson) Browse(_ context.Context, link string) error {
	p.opened = append(p.opened, link)
	if p.browse == nil {
		return errors.New("no browser")
	}
	return p.browse(link)
}

func (p *fakePerson) Ask(_ context.Context, label string, secret bool) (string, error) {
	if p.secret == nil {
		p.secret = map[string]bool{}
	}
	p.asked, p.secret[label] = append(p.asked, label), secret
	if p.ask != nil {
		return p.ask(label)
	}
	if len(p.answers) == 0 {
		return "", errors.New("nobody is there")
	}
	next := p.answers[0]
	p.answers = p.answers[1:]
	return next, nil
}

// linkOf returns the first link that the User was shown.
func (p *fakePerson) linkOf() string {
	for _, text := range p.shown {
		for word := range strings.FieldsSeq(text) {
			if strings.HasPrefix(word, "https://") {
				return word
			}
		}
	}
	return ""
}

// pasting is a User who signs in in their browser and pastes where they end up, as
// change leaves it.
func (c *fakeCompany) pasting(change func(string) string) *fakePerson {
	p := &fakePerson{}
	p.ask = func(string) (string, error) {
		back := c.authorize(p.linkOf())
		if change != nil {
			back = change(back)
		}
		return back, nil
	}
	return p
}

// signIn signs in by Direct Sign-In and fails the test where that fails.
func (c *fakeCompany) signIn(dir string, opts SignInOptions) SignInResult {
	c.t.Helper()
	r, err := c.agent(dir, Discard{}).SignIn(c.t.Context(), shopDomain, opts, c.pasting(nil))
	require.NoError(c.t, err)
	return r
}

// kept returns the Account Token in dir, nil where there is none.
func kept(t *testing.T, dir string) *account {
	t.Helper()
	a, err := loadAccount(accountFile(dir, "me", shopIssuer))
	require.NoError(t, err)
	return a
}

func grants(c *fakeCompany, kind string) []seenRequest {
	var out []seenRequest
	for _, r := range c.requests(tokenAt) {
		if r.form.Get("grant_type") == kind {
			out = append(out, r)
		}
	}
	return out
}

func TestSignIn_DirectWithAPastedAddress(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#2", "poppy-0.1/4.4#23", "poppy-0.1/4.4#33", "poppy-0.1/4.5#2", "poppy-0.1/4.5#4", "poppy-0.1/4.5#5",
		"poppy-0.1/4.5#6", "poppy-0.1/4.5#14", "poppy-0.1/4.5#16", "poppy-0.1/4.5#17", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.8#22")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect, SignInDevice)
	c.signIns.lifetime = 2592000
	c.signIns.granted = "poppy:read"
	dir := t.TempDir()
	r := c.signIn(dir, SignInOptions{Language: "de"})
	require.Equal(t, SignInDirect, r.Type)
	require.Equal(t, []string{"poppy:read", "poppy:write"}, r.Requested)
	require.Equal(t, []string{"poppy:read"}, r.Granted)
	require.Equal(t, []string{"poppy:write"}, r.Missing())
	require.Equal(t, c.clock.Now().Add(30*24*time.Hour), r.Expires)
	require.True(t, r.Session.SignedIn)
	require.Equal(t, "ses_1", r.Session.ID, "the Session that there was")

	form := grants(c, grantAuthorizationCode)[0].form
	require.Equal(t, "ses_1", form.Get("session_id"))
	require.Len(t, form.Get("code_verifier"), 43)
	info, err := os.Stat(accountFile(dir, "me", shopIssuer))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, "poppy:read", kept(t, dir).Scope)
}

func TestSignIn_DirectComesBackToAListener(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#4", "poppy-0.1/4.5#16")
	clausetest.Refuses(t, "poppy-0.1/4.5#16")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	a := c.agent(t.TempDir(), Discard{})
	ln, err := listen(t.Context(), "127.0.0.1:0", c.ca.ServerConfig(func(string) bool { return true }))
	require.NoError(t, err)
	a.callback = func(context.Context) (net.Listener, error) { return ln, nil }
	get := func(at string) (string, error) {
		page, _, err := fetchFrom(c, ln.Addr().String(), at)
		return page, err
	}
	p := &fakePerson{browse: func(link string) error {
		// What anybody may send the browser to changes nothing.
		for _, foreign := range []string{testRedirect, testRedirect + "?code=x&state=guess&iss=" + url.QueryEscape(shopIssuer), "https://agent.example/"} {
			if page, err := get(foreign); err != nil || strings.Contains(page, "You can close") {
				t.Errorf("%s: %v %s", foreign, err, page)
			}
		}
		page, err := get(c.authorize(link))
		if !strings.Contains(page, "You can close this page") {
			t.Errorf("page: %s", page)
		}
		return err
	}}
	r, err := a.SignIn(t.Context(), shopDomain, SignInOptions{Browser: true}, p)
	require.NoError(t, err)
	require.Equal(t, SignInDirect, r.Type)
	require.Len(t, p.opened, 1)
	require.Contains(t, strings.Join(p.shown, ""), p.opened[0], "the link is shown as well")
	_, err = get(testRedirect)
	require.Error(t, err, "nothing listens any more")
}

func TestSignIn_DirectWaitsNoLongerThanTheCommand(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	for name, tc := range map[string]struct {
		ctx   func() (context.Context, context.CancelFunc)
		words string
	}{
		"time": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 300*time.Millisecond)
		}, "not finished in time"},
		"ctrl-c": {func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }, "stopped; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.agent(t.TempDir(), Discard{})
			a.callback = func(ctx context.Context) (net.Listener, error) {
				return listen(ctx, "127.0.0.1:0", c.ca.ServerConfig(func(string) bool { return true }))
			}
			ctx, cancel := tc.ctx()
			defer cancel()
			p := &fakePerson{browse: func(string) error {
				if name == "ctrl-c" {
					cancel()
				}
				return nil
			}}
			_, err := a.SignIn(ctx, shopDomain, SignInOptions{Browser: true}, p)
			require.ErrorContains(t, err, tc.words)
			require.Equal(t, ExitNoAnswer, ExitCode(err))
		})
	}
}

func TestSignIn_DirectRefusesForeignAnswers(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#16", "poppy-0.1/4.5#17")
	edit := func(do func(url.Values)) func(string) string {
		return func(back string) string {
			at, raw, _ := strings.Cut(back, "?")
			q, _ := url.ParseQuery(raw)
			do(q)
			return at + "?" + q.Encode()
		}
	}
	for name, tc := range map[string]struct {
		change func(string) string
		words  string
	}{
		"another state":       {edit(func(q url.Values) { q.Set("state", "guess") }), "state is not that"},
		"no state":            {edit(func(q url.Values) { q.Del("state") }), "state is not that"},
		"two states":          {edit(func(q url.Values) { q.Add("state", "x") }), "state is not that"},
		"another issuer":      {edit(func(q url.Values) { q.Set("iss", "https://auth.other.example") }), "its iss is"},
		"a slash more":        {edit(func(q url.Values) { q.Set("iss", shopIssuer+"/") }), "its iss is"},
		"another case":        {edit(func(q url.Values) { q.Set("iss", "https://AUTH.shop.example") }), "its iss is"},
		"no issuer":           {edit(func(q url.Values) { q.Del("iss") }), "its iss is"},
		"error, other issuer": {edit(func(q url.Values) { q.Del("code"); q.Set("error", "access_denied"); q.Set("iss", "https://x.example") }), "its iss is"},
		"two codes":           {edit(func(q url.Values) { q.Add("code", "x") }), "has no code"},
		"no code":             {edit(func(q url.Values) { q.Del("code") }), "has no code"},
		"declined":            {edit(func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") }), "declined"},
		"another error":       {edit(func(q url.Values) { q.Del("code"); q.Set("error", "invalid_scope") }), "invalid_scope"},
		"another page":        {func(s string) string { return strings.Replace(s, "/callback", "/other", 1) }, "not an address at"},
		"another host":        {func(s string) string { return strings.Replace(s, "agent.example", "evil.example", 1) }, "not an address at"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInDirect)
			dir := t.TempDir()
			_, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, c.pasting(tc.change))
			require.ErrorContains(t, err, tc.words)
			require.Empty(t, grants(c, grantAuthorizationCode), "no code is sent anywhere")
			require.Nil(t, kept(t, dir))
		})
	}
}

func TestSignIn_EverySignInHasItsOwnStateAndVerifier(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#4")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	for range 2 {
		c.signIn(dir, SignInOptions{Again: true})
	}
	sent := grants(c, grantAuthorizationCode)
	require.NotEqual(t, sent[0].form.Get("code_verifier"), sent[1].form.Get("code_verifier"))
}

func TestSignIn_ChoosesTheType(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#2", "poppy-0.1/4.4#19")
	clausetest.Refuses(t, "poppy-0.1/4.4#2", "poppy-0.1/4.4#19")
	types := func(list ...offer) Company { return Company{name: "Shop", asked: shopDomain, offers: list} }
	direct := offer{kind: SignInDirect, scopes: []string{"poppy:read", "poppy:write", "addresses"}}
	device := offer{kind: SignInDevice, scopes: []string{"orders"}}
	mediated := offer{kind: SignInMediated, scopes: []string{"poppy:read"}}
	for name, tc := range map[string]struct {
		company   Company
		kind      string
		scope     []string
		redirects bool
		want      string
		asks      []string
	}{
		"the first of all":            {types(direct, device, mediated), "", nil, true, SignInDirect, direct.scopes},
		"what a redirect is not for":  {types(direct, device, mediated), "", nil, false, SignInDevice, []string{"orders"}},
		"by scope":                    {types(direct, device, mediated), "", []string{"orders"}, true, SignInDevice, []string{"orders"}},
		"without a redirect by scope": {types(direct, device, mediated), "", []string{"poppy:read"}, false, SignInMediated, []string{"poppy:read"}},
		"by name":                     {types(direct, device, mediated), "mediated", nil, true, SignInMediated, []string{"poppy:read"}},
		"only own scopes":             {types(device), "", nil, true, SignInDevice, []string{"orders"}},
		"nothing offered":             {types(), "", nil, true, "", nil},
		"unknown type":                {types(direct), "magic", nil, true, "", nil},
		"type not offered":            {types(direct), "device", nil, true, "", nil},
		"scope not offered":           {types(direct, device), "", []string{"payments"}, true, "", nil},
		"scope not of the type":       {types(direct, device), "device", []string{"poppy:read"}, true, "", nil},
		"direct without a redirect":   {types(direct), "direct", nil, false, "", nil},
		"scopes of two types":         {types(direct, device), "", []string{"orders", "poppy:read"}, true, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, asks, err := tc.company.chooseOffer(tc.kind, tc.scope, tc.redirects)
			if tc.want == "" {
				require.Equal(t, ExitUsage, ExitCode(err))
				require.ErrorContains(t, err, "Shop offers ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, o.kind)
			require.Equal(t, tc.asks, []string(asks))
		})
	}
}

func TestSignIn_SkipsTypesItCantUse(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDevice)
	auth := c.document["auth"].(map[string]any)
	auth["direct"] = map[string]any{"scopes": []any{}}
	for name, mediated := range map[string]any{
		"a number":       7,
		"no endpoint":    map[string]any{"scopes": []string{"poppy:read"}, "fields": []any{map[string]any{"name": "a", "label": "A"}}},
		"plain http":     map[string]any{"endpoint": "http://auth.shop.example/x", "scopes": []string{"poppy:read"}, "fields": []any{map[string]any{"name": "a", "label": "A"}}},
		"no fields":      map[string]any{"endpoint": shopMediated, "scopes": []string{"poppy:read"}},
		"one name twice": map[string]any{"endpoint": shopMediated, "scopes": []string{"poppy:read"}, "fields": []any{map[string]any{"name": "a", "label": "A"}, map[string]any{"name": "a", "label": "B"}}},
	} {
		t.Run(name, func(t *testing.T) {
			auth["mediated"] = mediated
			steps := &collect{}
			company, err := c.agent(t.TempDir(), steps).Discover(t.Context(), shopDomain)
			require.NoError(t, err)
			require.Len(t, company.offers, 1)
			require.Contains(t, steps.titled("Skip sign-in types")[0].Detail, "direct: it lists no usable scopes, mediated: ")
		})
	}
}

func TestSignIn_UsesTheAccountTokenThatCoversTheTask(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#47", "poppy-0.1/4.7#27", "poppy-0.1/4.8#3", "poppy-0.1/4.8#6")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{})
	p := &fakePerson{}
	r, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{Scope: "poppy:read"}, p)
	require.NoError(t, err)
	require.Empty(t, r.Type)
	require.Empty(t, p.asked)
	require.Empty(t, p.shown)
	require.Len(t, grants(c, grantRefreshToken), 1, "whether it still works was asked")
}

func TestSignIn_AsksAgainWhereTheAccountTokenIsNoGood(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#47")
	clausetest.Covers(t, "poppy-0.1/4.8#21")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{})
	c.signIns.grants[kept(t, dir).Token].over = true
	require.Equal(t, SignInDirect, c.signIn(dir, SignInOptions{}).Type)
}

func TestSignIn_MoreAccessReplacesTheAccountToken(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#27", "poppy-0.1/4.4#28", "poppy-0.1/4.4#29", "poppy-0.1/4.9#2", "poppy-0.1/4.9#3", "poppy-0.1/4.9#4")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{Scope: "poppy:read"})
	old := kept(t, dir).Token
	r := c.signIn(dir, SignInOptions{Scope: "poppy:write"})
	require.Equal(t, []string{"poppy:write", "poppy:read"}, r.Requested, "what the old one has as well")
	require.NotEqual(t, old, kept(t, dir).Token)
	require.True(t, c.signIns.grants[old].over)
	require.Equal(t, old, c.requests(revokeAt)[0].form.Get("token"))
	require.False(t, c.signIns.grants[kept(t, dir).Token].over)
}

func TestSignIn_FailureLeavesTheAccountTokenAlone(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#28", "poppy-0.1/4.4#29")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{Scope: "poppy:read"})
	old := kept(t, dir)
	_, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{Scope: "poppy:write"}, c.pasting(func(string) string { return testRedirect + "?state=x" }))
	require.Error(t, err)
	require.Equal(t, old, kept(t, dir))
	require.Empty(t, c.requests(revokeAt))
}

func TestSignIn_AnotherAccountGetsAnotherSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#42", "poppy-0.1/4.4#43")
	for _, kind := range []string{SignInDirect, SignInDevice, SignInMediated} {
		t.Run(kind, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInDirect, SignInDevice, SignInMediated)
			dir := t.TempDir()
			c.signIn(dir, SignInOptions{})
			c.signIns.account = "acc_work"
			p := c.pasting(nil)
			if kind == SignInMediated {
				p = &fakePerson{answers: []string{"mia@work.example", c.signIns.password}}
			}
			r, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{Type: kind, Again: true}, p)
			require.NoError(t, err)
			require.Equal(t, "ses_2", r.Session.ID)
			require.Equal(t, "acc_work", c.signIns.accounts["ses_2"])
			require.Equal(t, "acc_mia", c.signIns.accounts["ses_1"])
		})
	}
}

func TestSignIn_NewSessionWhereTheOldOneIsOver(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	c.ended = true
	require.Equal(t, "ses_2", c.signIn(dir, SignInOptions{}).Session.ID)
}

func TestSignIn_IncompleteAnswers(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#33")
	for name, change := range map[string]func(map[string]any){
		"no Account Token": func(m map[string]any) { delete(m, "refresh_token") },
		"no scope":         func(m map[string]any) { delete(m, "scope") },
		"empty scope":      func(m map[string]any) { m["scope"] = "" },
		"signed out":       func(m map[string]any) { m["signed_in"] = false },
		"another Session":  func(m map[string]any) { m["session_id"] = "ses_9" },
		"bearer":           func(m map[string]any) { m["token_type"] = "Bearer" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInDirect)
			dir := t.TempDir()
			p := c.pasting(func(back string) string {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.routes[tokenAt] = func(w http.ResponseWriter, _ *http.Request) {
					out := c.signInSession("ses_1", "acc_mia", "poppy:read", "")
					change(out)
					writeJSON(w, 200, out)
				}
				return back
			})
			_, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, p)
			require.Equal(t, ExitRefused, ExitCode(err))
			require.Nil(t, kept(t, dir))
		})
	}
}

func TestSignIn_MoreThanAskedForIsSaid(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	c.signIns.granted = "poppy:read payments"
	steps := &collect{}
	_, err := c.agent(t.TempDir(), steps).SignIn(t.Context(), shopDomain, SignInOptions{}, c.pasting(nil))
	require.NoError(t, err)
	require.False(t, steps.titled("The granted scopes are among")[0].OK)
}

func TestSignIn_SecretsAreNeverShown(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#23", "poppy-0.1/4.6#8")
	clausetest.Refuses(t, "poppy-0.1/4.8#23")
	for _, kind := range []string{SignInDirect, SignInDevice} {
		t.Run(kind, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(kind)
			c.signIns.rotate = true
			dir := t.TempDir()
			var out bytes.Buffer
			p := c.pasting(nil)
			a := c.agent(dir, NewJSONReporter(&out))
			_, err := a.SignIn(t.Context(), shopDomain, SignInOptions{}, p)
			require.NoError(t, err)
			_, err = a.Refresh(t.Context(), shopDomain, "poppy:read")
			require.NoError(t, err)
			_, err = a.Talk(t.Context(), shopDomain, "hello", human())
			require.NoError(t, err)
			_, err = a.SignOut(t.Context(), shopDomain)
			require.NoError(t, err)
			text := out.String() + strings.Join(p.shown, "\n")
			var secrets []string
			for token := range c.signIns.grants {
				secrets = append(secrets, token)
			}
			for code := range c.signIns.codes {
				secrets = append(secrets, code)
			}
			for token := range c.tokens {
				secrets = append(secrets, token)
			}
			for _, r := range c.requests(tokenAt) {
				if v := r.form.Get("code_verifier"); v != "" {
					secrets = append(secrets, v)
				}
			}
			require.GreaterOrEqual(t, len(secrets), 5)
			for _, s := range secrets {
				require.NotContains(t, text, s)
				for _, r := range c.seen {
					require.NotContains(t, r.path+r.query, s, "no token in a URL")
				}
				for _, r := range c.requests(talkAt) {
					require.NotContains(t, r.body, s)
				}
			}
		})
	}
}
