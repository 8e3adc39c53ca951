package interop_test

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/peer"
)

const sdk = "../../sdk/ts"

// TestSDK_TypeScript builds the SDK, lets it judge the test vectors, and then puts its
// example before a running server.
func TestSDK_TypeScript(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#23", "poppy-0.1/6#10", "poppy-0.1/6#19", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#32")
	clausetest.Refuses(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#22", "poppy-0.1/4.3#23", "poppy-0.1/6#10", "poppy-0.1/6#20", "poppy-0.1/6#23", "poppy-0.1/6#25")
	require.DirExists(t, sdk+"/node_modules", "run `make setup`")
	npm := exec.CommandContext(t.Context(), "npm", "test", "--silent")
	npm.Dir = sdk
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "%s", out)

	certificate := peer.NewCertificate(t, "agent.interop.test", "backend.interop.test", "api.interop.test")
	port := strconv.Itoa(freePort(t))
	server := devserver.Start(t, devserver.Options{
		TrustCA:  []string{certificate.CA},
		DevHosts: []string{"agent.interop.test=127.0.0.1:" + port, "backend.interop.test=127.0.0.1:" + port},
	})
	script := exec.CommandContext(t.Context(), "node", "sdk.mjs", server.ReadyFile, port, certificate.Chain, certificate.Key, certificate.CA)
	out, err = script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
