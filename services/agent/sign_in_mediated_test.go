package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// credentialRequests are the requests of which a credential is a part, wherever they went.
func credentialRequests(c *fakeCompany) []seenRequest {
	var out []seenRequest
	for _, r := range c.seen {
		if strings.Contains(r.body, "hunter2") {
			out = append(out, r)
		}
	}
	return out
}

// requireNothingKept looks for a secret in every file of dir.
func requireNothingKept(t *testing.T, dir, secret string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		require.NotContains(t, string(raw), secret, path)
		return err
	}))
}

func TestMediated_SignsInWithCredentials(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#1", "poppy-0.1/4.7#2", "poppy-0.1/4.7#4", "poppy-0.1/4.7#7", "poppy-0.1/4.7#8", "poppy-0.1/4.7#9", "poppy-0.1/4.7#10", "poppy-0.1/4.7#26")
	c := newFakeCompany(t)
	c.offerSignIns(SignInMediated)
	dir := t.TempDir()
	p := &fakePerson{answers: []string{"mia@example.com", c.signIns.password}}
	r, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, p)
	require.NoError(t, err)
	require.Equal(t, SignInMediated, r.Type)
	require.Equal(t, []string{"poppy:read"}, r.Granted)
	require.Equal(t, []string{"Email", "Password"}, p.asked)
	require.Equal(t, map[string]bool{"Email": false, "Password": true}, p.secret)
	sent := credentialRequests(c)
	require.Len(t, sent, 1)
	require.Equal(t, mediatedAt, sent[0].host+sent[0].path)
	require.Empty(t, sent[0].query)
	requireNothingKept(t, dir, "hunter2")

	// The next Session needs them no more.
	clausetest.Covers(t, "poppy-0.1/4.7#27")
	s, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{New: true})
	require.NoError(t, err)
	require.True(t, s.SignedIn)
	require.Len(t, credentialRequests(c), 1)
}

func TestMediated_OneTimeCode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#14", "poppy-0.1/4.7#15", "poppy-0.1/4.7#16")
	c := newFakeCompany(t)
	c.offerSignIns(SignInMediated)
	c.signIns.code = "482913"
	p := &fakePerson{answers: []string{"mia@example.com", c.signIns.password, "111111", " 482913 "}}
	r, err := c.agent(t.TempDir(), Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, p)
	require.NoError(t, err)
	require.True(t, r.Session.SignedIn)
	require.Contains(t, p.asked[2], "Text to the phone number ending in 71")
	require.Contains(t, p.shown, "That code was not right.")
	require.Len(t, credentialRequests(c), 1)
	for _, r := range c.seen {
		if strings.HasPrefix(r.path, "/poppy/sign-in/") {
			require.Regexp(t, `^\{"code":"\d{6}"\}$`, r.body)
		}
	}
}

func TestMediated_EndsWithoutSignIn(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#1")
	for name, tc := range map[string]struct {
		answers []string
		words   string
		code    int
	}{
		"wrong password": {[]string{"mia@example.com", "hunter3"}, "did not accept this", ExitRefused},
		"too many codes": {[]string{"mia@example.com", "", "1", "2", "3"}, "did not accept this", ExitRefused},
		"late code":      {[]string{"mia@example.com", "", "late"}, "too late", ExitRefused},
		"no code":        {[]string{"mia@example.com", "", " "}, "no code", ExitUsage},
		"nothing typed":  {[]string{"mia@example.com", "-"}, "password, which is missing", ExitUsage},
		"nobody":         {nil, "nobody is there", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInMediated)
			c.signIns.code = "482913"
			dir := t.TempDir()
			for i, a := range tc.answers {
				switch a {
				case "":
					tc.answers[i] = c.signIns.password
				case "-":
					tc.answers[i] = ""
				}
			}
			_, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{answers: tc.answers})
			require.ErrorContains(t, err, tc.words)
			require.Equal(t, tc.code, ExitCode(err))
			require.Nil(t, kept(t, dir))
			require.NotContains(t, err.Error(), "hunter")
		})
	}
}

func TestMediated_AnotherAccountShowsWithTheCode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#42")
	c := newFakeCompany(t)
	c.offerSignIns(SignInDirect, SignInMediated)
	dir := t.TempDir()
	c.signIn(dir, SignInOptions{})
	c.signIns.account, c.signIns.code = "acc_work", "482913"
	p := &fakePerson{answers: []string{"mia@work.example", c.signIns.password, "482913", "482913"}}
	r, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{Type: SignInMediated, Again: true}, p)
	require.NoError(t, err)
	require.Equal(t, "ses_2", r.Session.ID)
	require.NotContains(t, p.shown, "That code was not right.")
}

