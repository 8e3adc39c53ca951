package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/demo"
	discovery "github.com/poppyfield/poppyfield/services/discovery/app"
)

// Names of the development installation. RFC 6761 keeps .localhost on this machine.
const (
	devDomain    = "poppyfield.localhost" // Companies are at {slug}.poppyfield.localhost
	apiHost      = "localhost"
	demoDomain   = "noodle-bar.localhost"
	accountsHost = "accounts." + demoDomain // the demo Company's identity provider
	agentHost    = "agent.localhost"

	demoWebhook = "webhook"
	demoStream  = "stream"
)

type devFlags struct {
	dataDir, listen, readyFile string
	hosts, trustCA             []string
	demo                       bool
	demoBackend, logLevel      string
}

func devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process on embedded parts, with a demo Company",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return dev(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.dataDir, "data-dir", ".data", "directory of the database, the keys and the CA")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8443", "address of the HTTPS listener; port 0 chooses one and keeps it for this data directory")
	fl.StringVar(&f.readyFile, "ready-file", "", "file to write, as JSON, once everything answers; always written to ready.json in the data directory")
	fl.StringArrayVar(&f.hosts, "dev-host", nil, "NAME=IP[:PORT]: reach NAME at this loopback address, past the address guard (repeatable)")
	fl.StringArrayVar(&f.trustCA, "trust-ca", nil, "PEM file of a CA to trust when reaching out (repeatable)")
	fl.BoolVar(&f.demo, "demo", true, "run the demo Company")
	fl.StringVar(&f.demoBackend, "demo-backend", demoWebhook, "how the demo Company's backend is reached: webhook, or stream for one that connects to us")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// check refuses flags that can't work before anything is written.
func (f devFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen %s: dev serves loopback addresses only", f.listen)
	}
	if _, err := egress.ParseDevHosts(f.hosts); err != nil {
		return fmt.Errorf("--dev-host: %w", err)
	}
	if f.demoBackend != demoWebhook && f.demoBackend != demoStream {
		return fmt.Errorf("--demo-backend %s: %s or %s is wanted", f.demoBackend, demoWebhook, demoStream)
	}
	if err := new(slog.Level).UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	return nil
}

// ready is the ready file.
type ready struct {
	PublicOrigin  string            `json:"public_origin"`
	ConsoleOrigin string            `json:"console_origin"`
	APIOrigin     string            `json:"api_origin"`
	GRPCAddress   string            `json:"grpc_address"`
	MetricsOrigin string            `json:"metrics_origin"`
	CAFile        string            `json:"ca_file"`
	OperatorKey   string            `json:"operator_api_key"`
	DemoDomain    string            `json:"demo_domain,omitempty"`
	DemoIssuer    string            `json:"demo_issuer,omitempty"`
	DemoCompany   string            `json:"demo_company,omitempty"`
	DemoKey       string            `json:"demo_company_api_key,omitempty"`
	Accounts      string            `json:"accounts_origin,omitempty"`
	HostedDomain  string            `json:"hosted_domain"`
	Hosts         map[string]string `json:"hosts"`
}

