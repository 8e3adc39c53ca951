package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// userAt is the output of a command, with a User who opens the first link they see.
type userAt struct {
	mu   sync.Mutex
	text bytes.Buffer
	open func(link string)
}

func (u *userAt) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.text.Write(p)
	link := regexp.MustCompile(`(?m)^ {2}(https://\S+)$`).FindStringSubmatch(u.text.String())
	if link != nil && u.open != nil {
		open := u.open
		u.open = nil
		go open(link[1])
	}
	return len(p), nil
}

func (u *userAt) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.text.String()
}

// commandWith runs `poppyfield agent` for a User at the other end.
func commandWith(t *testing.T, in string, open func(string), args ...string) (stdout, stderr string, err error) {
	t.Helper()
	out, errOut := &userAt{open: open}, &userAt{open: open}
	cmd := Command()
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// devCompany is a Company that knows the agent of a dev installation.
func devCompany(t *testing.T) (c *fakeCompany, dir string) {
	t.Helper()
	c, _ = presentCompany(t)
	c.offerSignIns(SignInDirect, SignInDevice, SignInMediated)
	c.signIns.device["interval"] = 1
	c.clientID = devClientID
	dir, address := devDirectory(t, c)
	// As a Company does, it takes keys and redirect URIs from what is published.
	c.published = func() Identity {
		doc, _, err := fetchFrom(c, address, devClientID)
		if err != nil {
			t.Errorf("document: %v", err)
		}
		keys, _, err := fetchFrom(c, address, "https://agent.localhost/jwks.json")
		if err != nil {
			t.Errorf("key set: %v", err)
		}
		return Identity{ClientID: devClientID, Document: []byte(doc), KeySet: []byte(keys)}
	}
	return c, dir
}

// browser follows the User to where the Company sends them.
func browser(t *testing.T, c *fakeCompany) func(string) {
	t.Helper()
	return func(link string) {
		back := c.authorize(link)
		u, err := url.Parse(back)
		if err == nil {
			_, _, err = fetchFrom(c, net.JoinHostPort("127.0.0.1", u.Port()), back)
		}
		if err != nil {
			t.Errorf("going back to %s: %v", back, err)
		}
	}
}

func TestCommand_SignInWithADevInstallation(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#4", "poppy-0.1/4.5#14", "poppy-0.1/4.8#22")
	c, dir := devCompany(t)
	c.signIns.granted = "poppy:read"
	out, _, err := commandWith(t, "", browser(t, c), "sign-in", shopDomain, "--dev", dir, "--no-browser")
	require.NoError(t, err)
	require.Contains(t, out, "You are signed in at Shop with poppy:read, no end set.")
	require.Contains(t, out, "Not granted: poppy:write.")
	for token := range c.signIns.grants {
		require.NotContains(t, out, token)
	}

	var doc clientDocument
	raw, err := os.ReadFile(filepath.Join(dir, "agent", documentFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &doc))
	require.Len(t, doc.RedirectURIs, 1)
	require.Regexp(t, `^https://agent\.localhost:[0-9]+/oauth/callback$`, doc.RedirectURIs[0])
	id, err := cimd.ParseClientID(devClientID)
	require.NoError(t, err)
	_, err = cimd.ParseDocument(id, jsonType, raw)
	require.NoError(t, err)

	out, err = command(t, "accounts", "--dev", dir)
	require.NoError(t, err)
	require.Regexp(t, `^shop\.example  Shop, https://auth\.shop\.example, scope poppy:read, since \S+, no end set\n$`, out)
	out, err = command(t, "accounts", "--dev", dir, "--json", shopDomain)
	require.NoError(t, err)
	require.Contains(t, out, `"title":"Signed in at shop.example"`)
	out, err = command(t, "refresh", shopDomain, "--dev", dir, "--scope", "poppy:read")
	require.NoError(t, err)
	require.Contains(t, out, "Session ses_1, signed in, scope poppy:read, token until")
	c.signIns.needed = true
	_, err = command(t, "talk", shopDomain, "hello", "--dev", dir)
	require.NoError(t, err)
	_, err = command(t, "talk", shopDomain, "hello", "--dev", dir, "--signed-out")
	require.ErrorContains(t, err, "sign_in_required")
	out, err = command(t, "sign-out", shopDomain, "--dev", dir)
	require.NoError(t, err)
	require.Contains(t, out, "Signed out. Session ses_1 goes on signed out.")
	out, err = command(t, "accounts", "--dev", dir)
	require.NoError(t, err)
	require.Contains(t, out, "You are not signed in anywhere")

	again, err := os.ReadFile(filepath.Join(dir, "agent", documentFile))
	require.NoError(t, err)
	require.Equal(t, raw, again, "Companies keep the document for a while")
}

func TestCommand_SignInWhileAnotherWaits(t *testing.T) {
	c, dir := devCompany(t)
	_, err := command(t, "session", shopDomain, "--dev", dir)
	require.NoError(t, err)
	port, err := os.ReadFile(filepath.Join(dir, "agent", callbackPortFile))
	require.NoError(t, err)
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(port))))
	require.NoError(t, err)
	defer ln.Close()
	_, err = command(t, "sign-in", shopDomain, "--dev", dir)
	require.ErrorContains(t, err, "another sign-in may be waiting there; or use --type device")
	require.Equal(t, ExitNetwork, ExitCode(err))
	require.Empty(t, c.signIns.codes)
}

