package browser_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPages_InChromium(t *testing.T) {
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the browser is driven by Node.js: run `make setup`")
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "run `make setup`")
	require.DirExists(t, "node_modules", "run `make setup`")

	script := exec.CommandContext(t.Context(), node, "pages.mjs", startSite(t), chromium)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
