package gateways_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/child"
	"github.com/poppyfield/poppyfield/test/publicnet"
)

// caddyAround makes Caddy its own CA, and keeps it from what belongs to the machine.
const caddyAround = `{
	default_bind ` + publicnet.Proxy + `
	admin off
	persist_config off
	local_certs
	skip_install_trust
	auto_https disable_redirects
}
`

// startCaddy starts Caddy with a site until the test ends.
func startCaddy(t *testing.T, r *rig, site string) {
	t.Helper()
	binary, err := caddyBinary()
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(caddyAround+site), 0o600))
	p, err := child.Start(child.Spec{
		Path: binary, Args: []string{"run", "--config", file, "--adapter", "caddyfile"}, Output: logFile(t),
		Env: []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "SSL_CERT_FILE=" + r.server.CAFile},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(10*time.Second)) })
	root := filepath.Join(dir, "caddy", "pki", "authorities", "local", "root.crt")
	require.Eventually(t, func() bool { _, err := os.Stat(root); return err == nil }, 20*time.Second, 20*time.Millisecond, "Caddy has no CA")
	r.trust(t, root)
	awaitListener(t, r.roots)
}

func TestCaddy(t *testing.T) {
	r := start(t)
	site := r.configuration(t, "caddyfile")
	t.Run("as told", func(t *testing.T) {
		startCaddy(t, r, site)
		r.everyCase(t)
	})
	r.otherKeys(t, func(t *testing.T, key string) { startCaddy(t, r, strings.ReplaceAll(site, r.key, key)) })
}
