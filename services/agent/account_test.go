package agent

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// signedIn is a directory with an Account Token for both broad scopes.
func signedIn(t *testing.T) (*fakeCompany, string) {
	t.Helper()
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{})
	return c, dir
}

func TestTalk_GoesOnSignedIn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#27", "poppy-0.1/4.8#2", "poppy-0.1/4.8#3", "poppy-0.1/4.8#6")
	c, dir := signedIn(t)
	c.signIns.needed = true
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	require.Empty(t, grants(c, grantRefreshToken), "the token of the sign-in is still good")
	c.clock.Advance(2 * time.Hour)
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	sent := grants(c, grantRefreshToken)
	require.Len(t, sent, 1)
	require.Equal(t, "ses_1", sent[0].form.Get("session_id"))
	require.False(t, sent[0].form.Has("assertion"))
}

func TestTalk_SignsItsSessionIn(t *testing.T) {
	c, dir := signedIn(t)
	opts := human()
	opts.SignedOut = true
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", opts)
	require.NoError(t, err)
	require.Empty(t, grants(c, grantRefreshToken), "--signed-out leaves the Account Token alone")
	require.False(t, c.signedIn(newest(c)))
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Equal(t, "ses_1", grants(c, grantRefreshToken)[0].form.Get("session_id"))
	require.True(t, c.signedIn(newest(c)))
}

// newest is the token of the last conversation request.
func newest(c *fakeCompany) string {
	token := ""
	for _, r := range c.seen {
		if strings.HasPrefix(r.host+r.path, talkAt) {
			token, _ = strings.CutPrefix(r.header.Get("Authorization"), "DPoP ")
		}
	}
	return token
}

func TestTalk_GoesOnSignedOutAfterDisconnection(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#20", "poppy-0.1/4.8#21")
	for name, end := range map[string]func(*fakeCompany, string){
		"at renewal": func(c *fakeCompany, _ string) { c.clock.Advance(2 * time.Hour) },
		"at a request with invalid_token": func(c *fakeCompany, dir string) {
			rel, _ := openRelation(dir, "me", shopIssuer)
			c.revoked[rel.Session.Token] = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := signedIn(t)
			c.signIns.grants[kept(t, dir).Token].over = true
			end(c, dir)
			steps := &collect{}
			reply, err := c.agent(dir, steps).Talk(t.Context(), shopDomain, "hello", human())
			require.NoError(t, err)
			require.Len(t, reply.Messages, 1)
			require.Nil(t, kept(t, dir))
			said := steps.titled("Forget the Account Token and go on signed out")
			require.Len(t, said, 1)
			require.Contains(t, said[0].Detail, `poppyfield agent sign-in shop.example --scope "poppy:read poppy:write"`)
			require.Equal(t, "ses_1", c.signIns.sessions[newest(c)], "the Session lives on")
		})
	}
}

func TestTalk_SaysHowToSignIn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#21", "poppy-0.1/4.9#20")
	c, dir := signedIn(t)
	c.signIns.needed = true
	c.signIns.grants[kept(t, dir).Token].over = true
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "hello", human())
	require.ErrorContains(t, err, "sign_in_required")
	require.ErrorContains(t, err, "run: poppyfield agent sign-in shop.example")
	require.Len(t, c.requests(talkAt), 2, "once as signed in, once after the Account Token had turned out to be over")
	require.Nil(t, kept(t, dir))
}

func TestTalk_AuthorizationEvent(t *testing.T) {
	for scope, want := range map[string]string{
		"poppy:read poppy:write": `poppyfield agent sign-in shop.example --scope "poppy:read poppy:write"`,
		"":                       "poppyfield agent sign-in shop.example",
		`x"; rm -rf /; "`:        "poppyfield agent sign-in shop.example",
		"$(id)":                  "poppyfield agent sign-in shop.example",
	} {
		c := newFakeCompany(t)
		c.answer = func(int, string) []map[string]any {
			return []map[string]any{
				{"type": "authorization", "error": "insufficient_scope", "scope": scope},
				companySays("Please sign in."),
				{"type": "state", "status": "idle", "responder": "agent"},
			}
		}
		steps := &collect{}
		reply, err := c.agent(t.TempDir(), steps).Talk(t.Context(), shopDomain, "hello", human())
		require.NoError(t, err)
		require.Equal(t, want, reply.SignIn)
		require.Contains(t, steps.titled("The Company needs the User's account")[0].Detail, "run: "+want)
	}
}

func TestAccount_SessionOfAnotherAccount(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#42", "poppy-0.1/4.8#10", "poppy-0.1/4.8#11")
	clausetest.Refuses(t, "poppy-0.1/4.4#42")
	for name, change := range map[string]func(*fakeCompany){
		"account_mismatch": func(c *fakeCompany) { c.signIns.accounts["ses_1"] = "acc_other" },
		"invalid_session":  func(c *fakeCompany) { c.ended = true },
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := signedIn(t)
			change(c)
			c.clock.Advance(2 * time.Hour)
			s, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
			require.NoError(t, err)
			require.Equal(t, "ses_2", s.ID)
			require.True(t, s.SignedIn)
			require.False(t, grants(c, grantRefreshToken)[1].form.Has("session_id"))
		})
	}
}