func TestCommand_SignInByDeviceForPrograms(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#2", "poppy-0.1/4.6#7")
	c, dir := devCompany(t)
	stdout, stderr, err := commandWith(t, "", nil, "sign-in", shopDomain, "--dev", dir, "--no-browser", "--type", "device", "--json")
	require.NoError(t, err)
	require.Contains(t, stderr, "WDJB-MJHT")
	found := false
	for line := range strings.Lines(stdout) {
		var step Step
		require.NoError(t, json.Unmarshal([]byte(line), &step))
		found = found || step.Link == shopIssuer+"/device?user_code=WDJB-MJHT"
	}
	require.True(t, found)
	require.NotContains(t, stdout+stderr, c.signIns.deviceCode)
}

func TestCommand_SignInWithCredentials(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#1", "poppy-0.1/4.7#7")
	for name, tc := range map[string]struct {
		file bool
		args []string
	}{
		"in a file":             {true, nil},
		"on the standard input": {false, []string{"--type", "mediated"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := devCompany(t)
			c.signIns.code = "482913"
			raw, err := json.Marshal(map[string]string{"email": "mia@example.com", "password": c.signIns.password})
			require.NoError(t, err)
			in := string(raw) + "\n482913\n"
			if tc.file {
				file := filepath.Join(t.TempDir(), "credentials.json")
				require.NoError(t, os.WriteFile(file, raw, 0o600))
				tc.args, in = []string{"--credentials-file", file}, "482913\n"
			}
			stdout, stderr, err := commandWith(t, in, nil, append([]string{"sign-in", shopDomain, "--dev", dir}, tc.args...)...)
			require.NoError(t, err)
			require.Contains(t, stdout, "The code that Shop sent you (Text to the phone number ending in 71): ")
			require.Contains(t, stdout, "You are signed in at Shop with poppy:read")
			require.NotContains(t, stdout+stderr, "hunter2")
			requireNothingKept(t, dir, "hunter2")
		})
	}
}

func TestCommand_SignInBadFlags(t *testing.T) {
	_, dir := devCompany(t)
	for name, args := range map[string][]string{
		"type":        {"--type", "magic"},
		"scope":       {"--scope", "a\"b"},
		"language":    {"--language", "de&x=y"},
		"file":        {"--credentials-file", "/does/not/exist"},
		"no input":    {"--type", "mediated"},
		"not offered": {"--scope", "payments"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := commandWith(t, "", nil, append([]string{"sign-in", shopDomain, "--dev", dir}, args...)...)
			require.Equal(t, ExitUsage, ExitCode(err), "%v", err)
		})
	}
}

func TestCommand_QuietTalkStillSaysHowToSignIn(t *testing.T) {
	c, dir := devCompany(t)
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{{"type": "authorization", "error": "sign_in_required"}, companySays("Please sign in."), {"type": "state", "status": "idle", "responder": "agent"}}
	}
	stdout, stderr, err := commandWith(t, "", nil, "talk", shopDomain, "hello", "--dev", dir, "--quiet")
	require.NoError(t, err)
	require.Equal(t, "Please sign in.\n", stdout)
	require.Contains(t, stderr, "run: poppyfield agent sign-in shop.example\n")
}

func TestDevRedirectURI_StaysWithTheAgent(t *testing.T) {
	ca, err := devca.Load(t.TempDir(), newTestClock().Now)
	require.NoError(t, err)
	setup := devSetup{CAFile: ca.File(), Hosts: map[string]string{devHost: freeAddress(t)}}
	dir := t.TempDir()
	var all [4]string
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			uri, err := devRedirectURI(t.Context(), dir, setup)
			if err != nil {
				t.Errorf("%v", err)
			}
			all[i] = uri
		})
	}
	wg.Wait()
	for _, uri := range all {
		require.Equal(t, all[0], uri)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, callbackPortFile), []byte("x"), 0o600))
	_, err = devRedirectURI(t.Context(), dir, setup)
	require.Equal(t, ExitUsage, ExitCode(err))
	_, err = devRedirectURI(t.Context(), t.TempDir(), devSetup{Hosts: map[string]string{devHost: "nowhere"}})
	require.Error(t, err)
}

func TestCommand_SignInPastesTheAddress(t *testing.T) {
	c, common := presentCompany(t)
	c.offerSignIns(SignInDirect)
	dir := t.TempDir()
	id, err := InitIdentity(dir, testClient, Profile{RedirectURIs: []string{testRedirect}})
	require.NoError(t, err)
	c.identity = id
	in, paste := io.Pipe()
	out := &userAt{open: func(link string) { _, _ = io.WriteString(paste, c.authorize(link)+"\n") }}
	cmd := Command()
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(append([]string{"sign-in", shopDomain, "--dir", dir, "--no-browser", "--quiet"}, common...))
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "Then paste the whole address")
	require.NotContains(t, out.String(), "You are signed in", "--quiet")
}
