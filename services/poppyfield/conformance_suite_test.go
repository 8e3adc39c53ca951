package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/conversations"
	discovery "github.com/poppyfield/poppyfield/services/discovery/app"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/peer"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

// patience is how long a test waits for what must come.
const patience = 45 * time.Second

// installation is the complete process as `serve` assembles it, on one kind of
// database and NATS, with the world around it. It serves all tests of the suite, and
// each makes Companies of its own. Tests reach it as the Internet does.
type installation struct {
	process *process
	ca      *devca.CA
	address string // of the listener for Companies and the admin API
	hosted  string // Companies are at {slug}.{hosted}
	begun   time.Time
	web     *world
	client  *http.Client
	log     *fixture.Lines

	mu    sync.Mutex
	shops []string // names of websites that no Company has yet
}

var suite struct {
	sqlite, postgres shared
}

// shared is an installation that the first test in need of it starts.
type shared struct {
	once sync.Once
	in   *installation
	tb   *suiteTB
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait more than they work.
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := f.Value.Set("8"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	for name, s := range map[string]*shared{"sqlite": &suite.sqlite, "postgres": &suite.postgres} {
		if s.tb != nil && !s.tb.end() && code == 0 {
			code = 1
		}
		if code != 0 && s.in != nil {
			keepLog(name, s.in.log.String())
		}
	}
	os.Exit(code)
}

// keepLog leaves the log of an installation whose tests failed for whoever looks into it.
func keepLog(name, log string) {
	f, err := os.CreateTemp("", "conformance-"+name+"-*.log")
	if err == nil {
		_, err = io.WriteString(f, log)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keeping the log:", err)
		return
	}
	fmt.Fprintf(os.Stderr, "the log of the installation on %s is in %s\n", name, f.Name())
}

// forEachInstallation runs fn on the process with SQLite and embedded NATS and on
// the one with PostgreSQL and a NATS server, at the same time.
func forEachInstallation(t *testing.T, fn func(*testing.T, *installation)) {
	t.Helper()
	t.Parallel()
	for _, d := range []struct {
		name  string
		kept  *shared
		start func(testing.TB) *installation
	}{
		{"sqlite", &suite.sqlite, startOnSQLite},
		{"postgres", &suite.postgres, startOnPostgres},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.kept.once.Do(func() {
				d.kept.tb = newSuiteTB(t)
				d.kept.in = d.start(d.kept.tb)
			})
			require.NotNil(t, d.kept.in, "the installation did not start")
			fn(t, d.kept.in)
		})
	}
}

func startOnSQLite(t testing.TB) *installation { return tunedOnSQLite(t, nil) }

func tunedOnSQLite(t testing.TB, tune func(*Config, *processOptions)) *installation {
	dir := t.TempDir()
	var cfg Config
	cfg.Database.DSN = "sqlite:" + filepath.Join(dir, "poppyfield.db")
	cfg.NATS.storeDir = filepath.Join(dir, "nats")
	return startInstallation(t, cfg, tune)
}

func startOnPostgres(t testing.TB) *installation { return tunedOnPostgres(t, nil) }

func tunedOnPostgres(t testing.TB, tune func(*Config, *processOptions)) *installation {
	var cfg Config
	cfg.Database.DSN = pgtest.New(t, migrateForSuite)
	cfg.NATS.URL = natstest.Start(t).URL()
	return startInstallation(t, cfg, tune)
}

func migrateForSuite(ctx context.Context, url string) error {
	d, err := db.Open(db.Config{DSN: url})
	if err != nil {
		return err
	}
	return errors.Join(d.Migrate(ctx), d.Close())
}

// shopCount is how many domains the tests of one installation may use.
const shopCount = 60

