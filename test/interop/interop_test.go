package interop_test

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/child"
	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/peer"
)

// names are the hosts that interop.mjs serves.
var names = []string{"agent.interop.test", "backend.interop.test"}

func TestServer_ForeignClients(t *testing.T) {
	t.Run("sqlite", foreignClients)
}

func foreignClients(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#6", "poppy-0.1/3#9",
		"poppy-0.1/3.2#4", "poppy-0.1/3.2#5", "poppy-0.1/3.2#8", "poppy-0.1/3.2#11",
		"poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#14", "poppy-0.1/4.1#15",
		"poppy-0.1/4.1#d4", "poppy-0.1/4.2#5", "poppy-0.1/4.2#9", "poppy-0.1/4.2#24", "poppy-0.1/4.2#27", "poppy-0.1/4.2#29",
		"poppy-0.1/4.2#31", "poppy-0.1/4.2#37", "poppy-0.1/4.2#38", "poppy-0.1/4.2#40", "poppy-0.1/4.2#63", "poppy-0.1/4.2#64",
		"poppy-0.1/4.3#1", "poppy-0.1/4.3#2", "poppy-0.1/4.3#24", "poppy-0.1/7.3#1", "poppy-0.1/7.3#2", "poppy-0.1/7.5#2",
	)
	clausetest.Refuses(t,
		"poppy-0.1/4.1#14", "poppy-0.1/4.2#16", "poppy-0.1/4.2#20", "poppy-0.1/4.2#21", "poppy-0.1/4.2#51", "poppy-0.1/4.2#53",
		"poppy-0.1/4.2#54", "poppy-0.1/4.2#55",
	)
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign clients run on Node.js: run `make setup`")
	require.DirExists(t, "node_modules", "run `make setup`")

	certificate := peer.NewCertificate(t, names...)
	port := strconv.Itoa(freePort(t))
	o := devserver.Options{TrustCA: []string{certificate.CA}}
	for _, name := range names {
		o.DevHosts = append(o.DevHosts, name+"=127.0.0.1:"+port)
	}
	server := devserver.Start(t, o)

	script := exec.CommandContext(t.Context(), node, "interop.mjs", server.ReadyFile, port, certificate.Chain, certificate.Key)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// TestSignIn_ForeignClients lets foreign software sign in: an OAuth client, an identity provider, a browser.
func TestSignIn_ForeignClients(t *testing.T) {
	t.Run("sqlite", foreignSignIn)
}

func foreignSignIn(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/4.4#21", "poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#34", "poppy-0.1/4.4#35", "poppy-0.1/4.4#36",
		"poppy-0.1/4.5#1", "poppy-0.1/4.5#2", "poppy-0.1/4.5#3", "poppy-0.1/4.5#6", "poppy-0.1/4.5#7", "poppy-0.1/4.5#10", "poppy-0.1/4.5#11",
		"poppy-0.1/4.5#12", "poppy-0.1/4.5#13", "poppy-0.1/4.5#15", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.5#24", "poppy-0.1/4.5#d31",
		"poppy-0.1/4.6#1", "poppy-0.1/4.6#3", "poppy-0.1/4.6#4", "poppy-0.1/4.6#6", "poppy-0.1/4.6#13", "poppy-0.1/4.6#14", "poppy-0.1/4.6#15",
		"poppy-0.1/4.6#16", "poppy-0.1/4.8#1", "poppy-0.1/4.8#2", "poppy-0.1/4.8#3", "poppy-0.1/4.8#4", "poppy-0.1/4.8#5", "poppy-0.1/4.8#6",
		"poppy-0.1/4.8#7", "poppy-0.1/4.8#14", "poppy-0.1/4.9#1", "poppy-0.1/4.9#2",
	)
	clausetest.Refuses(t,
		"poppy-0.1/4.4#40", "poppy-0.1/4.4#41", "poppy-0.1/4.5#21", "poppy-0.1/4.5#25", "poppy-0.1/4.5#d15", "poppy-0.1/4.8#15", "poppy-0.1/4.8#19",
	)
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign clients run on Node.js: run `make setup`")
	certificate := peer.NewCertificate(t, "agent.interop.test", "accounts.interop.test")
	port, providerPort := strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	server := devserver.Start(t, devserver.Options{
		TrustCA:  []string{certificate.CA},
		DevHosts: []string{"agent.interop.test=127.0.0.1:" + port, "accounts.interop.test=127.0.0.1:" + providerPort},
	})
	script := exec.CommandContext(t.Context(), node, "sign-in.mjs", server.ReadyFile, port, providerPort, certificate.Chain, certificate.Key, certificate.CA)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// TestMCP_ForeignClient has the official MCP client sign in and call the demo's MCP server.
func TestMCP_ForeignClient(t *testing.T) {
	t.Run("sqlite", foreignMCPClient)
}

func foreignMCPClient(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/6#5", "poppy-0.1/6#6", "poppy-0.1/6#11", "poppy-0.1/6#12", "poppy-0.1/6#15", "poppy-0.1/6#16", "poppy-0.1/6#17",
		"poppy-0.1/6#18", "poppy-0.1/6#21", "poppy-0.1/6#29",
	)
	clausetest.Refuses(t, "poppy-0.1/6#12", "poppy-0.1/4.3#32")
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign clients run on Node.js: run `make setup`")
	certificate := peer.NewCertificate(t, "client.interop.test")
	port := strconv.Itoa(freePort(t))
	server := devserver.Start(t, devserver.Options{
		TrustCA: []string{certificate.CA}, DevHosts: []string{"client.interop.test=127.0.0.1:" + port},
	})
	script := exec.CommandContext(t.Context(), node, "mcp.mjs", server.ReadyFile, port, certificate.Chain, certificate.Key)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := child.FreePort()
	require.NoError(t, err)
	return port
}
