package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// command runs `poppyfield agent` with args and returns its output.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// presentCompany is a fake Company that lives in the present, as commands do.
func presentCompany(t *testing.T) (*fakeCompany, []string) {
	t.Helper()
	c := newFakeCompany(t)
	c.clock.Advance(time.Since(c.clock.Now()))
	args := []string{"--trust-ca", c.ca.File()}
	for _, h := range []string{shopDomain, "auth.shop.example", "api.shop.example"} {
		args = append(args, "--resolve", h+"="+c.addr)
	}
	return c, args
}

func TestCommand_InitThenTalk(t *testing.T) {
	c, common := presentCompany(t)
	dir := t.TempDir()
	common = append(common, "--dir", dir)
	_, err := command(t, append([]string{"talk", shopDomain, "hello"}, common...)...)
	require.Equal(t, ExitUsage, ExitCode(err), "no identity yet")

	out, err := command(t, "init", "--dir", dir, "--client-id", testClient, "--name", "My agent")
	require.NoError(t, err)
	require.Contains(t, out, testClient)
	require.Contains(t, out, "https://agent.example/jwks.json")
	var doc clientDocument
	raw, err := os.ReadFile(filepath.Join(dir, documentFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &doc))
	require.Equal(t, clientDocument{
		ClientID: testClient, Name: "My agent", JWKSURI: "https://agent.example/jwks.json", AuthMethod: "private_key_jwt",
	}, doc)

	c.identity, err = LoadIdentity(dir, testClient)
	require.NoError(t, err)
	out, err = command(t, append([]string{"talk", shopDomain, "Where is my order?"}, common...)...)
	require.NoError(t, err)
	require.Contains(t, out, "§3.2")
	require.Contains(t, out, "Shop (agent): answer 1 to Where is my order?")
	out, err = command(t, append([]string{"talk", "--quiet", shopDomain, "More"}, common...)...)
	require.NoError(t, err)
	require.Equal(t, "answer 2 to More\n", out)
	require.Len(t, c.requests(sendAt), 1, "the conversation went on")

	out, err = command(t, append([]string{"events", "--all", "--json", shopDomain}, common...)...)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, `"title":"Message from the Company"`))
	_, err = command(t, append([]string{"session", shopDomain}, common...)...)
	require.NoError(t, err)
	_, err = command(t, append([]string{"close", shopDomain}, common...)...)
	require.NoError(t, err)
}

func TestCommand_DiscoverNeedsNoIdentity(t *testing.T) {
	c, common := presentCompany(t)
	out, err := command(t, append([]string{"discover", shopDomain, "--dir", t.TempDir()}, common...)...)
	require.NoError(t, err)
	require.Contains(t, out, "passed every check")

	c.metadata["poppy_domains"] = []string{}
	out, err = command(t, append([]string{"discover", shopDomain, "--json", "--dir", t.TempDir()}, common...)...)
	require.Equal(t, ExitDiscovery, ExitCode(err))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last Step
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, "Stopped", last.Title)
	require.Equal(t, "3.2", last.Section)
}

func TestCommand_UntrustedCompany(t *testing.T) {
	c, _ := presentCompany(t)
	_, err := command(t, "discover", shopDomain, "--dir", t.TempDir(), "--resolve", shopDomain+"="+c.addr)
	require.Equal(t, ExitNetwork, ExitCode(err))
	require.ErrorContains(t, err, "certificate")
}

func TestCommand_BadFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"resolve":  {"discover", "x.example", "--resolve", "x.example"},
		"name":     {"discover", "x.example", "--resolve", "x.example=localhost"},
		"ca":       {"discover", "x.example", "--trust-ca", "/does/not/exist"},
		"dev":      {"discover", "x.example", "--dev", "/does/not/exist"},
		"user":     {"discover", "x.example", "--user", "../x"},
		"data":     {"talk", "x.example", "hi", "--data", "7"},
		"clientid": {"init", "--client-id", "http://x.example/a"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := InitIdentity(dir, testClient, Profile{})
			require.NoError(t, err)
			_, err = command(t, append(args, "--dir", dir)...)
			require.Equal(t, ExitUsage, ExitCode(err), "%v", err)
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// devDirectory writes what a running `poppyfield dev` leaves for its users.
func devDirectory(t *testing.T, c *fakeCompany) (dir, agentAddress string) {
	t.Helper()
	dir, agentAddress = t.TempDir(), freeAddress(t)
	raw, err := json.Marshal(map[string]any{"ca_file": c.ca.File(), "hosts": map[string]string{
		devHost: agentAddress, shopDomain: c.addr, "auth.shop.example": c.addr, "api.shop.example": c.addr,
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ready.json"), raw, 0o600))
	return dir, agentAddress
}

// fetchFrom gets a document from agent.localhost as a Company would.
func fetchFrom(c *fakeCompany, address, url string) (string, string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: c.ca.Pool()},
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	res, err := client.Get(url)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return string(raw), res.Header.Get("Content-Type"), err
}

func TestCommand_DevPublishesItsDocument(t *testing.T) {
	c, _ := presentCompany(t)
	c.clientID = devClientID
	dir, address := devDirectory(t, c)
	fetched := 0
	c.routes[tokenAt] = func(w http.ResponseWriter, r *http.Request) {
		doc, contentType, err := fetchFrom(c, address, devClientID)
		if err != nil || contentType != jsonType || !strings.Contains(doc, `"client_id": "`+devClientID+`"`) {
			t.Errorf("document: %v %s %s", err, contentType, doc)
		}
		keys, _, err := fetchFrom(c, address, "https://agent.localhost/jwks.json")
		if err != nil {
			t.Errorf("key set: %v", err)
		}
		fetched++
		c.identity.KeySet = []byte(keys)
		c.token(w, r, c.seen[len(c.seen)-1].form)
	}
	for range 2 {
		out, err := command(t, "talk", shopDomain, "hello", "--dev", dir, "--quiet")
		require.NoError(t, err)
		require.Contains(t, out, "to hello")
	}
	require.Equal(t, 1, fetched)
	require.FileExists(t, filepath.Join(dir, "agent", keyFile))
}

func TestCommand_DevSharesThePortWithAnotherRun(t *testing.T) {
	c, _ := presentCompany(t)
	dir, address := devDirectory(t, c)
	id, err := InitIdentity(filepath.Join(dir, "agent"), devClientID, Profile{})
	require.NoError(t, err)
	c.clientID, c.identity = devClientID, id
	ctx, stop := context.WithCancel(t.Context())
	ln, err := listen(ctx, address, c.ca.ServerConfig(func(string) bool { return true }))
	require.NoError(t, err)
	serveDocument(ctx, ln, id)
	_, err = command(t, "session", shopDomain, "--dev", dir)
	require.NoError(t, err)
	stop()
}

func TestCommand_DevRefusesAnotherAgentAtItsAddress(t *testing.T) {
	c, _ := presentCompany(t)
	dir, address := devDirectory(t, c)
	other, err := InitIdentity(t.TempDir(), devClientID, Profile{})
	require.NoError(t, err)
	ln, err := listen(t.Context(), address, c.ca.ServerConfig(func(string) bool { return true }))
	require.NoError(t, err)
	serveDocument(t.Context(), ln, other)
	_, err = command(t, "session", shopDomain, "--dev", dir)
	require.Equal(t, ExitUsage, ExitCode(err))
	require.ErrorContains(t, err, "another agent with other keys")
}