func dev(ctx context.Context, f devFlags) (err error) {
	if err := f.check(); err != nil {
		return usageError{err}
	}
	dir, err := filepath.Abs(f.dataDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lis, err := devListeners(dir, f.listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lis.close()) }()
	readyFiles := []string{filepath.Join(dir, "ready.json")}
	if f.readyFile != "" {
		readyFiles = append(readyFiles, f.readyFile)
	}
	// Those of an earlier run say nothing of this one. With the ports at hand none is of a run that goes on.
	for _, name := range readyFiles {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	ca, err := devca.Load(dir, clock.System)
	if err != nil {
		return err
	}
	hosts := f.hosts
	if f.demo {
		hosts = append([]string{demoDomain + "=" + lis.state.Demo, accountsHost + "=" + lis.state.Demo}, hosts...)
	}
	hosts = append([]string{agentHost + "=" + lis.state.Agent}, hosts...)
	devHosts, err := egress.ParseDevHosts(hosts)
	if err != nil {
		return err
	}
	cfg, err := devConfig(dir, lis.state.Listen, f)
	if err != nil {
		return err
	}
	roots, err := egress.LoadRoots(append([]string{ca.File()}, f.trustCA...))
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(lis.state.Listen)
	if err != nil {
		return err
	}
	conf := ca.ServerConfig(func(name string) bool {
		return name == apiHost || strings.HasSuffix(name, "."+devDomain)
	})
	p, err := newProcess(ctx, cfg, processOptions{devHosts: devHosts, roots: roots, migrate: true, logWriter: os.Stderr, adminTLS: conf})
	if err != nil {
		return err
	}
	log := p.tel.Logger()
	for _, name := range slices.Sorted(maps.Keys(devHosts)) {
		log.WarnContext(ctx, "DEV HOST: the address guard lets this name reach loopback", "name", name, "address", devHosts[name].Addr.String(), "port", devHosts[name].Port)
	}
	operatorKey, err := keptSecret(filepath.Join(dir, "operator-key"), admin.NewKey)
	if err == nil {
		err = admin.EnsureOperatorKey(ctx, p.db, "dev", operatorKey)
	}
	if err != nil {
		return errors.Join(err, p.close(ctx))
	}
	public := p.standard("public", p.graph.router(), publicBody, false)
	err = p.start(ctx,
		surface{name: "https", lis: lis.https, handler: byHost(p.graph.admin.HTTP(), public), tls: conf},
		surface{name: "metrics", lis: lis.metrics, handler: p.operations()})
	if err != nil {
		return errors.Join(err, p.stop(ctx))
	}
	go func() {
		if err := p.graph.admin.ServeGRPC(lis.grpc); err != nil {
			p.failed <- fmt.Errorf("admin grpc: %w", err)
		}
	}()
	origin := "https://" + net.JoinHostPort(apiHost, port)
	r := ready{
		PublicOrigin: origin, ConsoleOrigin: origin, APIOrigin: origin, GRPCAddress: lis.state.GRPC, MetricsOrigin: "http://" + lis.state.Metrics,
		CAFile: ca.File(), OperatorKey: operatorKey, HostedDomain: cfg.HostedDomain,
		Hosts: map[string]string{agentHost: lis.state.Agent, "*." + devDomain: lis.state.Listen},
	}
	err = p.whenReady(ctx)
	var shop *demo.Shop
	if err == nil && f.demo {
		r.Hosts[demoDomain], r.Hosts[accountsHost] = lis.state.Demo, lis.state.Demo
		r.Hosts["noodle-bar."+devDomain] = lis.state.Listen
		streamAddress := ""
		if f.demoBackend == demoStream {
			streamAddress = lis.state.GRPC
		}
		shop, err = demo.Start(ctx, demo.Config{
			StreamAddress: streamAddress,
			APIOrigin:     origin, OperatorKey: operatorKey, Roots: ca.Pool(),
			Hosts: map[string]string{
				apiHost: lis.state.Listen, "noodle-bar." + devDomain: lis.state.Listen, demoDomain: lis.state.Demo, accountsHost: lis.state.Demo,
			},
			Domain: demoDomain, AccountsDomain: accountsHost, Listener: lis.demo,
			TLS:     ca.ServerConfig(func(name string) bool { return name == demoDomain || name == accountsHost }),
			DataDir: filepath.Join(dir, "demo"), Now: clock.System, Log: log,
		})
		if err == nil {
			got := shop.Result()
			_, demoPort, _ := net.SplitHostPort(lis.state.Demo)
			r.DemoDomain, r.DemoIssuer, r.DemoCompany, r.DemoKey = net.JoinHostPort(demoDomain, demoPort), got.Issuer, got.Company, got.APIKey
			r.Accounts = got.Accounts
		}
	}
	if err != nil {
		return errors.Join(err, p.stop(ctx))
	}
	for _, name := range readyFiles {
		if err := writeReady(name, r); err != nil {
			return errors.Join(err, p.stop(ctx))
		}
	}
	printReady(dir, r)
	err = p.wait(ctx)
	if shop != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, shop.Shutdown(end))
	}
	return errors.Join(err, p.stop(ctx))
}