func TestMediated_CredentialsAreNeverShown(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#7")
	clausetest.Refuses(t, "poppy-0.1/4.7#7")
	for name, show := range map[string]bool{"redacted": false, "with --show-secrets": true} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInMediated)
			c.signIns.code = "482913"
			// A Company that gives back what it was sent, wherever an answer has room for text.
			c.routes[mediatedAt] = func(w http.ResponseWriter, r *http.Request) {
				body := c.seen[len(c.seen)-1].body
				var in struct{ Credentials map[string]string }
				_ = json.Unmarshal([]byte(body), &in)
				w.Header().Set("X-Echo", in.Credentials["email"]+" "+in.Credentials["password"])
				w.Header().Set("X-Echo-Body", body)
				c.mediated(w, r, []byte(body))
			}
			var out, text bytes.Buffer
			for _, answers := range [][]string{
				{"mia@example.com", c.signIns.password, "482913"},
				{"mia@example.com", "hunter2 wrong"},
			} {
				a := c.agent(t.TempDir(), NewJSONReporter(&out))
				a.redact = newRedactor(show)
				_, _ = a.SignIn(t.Context(), shopDomain, SignInOptions{Again: true}, &fakePerson{answers: answers})
			}
			delete(c.routes, mediatedAt)
			c.routes[mediatedAt] = func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, 400, map[string]any{"error": "invalid_request", "error_description": "no " + c.signIns.password})
			}
			a := c.agent(t.TempDir(), NewTextReporter(&text, false))
			_, err := a.SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{answers: []string{"mia@example.com", c.signIns.password}})
			require.ErrorContains(t, err, "invalid_request")
			all := out.String() + text.String() + err.Error()
			require.Contains(t, all, "Pass the User's credentials on")
			for _, secret := range []string{"hunter2", "mia@example.com", "482913", "söhne"} {
				require.NotContains(t, all, secret)
			}
		})
	}
}

func TestMediated_CredentialsGoNowhereElse(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#26")
	for name, answer := range map[string]http.HandlerFunc{
		"redirect": redirectTo("https://other.example/collect"),
		"kept redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://other.example/collect")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"sign-in id that leads elsewhere": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 200, map[string]any{"status": "code_required", "sign_in_id": "../../collect", "code": map[string]any{"sent_to": "x"}, "expires_at": "2026-11-02T13:00:00Z"})
		},
		"broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"unknown status":    func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, map[string]any{"status": "maybe"}) },
		"not found":         func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 404, map[string]any{"error": "not_found"}) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.offerSignIns(SignInMediated)
			c.routes[mediatedAt] = answer
			_, err := c.agent(t.TempDir(), Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{answers: []string{"mia@example.com", c.signIns.password, "1"}})
			require.Error(t, err)
			for _, r := range credentialRequests(c) {
				require.Equal(t, mediatedAt, r.host+r.path)
			}
			for _, r := range c.seen {
				require.NotEqual(t, "/collect", r.path)
			}
		})
	}
}

func TestMediated_ANewTokenForTheSameSession(t *testing.T) {
	c := newFakeCompany(t)
	c.offerSignIns(SignInMediated)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Session(t.Context(), shopDomain, SessionOptions{})
	require.NoError(t, err)
	for token := range c.tokens {
		c.revoked[token] = true
	}
	r, err := c.agent(dir, Discard{}).SignIn(t.Context(), shopDomain, SignInOptions{}, &fakePerson{answers: []string{"mia@example.com", c.signIns.password}})
	require.NoError(t, err)
	require.Equal(t, "ses_1", r.Session.ID)
}

func TestParseCredentials(t *testing.T) {
	got, err := ParseCredentials([]byte(`{"email":"mia@example.com","password":"x"}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"email": "mia@example.com", "password": "x"}, got)
	for _, bad := range []string{``, `[]`, `{"password":"hunter2"`, `{"password":["hunter2"]}`, `{"password":"hunter2","password":"x"}`} {
		_, err := ParseCredentials([]byte(bad))
		require.Equal(t, ExitUsage, ExitCode(err), bad)
		require.NotContains(t, err.Error(), "hunter2")
	}
	fields := []field{{Name: "email", Label: "Email"}}
	require.NoError(t, checkCredentials(fields, map[string]string{"email": "x"}))
	require.Error(t, checkCredentials(fields, map[string]string{"email": ""}))
	require.Error(t, checkCredentials(fields, map[string]string{"email": "x", "pin": "1"}))
	require.True(t, fields[0].secret(), "a field that doesn't say is protected")
}
