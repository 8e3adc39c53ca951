package whole

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/child"
	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/peer"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

// Names that lead to the reverse proxy.
const (
	HostedDomain = "hosted.poppy.test"
	APIHost      = "api.poppy.test"
	// GatewayHost has a Company below GatewayPath, which the proxy takes off.
	GatewayHost = "gateway.poppy.test"
	GatewayPath = "/t/acme"
)

// ProxyHosts are all names of the installation: slugs are of Companies that tests make.
func ProxyHosts(slugs ...string) []string {
	out := []string{APIHost, GatewayHost}
	for _, s := range slugs {
		out = append(out, s+"."+HostedDomain)
	}
	return out
}

// services in the order of their dependencies.
func services() []string {
	return []string{"relay", "discovery", "sessions", "auth", "conversations", "admin"}
}

// InstallationOptions say how an installation is started.
type InstallationOptions struct {
	// Split gives every service a process of its own.
	Split bool
	// MutualTLS makes the processes prove themselves to each other by certificates.
	MutualTLS bool
	// Durable makes PostgreSQL survive a crash.
	Durable bool
	// Collector is otlp_endpoint.
	Collector string
	LogLevel  string
	// DrainDelay is drain_delay, such as "2s".
	DrainDelay string
	// MaxReaders is max_readers.
	MaxReaders int
	// StockProxy leaves nginx as Debian configures it, but for where it listens and
	// where it passes requests on to. It is for one process.
	StockProxy bool
	// Pages is a folder that a StockProxy serves as /pages/ of every Company.
	Pages string
}

// An Installation is `poppyfield serve` on PostgreSQL and NATS behind nginx. The test
// binary has to be inside of publicnet.
type Installation struct {
	PostgreSQL *pgtest.Server
	NATS       *natstest.Server
	DSN        string
	// API has the operator's key.
	API API
	// Client trusts the proxy and the outside world, and follows no redirect.
	Client *http.Client
	// GRPC is the address of the gRPC API, with a certificate for APIHost.
	GRPC string
	// Roots are the CAs that Client trusts; CAFile has the proxy's.
	Roots  *x509.CertPool
	CAFile string
	// Processes are by name: a service, or "all".
	Processes map[string]*ServeProcess

	binary string
	dir    string
	nginx  *child.Process
}

// A ServeProcess is one `poppyfield serve`.
type ServeProcess struct {
	*child.Process
	Config, Log string
	// Public is where it answers plain HTTP behind the proxy; Metrics has its health.
	Public, Metrics string

	admin  string
	binary string
	client *http.Client
}

// Serve starts an installation and ends it with the test.
func Serve(t testing.TB, o *Outside, opt InstallationOptions) *Installation {
	t.Helper()
	binary, err := devserver.FindBinary()
	require.NoError(t, err)
	i := &Installation{
		PostgreSQL: pgtest.Start(t, pgtest.Options{Durable: opt.Durable}), NATS: natstest.Start(t), Processes: map[string]*ServeProcess{},
		binary: binary, dir: t.TempDir(),
	}
	i.DSN = i.PostgreSQL.Database(t, "poppyfield")
	names := append(ProxyHosts(), "*."+HostedDomain)
	certificate := peer.NewCertificate(t, names...)
	i.CAFile = certificate.CA
	i.trust(t, certificate.CA, o.CAFile)

	groups := map[string][]string{"all": services()}
	if opt.Split {
		groups = map[string][]string{}
		for _, s := range services() {
			groups[s] = []string{s}
		}
	}
	base := i.base(t, o, opt, certificate)
	ports := map[string]string{}
	for name := range groups {
		ports[name] = freeAddress(t)
	}
	for name, group := range groups {
		i.Processes[name] = i.configure(t, name, group, base, ports, certificate)
	}
	first := i.Processes[anyOf(groups)]
	i.run(t, "migrate", "--config", first.Config)
	i.API = API{
		Origin: "https://" + APIHost, Client: i.Client,
		Key: strings.TrimSpace(i.run(t, "operator-key", "--config", first.Config, "--name", "test")),
	}
	for _, p := range i.Processes {
		p.Start(t)
	}
	for _, p := range i.Processes {
		p.AwaitReady(t)
	}
	i.proxy(t, opt, certificate)
	return i
}

func anyOf(groups map[string][]string) string {
	for name := range groups {
		return name
	}
	return ""
}

