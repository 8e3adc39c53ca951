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

func freePort(t *testing.T) int {
	t.Helper()
	port, err := child.FreePort()
	require.NoError(t, err)
	return port
}
