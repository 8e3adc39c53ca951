package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

const tokenAt = "auth.shop.example/oauth/token"

func TestSession_StartsAndIsUsedAgain(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	first, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, "ses_1", first.ID)
	require.False(t, first.SignedIn)

	again, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Len(t, c.requests(tokenAt), 1)

	form := c.requests(tokenAt)[0].form
	require.Equal(t, grantJWTBearer, form.Get("grant_type"))
	require.False(t, form.Has("session_id"))
	require.Equal(t, formType, c.requests(tokenAt)[0].header.Get("Content-Type"))
}

func TestSession_NewOnWish(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	for range 2 {
		_, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{New: true})
		require.NoError(t, err)
	}
	require.Len(t, c.requests(tokenAt), 2)
	require.False(t, c.requests(tokenAt)[1].form.Has("session_id"))
}

func TestSession_RenewsBeforeItEnds(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	first, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	c.clock.Advance(time.Hour - expiryMargin)
	second, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, first.ID, second.ID)
	require.Equal(t, first.UserID, second.UserID)
	require.Equal(t, first.ID, c.requests(tokenAt)[1].form.Get("session_id"))
	require.NotEqual(t, c.requests(tokenAt)[0].form.Get("assertion"), c.requests(tokenAt)[1].form.Get("assertion"))
}

func TestSession_StartsAnewAfterInvalidSession(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	c.ended = true
	c.clock.Advance(2 * time.Hour)
	s, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, "ses_2", s.ID)
	require.Len(t, c.requests(tokenAt), 3)
}

func TestSession_UserIDIsRandomAndOfOneIssuer(t *testing.T) {
	dir := t.TempDir()
	one, err := openRelation(dir, "me", shopIssuer)
	require.NoError(t, err)
	same, err := openRelation(dir, "me", shopIssuer)
	require.NoError(t, err)
	other, err := openRelation(dir, "me", "https://auth.other.example")
	require.NoError(t, err)
	person, err := openRelation(dir, "partner", shopIssuer)
	require.NoError(t, err)

	require.Equal(t, one.UserID, same.UserID)
	require.Equal(t, one.DPoPKey, same.DPoPKey)
	seen := map[string]bool{}
	for _, r := range []*relation{one, other, person} {
		require.Regexp(t, `^usr_[A-Za-z0-9_-]{24}$`, r.UserID)
		require.False(t, seen[r.UserID] || seen[r.DPoPKey])
		seen[r.UserID], seen[r.DPoPKey] = true, true
	}
	info, err := os.Stat(one.file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSession_GivesTheNonceThatIsAskedFor(t *testing.T) {
	c := newFakeCompany(t)
	c.nonce = "nonce-1"
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Len(t, c.requests(tokenAt), 2, "once without, once with")

	_, err = c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{New: true})
	require.NoError(t, err)
	require.Len(t, c.requests(tokenAt), 3, "the next run knows the nonce")
}

func TestSession_DoesNotLoopOnNonces(t *testing.T) {
	c := newFakeCompany(t)
	c.routes[tokenAt] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("DPoP-Nonce", randomText(8))
		oauthError(w, 400, "use_dpop_nonce")
	}
	_, err := c.agent(t.TempDir(), Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.ErrorContains(t, err, "use_dpop_nonce")
	require.Equal(t, ExitRefused, ExitCode(err))
	require.Len(t, c.requests(tokenAt), 2)
}

func TestSession_WaitsAsRetryAfterSays(t *testing.T) {
	for name, header := range map[string]func(time.Time) string{
		"seconds": func(time.Time) string { return "7" },
		"date":    func(now time.Time) string { return now.Add(7 * time.Second).Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.routes[tokenAt] = func(w http.ResponseWriter, _ *http.Request) {
				delete(c.routes, tokenAt)
				w.Header().Set("Retry-After", header(c.clock.Now()))
				writeJSON(w, 429, map[string]any{"error": "rate_limited"})
			}
			_, err := c.agent(t.TempDir(), Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
			require.NoError(t, err)
			require.Equal(t, []time.Duration{7 * time.Second}, c.clock.waits)
			sent := c.requests(tokenAt)
			require.Len(t, sent, 2)
			require.NotEqual(t, sent[0].header.Get("Dpop"), sent[1].header.Get("Dpop"), "the repeated request has a proof of its own")
		})
	}
}

func TestSession_NextRunWaitsAsWell(t *testing.T) {
	c := newFakeCompany(t)
	c.routes[tokenAt] = func(w http.ResponseWriter, _ *http.Request) {
		delete(c.routes, tokenAt)
		w.Header().Set("Retry-After", "3600")
		writeJSON(w, 429, map[string]any{"error": "rate_limited"})
	}
	dir := t.TempDir()
	// The context's deadline is far away, and a minute away by the agent's clock.
	c.clock.Advance(10 * 365 * 24 * time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), c.clock.Now().Add(time.Minute))
	defer cancel()
	for range 2 {
		_, err := c.agent(dir, Discard{}).Session(ctx, shopDomain, SessionOptions{})
		require.ErrorContains(t, err, "it may be sent again at")
		require.Equal(t, ExitRefused, ExitCode(err))
	}
	require.Len(t, c.requests(tokenAt), 1)
	require.Empty(t, c.clock.waits)
}