func (i *Installation) trust(t testing.TB, files ...string) {
	t.Helper()
	i.Roots = x509.NewCertPool()
	for _, file := range files {
		pem, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, i.Roots.AppendCertsFromPEM(pem))
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: i.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 256,
	}
	t.Cleanup(transport.CloseIdleConnections)
	i.Client = &http.Client{
		Transport: transport, Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// base is the configuration that all processes share.
func (i *Installation) base(t testing.TB, o *Outside, opt InstallationOptions, certificate peer.Certificate) map[string]any {
	t.Helper()
	internal := map[string]any{"secret_file": i.write(t, "internal-secret", randomText())}
	if opt.MutualTLS {
		c := peer.NewCertificate(t, "localhost")
		internal["cert_file"], internal["key_file"], internal["ca_file"] = c.Chain, c.Key, c.CA
	}
	return map[string]any{
		"database":      map[string]any{"dsn_file": i.write(t, "dsn", i.DSN)},
		"nats":          map[string]any{"url": i.NATS.URL()},
		"keys_file":     i.write(t, "keys", "1:"+randomText()),
		"internal":      internal,
		"hosted_domain": HostedDomain, "trusted_proxies": []string{"127.0.0.0/8"}, "trust_ca": []string{certificate.CA, o.CAFile},
		"log_level": opt.LogLevel, "otlp_endpoint": opt.Collector, "drain_delay": cmp.Or(opt.DrainDelay, "0s"), "max_readers": opt.MaxReaders,
	}
}

func randomText() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

func (i *Installation) write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(i.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	return path
}

func (i *Installation) configure(
	t testing.TB, name string, group []string, base map[string]any, ports map[string]string, certificate peer.Certificate,
) *ServeProcess {
	t.Helper()
	config := map[string]any{"services": group, "metrics": freeAddress(t)}
	for k, v := range base {
		config[k] = v
	}
	internal := map[string]any{}
	for k, v := range base["internal"].(map[string]any) {
		internal[k] = v
	}
	if len(ports) > 1 {
		targets := map[string]string{}
		for other, address := range ports {
			if other != name {
				targets[other] = address
			}
		}
		internal["listen"], internal["targets"] = ports[name], targets
	}
	config["internal"] = internal
	p := &ServeProcess{
		Log: filepath.Join(i.dir, name+".log"), Metrics: "http://" + config["metrics"].(string), binary: i.binary, client: i.Client,
	}
	for _, s := range group {
		switch s {
		case "discovery", "auth", "conversations":
			if p.Public == "" {
				p.Public = freeAddress(t)
			}
			config["public"] = map[string]any{"listen": p.Public}
		case "admin":
			i.GRPC = freeAddress(t)
			config["admin"] = map[string]any{
				"listen": freeAddress(t), "grpc": i.GRPC, "cert_file": certificate.Chain, "key_file": certificate.Key,
			}
			p.admin = config["admin"].(map[string]any)["listen"].(string)
		}
	}
	text, err := json.MarshalIndent(config, "", "  ") // YAML takes JSON
	require.NoError(t, err)
	p.Config = i.write(t, name+".yaml", string(text))
	return p
}

// freeAddress is one of localhost that certificates can name.
func freeAddress(t testing.TB) string {
	t.Helper()
	port, err := child.FreePort()
	require.NoError(t, err)
	return "localhost:" + strconv.Itoa(port)
}

// run runs a command of the binary to its end and returns what it prints.
func (i *Installation) run(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), i.binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s: %s", args, &stderr)
	return stdout.String()
}

// Start starts the process and ends it with the test.
func (p *ServeProcess) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	process, err := child.Start(child.Spec{Path: p.binary, Args: []string{"serve", "--config", p.Config}, Output: log})
	require.NoError(t, err)
	p.Process = process
	t.Cleanup(func() {
		require.NoError(t, process.Stop(20*time.Second))
		if t.Failed() {
			text, _ := os.ReadFile(p.Log) // what there is helps
			t.Logf("the end of %s:\n%s", p.Log, text[max(0, len(text)-8<<10):])
		}
	})
}

// Health is the status of /livez or /readyz; 0 when there is no answer.
func (p *ServeProcess) Health(t testing.TB, path string) int {
	t.Helper()
	answer, err := get(t.Context(), p.client, p.Metrics+path)
	if err != nil {
		return 0
	}
	return answer.Status
}

// AwaitReady waits until the process is ready.
func (p *ServeProcess) AwaitReady(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Health(t, "/readyz") == http.StatusOK }, 40*time.Second, 20*time.Millisecond,
		"%s is not ready", p.Config)
}