// byHost serves the API and console on their own name and the Companies on every other.
func byHost(api, public http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, ok := httpx.NormalizeHost(r.Host)
		ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
		if ok && (name == apiHost || err == nil && ip.IsLoopback()) {
			api.ServeHTTP(w, r)
			return
		}
		public.ServeHTTP(w, r)
	})
}

func devConfig(dir, listen string, f devFlags) (Config, error) {
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return Config{}, err
	}
	cfg := Config{
		Services: allServices(), HostedDomain: net.JoinHostPort(devDomain, port), TrustCA: f.trustCA, KeysFile: filepath.Join(dir, "keys"),
		LogFormat: "text", LogLevel: f.logLevel, Bounds: discovery.DefaultBounds(),
		RequestsPerAddress: -1, // everybody is at one address
	}
	cfg.Database.DSN = "sqlite:" + filepath.Join(dir, "poppyfield.db")
	cfg.NATS.storeDir = filepath.Join(dir, "nats")
	if _, err := keys.LoadOrCreate(cfg.KeysFile); err != nil {
		return Config{}, err
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return Config{}, err
	}
	cfg.Internal.secret = hex.EncodeToString(raw) // never leaves the process
	return cfg, nil
}

// keptSecret returns the secret in a file, making both when they are missing.
func keptSecret(path string, fresh func() string) (string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s := fresh()
		return s, writeWhole(path, []byte(s+"\n"))
	}
	return strings.TrimSpace(string(raw)), err
}

// whenReady waits until every module is ready.
func (p *process) whenReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.group.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		case err := <-p.failed:
			return err
		case <-tick.C:
		}
	}
}

// writeReady writes a ready file.
func writeReady(name string, r ready) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(name, append(raw, '\n'))
}

// writeWhole puts a file in place that is whole for whoever sees it, also when the
// process is killed meanwhile.
func writeWhole(name string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

func printReady(dir string, r ready) {
	bin := os.Args[0]
	fmt.Printf("\nPoppyfield is ready.\n\n")
	if r.DemoDomain != "" {
		fmt.Printf("  The demo Company's website       https://%s/\n", r.DemoDomain)
		fmt.Printf("  Its document, by redirect        https://%s/.well-known/poppy.json\n", r.DemoDomain)
		fmt.Printf("  Its issuer                       %s\n", r.DemoIssuer)
		fmt.Printf("  Its own identity provider        %s\n", r.Accounts)
		fmt.Printf("  Its MCP server                   https://%s/mcp\n", r.DemoDomain)
	}
	fmt.Printf("  Admin API (OpenAPI)              %s/v1/openapi.yaml\n", r.APIOrigin)
	fmt.Printf("  Keys and addresses               %s\n", filepath.Join(dir, "ready.json"))
	fmt.Printf("  CA to trust                      %s\n\n", r.CAFile)
	if r.DemoDomain != "" {
		fmt.Printf("Talk to it as a personal agent, in another terminal:\n\n  %s agent talk --dev %s %s \"Where is my order?\"\n\n", bin, dir, r.DemoDomain)
		fmt.Printf("Let it sign in as the customer Mia or Ken (the login page says how), and ask again:\n\n  %s agent sign-in --dev %s %s\n\n", bin, dir, r.DemoDomain)
		fmt.Printf("Sit down at its inbox, to take conversations over from its agent:\n\n  %s desk --dev %s --as anna\n\n", bin, dir)
		fmt.Printf("See and disconnect what is connected at https://%s/account\n\n", r.DemoDomain)
	}
}
