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

func TestSignIn_InChromium(t *testing.T) {
	t.Run("sqlite", signIn)
}

func signIn(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/4.4#32", "poppy-0.1/4.5#7", "poppy-0.1/4.5#9", "poppy-0.1/4.5#10", "poppy-0.1/4.5#11", "poppy-0.1/4.5#15",
		"poppy-0.1/4.6#9", "poppy-0.1/4.6#10", "poppy-0.1/4.6#11", "poppy-0.1/4.6#16", "poppy-0.1/4.6#17",
	)
	clausetest.Refuses(t, "poppy-0.1/4.4#41", "poppy-0.1/4.5#d30", "poppy-0.1/4.6#11")
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the browser is driven by Node.js: run `make setup`")
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "run `make setup`")
	require.DirExists(t, "../interop/node_modules", "run `make setup`")

	names := []string{"agent.interop.test", "accounts.interop.test"}
	certificate := peer.NewCertificate(t, names...)
	free, err := child.FreePort()
	require.NoError(t, err)
	port := strconv.Itoa(free)
	o := devserver.Options{TrustCA: []string{certificate.CA}}
	for _, name := range names {
		o.DevHosts = append(o.DevHosts, name+"=127.0.0.1:"+port)
	}
	server := devserver.Start(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	script := exec.CommandContext(ctx, node, "sign-in.mjs", server.ReadyFile, port, certificate.Chain, certificate.Key, certificate.CA, chromium)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