func TestAccount_EndsWhenTheCompanySaid(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#37")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	c.signIns.lifetime = 7200
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{})
	c.clock.Advance(2 * time.Hour)
	list, err := c.agent(dir, Discard{}).Accounts("")
	require.NoError(t, err)
	require.True(t, list[0].Over)
	s, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.False(t, s.SignedIn)
	require.Empty(t, grants(c, grantRefreshToken))
	require.Nil(t, kept(t, dir))
}

func TestRefresh_NarrowsUntilToldOtherwise(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#14")
	clausetest.Refuses(t, "poppy-0.1/4.8#14")
	c, dir := signedIn(t)
	s, err := c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "poppy:read")
	require.NoError(t, err)
	require.Equal(t, "poppy:read", s.Scope)
	require.Equal(t, "poppy:read poppy:write", kept(t, dir).Scope, "the Account Token has what it had")

	c.clock.Advance(2 * time.Hour)
	s, err = c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	require.Equal(t, "poppy:read", s.Scope, "a renewal doesn't widen")

	_, err = c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "poppy:read payments")
	require.ErrorContains(t, err, "invalid_scope")
	s, err = c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "")
	require.NoError(t, err)
	require.Equal(t, "poppy:read poppy:write", s.Scope)
}

func TestRefresh_KeepsTheTokenThatReplacesTheOldOne(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#18")
	clausetest.Refuses(t, "poppy-0.1/4.8#18")
	c, dir := signedIn(t)
	c.signIns.rotate = true
	for range 3 {
		before := kept(t, dir).Token
		_, err := c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "")
		require.NoError(t, err)
		require.NotEqual(t, before, kept(t, dir).Token)
	}
	sent := map[string]bool{}
	for _, r := range grants(c, grantRefreshToken) {
		require.False(t, sent[r.form.Get("refresh_token")], "a replaced token is not used again")
		sent[r.form.Get("refresh_token")] = true
	}
}

func TestRefresh_KeepsTheNewTokenOfABadAnswer(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.8#18")
	c, dir := signedIn(t)
	c.routes[tokenAt] = func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]any{"refresh_token": "pat_next", "access_token": "x", "token_type": "Bearer"})
	}
	_, err := c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "")
	require.Error(t, err)
	require.Equal(t, "pat_next", kept(t, dir).Token)
	require.Equal(t, "poppy:read poppy:write", kept(t, dir).Scope)
}

func TestRefresh_NeedsASignIn(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect)
	for name, do := range map[string]func(*Agent) error{
		"refresh":  func(a *Agent) error { _, err := a.Refresh(t.Context(), shopDomain, ""); return err },
		"sign-out": func(a *Agent) error { _, err := a.SignOut(t.Context(), shopDomain); return err },
	} {
		err := do(c.agent(t.TempDir(), Discard{}))
		require.Equal(t, ExitUsage, ExitCode(err), name)
		require.ErrorContains(t, err, "you are not signed in at Shop; run: poppyfield agent sign-in shop.example")
	}
	c, dir := signedIn(t)
	c.signIns.grants[kept(t, dir).Token].over = true
	_, err := c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "")
	require.Equal(t, ExitRefused, ExitCode(err))
	require.ErrorContains(t, err, "is over; run: poppyfield agent sign-in")
}

func TestSignOut_RevokesAndGoesOnSignedOut(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#2", "poppy-0.1/4.9#3", "poppy-0.1/4.9#4", "poppy-0.1/4.9#8")
	c, dir := signedIn(t)
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	token := kept(t, dir).Token
	s, err := c.agent(dir, Discard{}).SignOut(t.Context(), shopDomain)
	require.NoError(t, err)
	require.Equal(t, "ses_1", s.ID)
	require.False(t, s.SignedIn)
	require.Equal(t, token, c.requests(revokeAt)[0].form.Get("token"))
	require.Nil(t, kept(t, dir))
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Len(t, c.requests(sendAt), 1, "the same conversation")
}

func TestSignOut_NewSessionWhereTheCompanyEndsThem(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#11")
	c, dir := signedIn(t)
	c.ended = true
	s, err := c.agent(dir, Discard{}).SignOut(t.Context(), shopDomain)
	require.NoError(t, err)
	require.Equal(t, "ses_2", s.ID)
}

func TestSignOut_KeepsATokenThatIsNotRevoked(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.9#2")
	c, dir := signedIn(t)
	c.routes[revokeAt] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 400, "unsupported_token_type") }
	_, err := c.agent(dir, Discard{}).SignOut(t.Context(), shopDomain)
	require.ErrorContains(t, err, "unsupported_token_type")
	require.NotNil(t, kept(t, dir))
}

