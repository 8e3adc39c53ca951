package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/devserver"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The chapter's commands as they stand there, but for the data directory and the ports.
func TestReadme_ProtectAnAPI(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#10")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, chapter, found := strings.Cut(string(readme), "\n## Protect an API\n")
	require.True(t, found)
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	blocks := shellBlock.FindAllStringSubmatch(chapter, -1)
	require.Len(t, blocks, 2)

	data := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: data})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.APIOrigin, "https://"))
	require.NoError(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	shop := lis.Addr().String()
	require.NoError(t, lis.Close())
	binary, err := devserver.FindBinary()
	require.NoError(t, err)
	script := strings.NewReplacer(
		".bin/poppyfield", binary, ".bin/shop", filepath.Join(data, "shop"), ".data", data, "127.0.0.1:8090", shop, "localhost:8444", "localhost:"+port,
	).Replace("set -eu\ntrap 'kill $SHOP 2>/dev/null || true' EXIT\nSHOP=\n" + blocks[0][1] + blocks[1][1])

	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = root
	code, stdout, stderr := execute(t, cmd)
	require.Zero(t, code, "%s\n%s", stdout, stderr)
	rest := stdout
	for _, line := range []string{
		`"base_urls"`, "HTTP/1.1 401", "HTTP/1.1 200", `{"product":"7"}`, "HTTP/1.1 401", `error="invalid_dpop_proof"`, "HTTP/1.1 403", `error="sign_in_required"`,
	} {
		_, after, found := strings.Cut(rest, line)
		require.True(t, found, "%s is missing in\n%s", line, rest)
		rest = after
	}
}
