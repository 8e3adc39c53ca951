package gateways_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/child"
)

// nginxAround is what belongs around a site where nginx isn't the machine's own.
const nginxAround = `daemon off;
pid $DIR/nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path $DIR/body;
  proxy_temp_path $DIR/proxy;
  fastcgi_temp_path $DIR/fastcgi;
  uwsgi_temp_path $DIR/uwsgi;
  scgi_temp_path $DIR/scgi;
  $SITE
}
`

// startNginx starts nginx with a site until the test ends.
func startNginx(t *testing.T, r *rig, site string) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // not in everybody's PATH
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer("$DIR", dir, "$SITE", site).Replace(nginxAround)), 0o600))
	p, err := child.Start(child.Spec{Path: nginx, Args: []string{"-c", file, "-e", "stderr"}, Output: logFile(t)})
	require.NoError(t, err, "the tests need nginx: run `make setup`")
	t.Cleanup(func() { require.NoError(t, p.Stop(10*time.Second)) })
	awaitListener(t, r.roots)
}

func TestNginx(t *testing.T) {
	r := start(t)
	site := r.configuration(t, "nginx")
	t.Run("as told", func(t *testing.T) {
		startNginx(t, r, site)
		r.everyCase(t)
	})
	r.otherKeys(t, func(t *testing.T, key string) { startNginx(t, r, strings.ReplaceAll(site, r.key, key)) })
}
