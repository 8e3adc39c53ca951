package browser_test

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/child"
	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/peer"
)

func TestJoin_InChromium(t *testing.T) {
	t.Run("sqlite", joinSession)
}

func joinSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#15", "poppy-0.1/5#31", "poppy-0.1/5#32", "poppy-0.1/5#35", "poppy-0.1/5#36", "poppy-0.1/5#37", "poppy-0.1/5#38", "poppy-0.1/5#42")
	clausetest.Refuses(t, "poppy-0.1/5#30", "poppy-0.1/5#36", "poppy-0.1/5#42")
	runInChromium(t, "join.mjs", []string{"agent.interop.test", "noodles.test"}, "poppy.noodles.test")
}

// runInChromium runs a script beside a server that reaches hosts at the script's own
// port. The script has a certificate for them and for the further names.
func runInChromium(t *testing.T, script string, hosts []string, further ...string) {
	t.Helper()
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the browser is driven by Node.js: run `make setup`")
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "run `make setup`")
	require.DirExists(t, "../interop/node_modules", "run `make setup`")

	certificate := peer.NewCertificate(t, append(hosts, further...)...)
	free, err := child.FreePort()
	require.NoError(t, err)
	port := strconv.Itoa(free)
	o := devserver.Options{TrustCA: []string{certificate.CA}}
	for _, name := range hosts {
		o.DevHosts = append(o.DevHosts, name+"=127.0.0.1:"+port)
	}
	server := devserver.Start(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, node, script, server.ReadyFile, port, certificate.Chain, certificate.Key, certificate.CA, chromium)
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
