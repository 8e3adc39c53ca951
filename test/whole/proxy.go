package whole

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/child"
	"github.com/poppyfield/poppyfield/test/peer"
	"github.com/poppyfield/poppyfield/test/publicnet"
)

// proxy starts nginx in front: it terminates TLS and takes the path of GatewayHost off.
func (i *Installation) proxy(t testing.TB, opt InstallationOptions, certificate peer.Certificate) {
	t.Helper()
	of := func(service string) *ServeProcess {
		if opt.Split {
			return i.Processes[service]
		}
		return i.Processes["all"]
	}
	config := nginxConfig
	if opt.StockProxy {
		config = stockConfig(t)
	}
	config = strings.NewReplacer(
		"$DIR", i.dir, "$ADDRESS", publicnet.Proxy, "$CHAIN", certificate.Chain, "$KEY", certificate.Key, "$PAGES", opt.Pages,
		"$HOSTED", HostedDomain, "$API", APIHost, "$GATEWAY", GatewayHost, "$PATH", GatewayPath,
		"$DISCOVERY", of("discovery").Public, "$AUTH", of("auth").Public, "$CONVERSATIONS", of("conversations").Public, "$ADMIN", of("admin").admin,
	).Replace(config)
	if os.Geteuid() == 0 {
		config = "user root;\n" + config
	}
	i.write(t, "nginx.conf", config)
	t.Cleanup(func() {
		i.StopProxy(t)
		if t.Failed() {
			text, _ := os.ReadFile(i.proxyLog()) // what there is helps
			t.Logf("nginx:\n%s", text)
		}
	})
	i.StartProxy(t)
}

func (i *Installation) proxyLog() string { return filepath.Join(i.dir, "nginx.log") }

// StartProxy starts a proxy that was stopped again.
func (i *Installation) StartProxy(t testing.TB) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // not in everybody's PATH
	}
	log, err := os.OpenFile(i.proxyLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer log.Close()
	i.nginx, err = child.Start(child.Spec{
		Path: nginx, Args: []string{"-c", filepath.Join(i.dir, "nginx.conf"), "-e", "stderr"}, Output: log, StopSignal: syscall.SIGTERM,
	})
	require.NoError(t, err, "the tests need nginx: run `make setup`")
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort(publicnet.Proxy, "443"))
		return err == nil && c.Close() == nil
	}, 10*time.Second, 10*time.Millisecond, "nginx does not answer")
}

// StopProxy ends the proxy at once, and every connection through it.
func (i *Installation) StopProxy(t testing.TB) {
	t.Helper()
	if i.nginx == nil { // it never started
		return
	}
	require.NoError(t, i.nginx.Stop(10*time.Second))
	i.Client.CloseIdleConnections()
}

// ofMachine are the lines of Debian's nginx.conf that lead to places of the machine.
var ofMachine = regexp.MustCompile(`(?m)^\s*(user|pid|error_log|access_log|include /etc/nginx/conf\.d/\*\.conf)\b.*;$`)

// stockConfig is Debian's nginx.conf with a site of ours.
func stockConfig(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile("/etc/nginx/nginx.conf")
	require.NoError(t, err, "the test is about nginx as Debian ships it: run `make setup`")
	const sites = "include /etc/nginx/sites-enabled/*;"
	before, after, found := strings.Cut(ofMachine.ReplaceAllString(string(raw), ""), sites)
	require.True(t, found, "no %q in %s", sites, raw)
	return "daemon off;\npid $DIR/nginx.pid;\n" + before + stockSite + after
}

const stockSite = `
  access_log off;
  client_body_temp_path $DIR/nginx-body;
  proxy_temp_path $DIR/nginx-proxy;
  fastcgi_temp_path $DIR/nginx-fastcgi;
  uwsgi_temp_path $DIR/nginx-uwsgi;
  scgi_temp_path $DIR/nginx-scgi;
  ssl_certificate $CHAIN;
  ssl_certificate_key $KEY;
  server {
    listen $ADDRESS:443 ssl http2;
    server_name *.$HOSTED;
    location / { include /etc/nginx/proxy_params; proxy_pass http://$CONVERSATIONS; }
    location /pages/ { alias $PAGES/; }
  }
  server {
    listen $ADDRESS:443 ssl;
    server_name $API;
    location / { include /etc/nginx/proxy_params; proxy_pass https://$ADMIN; }
  }
`

const nginxConfig = `daemon off;
worker_processes 1;
pid $DIR/nginx.pid;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path $DIR/nginx-body;
  proxy_temp_path $DIR/nginx-proxy;
  fastcgi_temp_path $DIR/nginx-fastcgi;
  uwsgi_temp_path $DIR/nginx-uwsgi;
  scgi_temp_path $DIR/nginx-scgi;
  ssl_certificate $CHAIN;
  ssl_certificate_key $KEY;
  upstream discovery { server $DISCOVERY; keepalive 32; }
  upstream auth { server $AUTH; keepalive 32; }
  upstream conversations { server $CONVERSATIONS; keepalive 32; }
  proxy_http_version 1.1;
  proxy_read_timeout 60s;
  proxy_next_upstream off;
  proxy_set_header Connection "";
  proxy_set_header Host $host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_set_header X-Forwarded-Proto $scheme;
  proxy_set_header X-Forwarded-Host $host;
  server {
    listen $ADDRESS:443 ssl http2;
    server_name *.$HOSTED;
    location ~ ^/(oauth/|device$|sign-in/|account/|assets/|poppy/sign-in|poppy/browser-session) { proxy_pass http://auth; }
    location /poppy/conversations { proxy_pass http://conversations; }
    location / { proxy_pass http://discovery; }
  }
  server {
    listen $ADDRESS:443 ssl http2;
    server_name $GATEWAY;
    location ~ ^$PATH(/(oauth/|device$|sign-in/|account/|assets/|poppy/sign-in|poppy/browser-session).*)$ { proxy_pass http://auth$1$is_args$args; }
    location $PATH/poppy/conversations { proxy_pass http://conversations/poppy/conversations; }
    location $PATH/ { proxy_pass http://discovery/; }
    location /.well-known/ { proxy_pass http://discovery; }
  }
  server {
    listen $ADDRESS:443 ssl http2;
    server_name $API;
    location / { proxy_pass https://$ADMIN; proxy_buffering off; }
  }
}
`