func TestSession_AsksForTheResourceOfTheEndpoint(t *testing.T) {
	c := newFakeCompany(t)
	c.document["agent"] = map[string]any{"protocols": []any{map[string]any{"type": "poppy", "endpoint": shopTalk, "resource": shopTalk}}}
	_, err := c.agent(t.TempDir(), Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, shopTalk, c.requests(tokenAt)[0].form.Get("resource"))
}

func TestParseTokenAnswer(t *testing.T) {
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	good := `{"access_token":"a.b","token_type":"dpop","expires_in":60,"scope":"","session_id":"ses_1","signed_in":false,"x":1}`
	s, err := parseTokenAnswer([]byte(good), "ses_1", now)
	require.NoError(t, err)
	require.Equal(t, session{ID: "ses_1", Token: "a.b", Expires: now.Add(time.Minute)}, s)
	for name, change := range map[string][2]string{
		"bearer":            {`"dpop"`, `"Bearer"`},
		"no token":          {`"a.b"`, `""`},
		"header injection":  {`"a.b"`, `"a\r\nX: y"`},
		"no life":           {`60`, `0`},
		"life is a string":  {`60`, `"60"`},
		"no session":        {`"ses_1"`, `""`},
		"another session":   {`"ses_1"`, `"ses_2"`},
		"signed_in missing": {`"signed_in":false,`, ``},
		"repeated member":   {`"x":1`, `"scope":"a"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseTokenAnswer([]byte(strings.Replace(good, change[0], change[1], 1)), "ses_1", now)
			require.Error(t, err)
		})
	}
}

func TestInitIdentity_KeepsItsKeyAndClientID(t *testing.T) {
	dir := t.TempDir()
	id, err := InitIdentity(dir, testClient, Profile{})
	require.NoError(t, err)
	again, err := InitIdentity(dir, testClient, Profile{Name: "New name"})
	require.NoError(t, err)
	require.Equal(t, id.KeySet, again.KeySet)
	loaded, err := LoadIdentity(dir, "")
	require.NoError(t, err)
	require.Equal(t, again.Document, loaded.Document)
	require.NotContains(t, string(id.KeySet), `"d"`)
	clientID, err := cimd.ParseClientID(testClient)
	require.NoError(t, err)
	doc, err := cimd.ParseDocument(clientID, jsonType, loaded.Document)
	require.NoError(t, err)
	require.Equal(t, "New name", doc.Name)
	_, err = jose.ParseKeySet(loaded.KeySet)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	_, err = InitIdentity(dir, "https://other.example/agent.json", Profile{})
	require.ErrorContains(t, err, "already holds")
	_, err = LoadIdentity(dir, "https://other.example/agent.json")
	require.ErrorContains(t, err, "not https://other.example")
}

func TestInitIdentity_RefusesBadClientIDs(t *testing.T) {
	for _, id := range []string{
		"", "http://agent.example/agent.json", "https://agent.example", "https://agent.example/", "agent.example/agent.json",
		"https://agent.example/agent.json#x", "https://me:pw@agent.example/agent.json", "https://agent.example/a/../agent.json",
	} {
		_, err := InitIdentity(t.TempDir(), id, Profile{})
		require.Error(t, err, id)
		require.Equal(t, ExitUsage, ExitCode(err), id)
	}
	_, err := InitIdentity(t.TempDir(), testClient, Profile{RedirectURIs: []string{"https://other.example/cb"}})
	require.ErrorContains(t, err, "redirect URI")
}

func TestHeaders_AreForOneRequestToAnAPI(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	first, err := c.agent(dir, Discard{}).Headers(t.Context(), shopDomain, "GET", "https://api.shop.example/orders/7?page=2", SessionOptions{})
	require.NoError(t, err)
	second, err := c.agent(dir, Discard{}).Headers(t.Context(), shopDomain, "GET", "https://api.shop.example/orders/7?page=2", SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, first.Get("Authorization"), second.Get("Authorization"), "one Session")
	require.NotEqual(t, first.Get("DPoP"), second.Get("DPoP"))
	scheme, token, _ := strings.Cut(first.Get("Authorization"), " ")
	require.Equal(t, "DPoP", scheme)
	_, err = dpop.CheckProof(first.Get("DPoP"), dpop.Request{Method: "GET", URL: "https://api.shop.example/orders/7", TokenHash: dpop.TokenHash(token)},
		c.clock.Now(), dpop.Policy{MaxAge: time.Minute, MaxFuture: time.Minute})
	require.NoError(t, err)

	for _, wrong := range [][2]string{{"get", "https://api.shop.example/"}, {"GET", "http://api.shop.example/"}, {"GET", "orders"}} {
		_, err = c.agent(dir, Discard{}).Headers(t.Context(), shopDomain, wrong[0], wrong[1], SessionOptions{})
		require.Equal(t, ExitUsage, ExitCode(err), wrong)
	}
}