func TestSession_NewOneLeavesTheAccountTokenAlone(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#15")
	c, dir := signedIn(t)
	s, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{New: true})
	require.NoError(t, err)
	require.Equal(t, "ses_2", s.ID)
	require.True(t, s.SignedIn)
	require.Empty(t, c.requests(revokeAt))
}

func TestAccounts_ListsWithoutTokens(t *testing.T) {
	c, dir := signedIn(t)
	a := c.agent(dir, Discard{})
	list, err := a.Accounts("")
	require.NoError(t, err)
	require.Equal(t, []AccountInfo{{
		Company: "Shop", Domain: shopDomain, Issuer: shopIssuer, Scope: "poppy:read poppy:write", Since: c.clock.Now(),
	}}, list)
	list, err = a.Accounts("other.example")
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = a.Accounts("not a domain")
	require.Equal(t, ExitUsage, ExitCode(err))
	require.NoError(t, os.WriteFile(accountFile(dir, "me", "https://x.example"), []byte("{"), 0o600))
	_, err = a.Accounts("")
	require.Equal(t, ExitUsage, ExitCode(err))
}

// TestAccount_RunsAtOnce has a Company that takes each Account Token once: whoever used
// an old one, or lost a new one, would be signed out.
func TestAccount_RunsAtOnce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#18")
	c, dir := signedIn(t)
	c.signIns.rotate = true
	agents := make([]*Agent, 8)
	for i := range agents {
		agents[i] = c.agent(dir, Discard{})
	}
	var wg sync.WaitGroup
	for _, a := range agents {
		wg.Go(func() {
			for range 3 {
				s, err := a.Refresh(t.Context(), shopDomain, "")
				if err != nil || !s.SignedIn {
					t.Errorf("%v %v", s, err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, grants(c, grantRefreshToken), 24)
	require.False(t, c.signIns.grants[kept(t, dir).Token].over)
}

// TestAccount_LockIsOfTheProcess shows that another process is kept out, and that its
// end, however it comes, lets the next one in.
func TestAccount_LockIsOfTheProcess(t *testing.T) {
	file := accountFile(t.TempDir(), "me", shopIssuer)
	if held := os.Getenv("POPPYFIELD_TEST_LOCK"); held != "" {
		_, err := openAccount(t.Context(), held)
		require.NoError(t, err)
		_, _ = os.Stdout.WriteString("held\n")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAccount_LockIsOfTheProcess$")
	cmd.Env = append(os.Environ(), "POPPYFIELD_TEST_LOCK="+file)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 5)
	_, err = out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "held\n", string(line))

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = openAccount(ctx, file)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	slot, err := openAccount(t.Context(), file)
	require.NoError(t, err)
	slot.close()
}

func TestTerminal_ReadsCredentialsThenTheCode(t *testing.T) {
	var out bytes.Buffer
	term := newTerminal(strings.NewReader("{\"email\": \"mia@example.com\",\n \"password\": \"x\"}\n482913\n"), &out)
	got, err := readCredentials("-", term)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"email": "mia@example.com", "password": "x"}, got)
	code, err := term.Ask(t.Context(), "Code\x1b[2J", false)
	require.NoError(t, err)
	require.Equal(t, "482913", code)
	require.Equal(t, "Code[2J: ", out.String())
	_, err = term.Ask(t.Context(), "Code", false)
	require.Equal(t, ExitUsage, ExitCode(err))
	_, err = readCredentials("", newTerminal(strings.NewReader("hunter2"), &out))
	require.Equal(t, ExitUsage, ExitCode(err))
	require.NotContains(t, err.Error(), "hunter2")
	require.Error(t, term.Browse(t.Context(), "file:///etc/passwd"))
}

func TestTalk_AuthorizationThatTheAccountTokenCovers(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.11#8")
	c, dir := signedIn(t)
	_, err := c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "poppy:read")
	require.NoError(t, err)
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{
			{"type": "authorization", "error": "insufficient_scope", "scope": "poppy:write"}, state("idle", "agent"),
		}
	}
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "cancel it", human())
	require.NoError(t, err)
	require.Equal(t, "poppyfield agent refresh shop.example", reply.SignIn, "the User narrowed it, and nobody but them widens it")
	before := newest(c)
	_, err = c.agent(dir, Discard{}).Refresh(t.Context(), shopDomain, "")
	require.NoError(t, err)
	again, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "now", human())
	require.NoError(t, err)
	require.Equal(t, reply.ConversationID, again.ConversationID)
	require.NotEqual(t, before, newest(c))
	require.Equal(t, `poppyfield agent sign-in shop.example --scope "poppy:write"`, again.SignIn, "a Session with the scope didn't do")
}

func TestTalk_ConversationOfAnotherAccount(t *testing.T) {
	c, dir := conversing(t)
	_, err := c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Hi", TalkOptions{})
	require.NoError(t, err)
	for _, id := range []string{"cnv_1", "cnv_2"} { // what a token of another account gets (7.2)
		c.routes[talkAt+"/"+id+"/messages"] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 404, "conversation_not_found") }
	}
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "hello", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_3", reply.ConversationID)
}