// startInstallation starts an installation; tune, where there is one, changes what it is like.
func startInstallation(t testing.TB, cfg Config, tune func(*Config, *processOptions)) *installation {
	in := &installation{web: newWorld(), log: &fixture.Lines{}}
	names := []string{agentsHost, backendHost}
	for i := range shopCount {
		in.shops = append(in.shops, fmt.Sprintf("shop-%d.example", i), fmt.Sprintf("sub.shop-%d.example", i))
	}
	names = append(names, in.shops...)
	in.shops = in.shops[:0:0]
	for i := range shopCount {
		in.shops = append(in.shops, fmt.Sprintf("shop-%d.example", i))
	}
	outside := peer.Start(t, in.web, names...)
	dir := t.TempDir()
	var err error
	in.ca, err = devca.Load(dir, clock.System)
	require.NoError(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	in.address = lis.Addr().String()
	_, port, err := net.SplitHostPort(in.address)
	require.NoError(t, err)
	in.hosted = net.JoinHostPort(devDomain, port)

	cfg.Services, cfg.HostedDomain, cfg.LogFormat, cfg.LogLevel = allServices(), in.hosted, "json", "debug"
	cfg.KeysFile = filepath.Join(dir, "keys")
	_, err = keys.LoadOrCreate(cfg.KeysFile)
	require.NoError(t, err)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	cfg.Internal.secret = hex.EncodeToString(secret)
	// An operator may set bounds; these let a test see the end of what lasts for days.
	cfg.Bounds = discovery.DefaultBounds()
	cfg.Bounds.Min.SessionTokenLifetime, cfg.Bounds.Min.EventRetention = time.Second, time.Second
	cfg.Bounds.Min.ConversationIdleLifetime, cfg.Bounds.Min.AnswerDeadline = time.Second, 200*time.Millisecond

	devHosts, err := egress.ParseDevHosts(outside.DevHosts())
	require.NoError(t, err)
	roots, err := egress.LoadRoots([]string{outside.CAFile, in.ca.File()})
	require.NoError(t, err)
	conf := in.ca.ServerConfig(func(name string) bool {
		return name == apiHost || strings.HasSuffix(name, "."+devDomain) || strings.HasPrefix(name, browserHost)
	})
	options := processOptions{
		devHosts: devHosts, roots: roots, migrate: true, logWriter: in.log, adminTLS: conf,
		auth:          auth.Config{RequestsPerMinute: 300},
		replayTimeout: patience, // a machine that is busy with tests is no NATS that is away
		conversations: conversations.Config{DeadlineEvery: 100 * time.Millisecond, CloseEvery: 200 * time.Millisecond, PruneEvery: 200 * time.Millisecond},
	}
	if tune != nil {
		tune(&cfg, &options)
	}
	in.process, err = newProcess(t.Context(), cfg, options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := in.process.stop(context.Background()); err != nil {
			t.Errorf("stopping the process: %v", err)
		}
	})
	public := in.process.standard("public", in.process.graph.router(), publicBody, false)
	err = in.process.start(t.Context(), surface{name: "https", lis: lis, handler: byHost(in.process.graph.admin.HTTP(), public), tls: conf})
	require.NoError(t, err)
	require.NoError(t, in.process.whenReady(t.Context()))
	in.begun = time.Now()
	outsideCA, err := os.ReadFile(outside.CAFile)
	require.NoError(t, err)
	world := map[string]string{}
	for _, h := range outside.DevHosts() {
		name, at, _ := strings.Cut(h, "=")
		world[name] = at
	}
	in.client = in.newClient(t, pool(t, in.ca.PEM(), outsideCA), world)
	return in
}

// ago is a time in the past, though not from before the installation was there: who
// remembers nothing of a time takes no proof of it.
func (in *installation) ago(d time.Duration) time.Time {
	at := time.Now().Add(-d)
	if at.Before(in.begun) {
		return in.begun
	}
	return at
}

// suiteTB is what an installation hangs on: it outlives the test that started it.
type suiteTB struct {
	testing.TB // of the test that started it, for failures before the end
	mu         sync.Mutex
	cleanups   []func()
	ending     bool
	failed     bool
}

func newSuiteTB(t testing.TB) *suiteTB { return &suiteTB{TB: t} }

func (s *suiteTB) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

func (s *suiteTB) Context() context.Context { return context.Background() }

func (s *suiteTB) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance-*")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

func (s *suiteTB) Error(args ...any) { s.Errorf("%s", fmt.Sprintln(args...)) }

func (s *suiteTB) Errorf(format string, args ...any) {
	s.mu.Lock()
	ending := s.ending
	s.failed = s.failed || ending
	s.mu.Unlock()
	if !ending {
		s.TB.Errorf(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "at the end of the suite: "+format+"\n", args...)
}

// end undoes everything, last thing first, and reports whether all of it went well.
func (s *suiteTB) end() bool {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for len(s.cleanups) > 0 {
		last := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		last()
	}
	return !s.failed
}

// until waits for cond, which is asked again and again in the test's goroutine.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			require.FailNow(t, "it did not happen in time: "+what)
		case <-tick.C:
		}
	}
}

func pool(t testing.TB, pems ...[]byte) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	for _, one := range pems {
		require.True(t, p.AppendCertsFromPEM(one))
	}
	return p
}
