package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/poppyfield/poppyfield/test/child"
)

const (
	superuser = "postgres"
	// Role is who tests connect as: owner of its databases, no superuser, bound by
	// row-level security.
	Role = "poppyfield"

	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
)

// Options choose how a server of Start keeps its data.
type Options struct {
	// Durable makes commits wait for the disk, as in production. Benchmarks and tests
	// that crash the server need it; others are faster without.
	Durable bool
}

// A Server is a running PostgreSQL.
type Server struct {
	bin, dir   string
	port       int
	durable    bool
	credential *syscall.Credential
	process    *child.Process
}

// Start starts a server for one test and ends it with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Database makes an empty database that Role owns and returns its URL.
func (s *Server) Database(t testing.TB, name string) string {
	t.Helper()
	url, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Create is Database for callers that are no tests.
func (s *Server) Create(ctx context.Context, name string) (string, error) {
	return s.url(Role, name), s.createDatabase(ctx, name, "")
}

// Close ends the server and removes its data.
func (s *Server) Close() error {
	return errors.Join(s.process.Stop(stopTimeout), os.RemoveAll(s.dir))
}

// Crash kills the server at once, as a power failure of its process would.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	// SIGQUIT is PostgreSQL's own way to end all its processes without a checkpoint.
	if err := s.process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-s.process.Done()
}

// Restart starts a crashed server again on the same port and data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Open starts a server that its caller ends with Close.
func Open(o Options) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := dataDir(credential)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, durable: o.Durable, credential: credential}
	if err := s.init(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// The free port is found by binding it, so another process may take it before
	// PostgreSQL does.
	for range 5 {
		if s.port, err = child.FreePort(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			break
		}
	}
	if err == nil {
		err = s.createRole()
	}
	if err != nil {
		if s.process != nil {
			err = errors.Join(err, s.process.Stop(stopTimeout))
		}
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// binaries finds the newest PostgreSQL as Debian installs it.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL under /usr/lib/postgresql: run `make setup`, or apt-get install postgresql")
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func version(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // anything else sorts first
	return n
}

// unprivileged returns who runs the server, because PostgreSQL refuses to run as root.
// For anybody else it returns nil: the server runs as the caller.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else is a right answer
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root and the user postgres is missing: run `make setup`: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// dataDir makes a folder for the server that its user can reach.
func dataDir(c *syscall.Credential) (string, error) {
	base := os.TempDir()
	if c != nil && !traversable(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "poppyfield-pg-")
	if err != nil {
		return "", err
	}
	if c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// traversable says whether everybody may enter dir and all folders above it.
func traversable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func (s *Server) init() error {
	log, err := s.log()
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := child.Start(child.Spec{
		Path: filepath.Join(s.bin, "initdb"),
		Args: []string{
			"-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions",
		},
		Dir: s.dir, Env: s.env(), Output: log, Credential: s.credential, Scratch: s.dir,
	})
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, s.logged())
	}
	return nil
}

func (s *Server) log() (*os.File, error) {
	return os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
}

// logged returns what the server said so far, or nothing.
func (s *Server) logged() []byte {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return text
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) env() []string {
	return []string{"HOME=" + s.dir, "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
}

func (s *Server) run() error {
	log, err := s.log()
	if err != nil {
		return err
	}
	defer log.Close()
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=",
		"max_connections=400", "shared_buffers=64MB", "timezone=UTC", "log_min_messages=warning",
	}
	if !s.durable {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	args := []string{"-D", s.data()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s.process, err = child.Start(child.Spec{
		Path: filepath.Join(s.bin, "postgres"), Args: args, Dir: s.dir, Env: s.env(), Output: log,
		// "Fast": sessions are ended, data is written. The watchdog throws it away anyway.
		Credential: s.credential, StopSignal: syscall.SIGINT, Scratch: s.dir,
	})
	if err != nil {
		return err
	}
	return s.awaitReady()
}

func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := pgx.Connect(ctx, s.url(superuser, "postgres"))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-s.process.Done():
		case <-ctx.Done():
			err = errors.Join(err, s.process.Stop(stopTimeout))
		case <-tick.C:
			continue
		}
		return fmt.Errorf("PostgreSQL did not start: %w\n%s", err, s.logged())
	}
}

func (s *Server) createRole() error {
	return s.asSuperuser(context.Background(),
		"CREATE ROLE "+Role+" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS")
}

// createDatabase makes a database that Role owns, as a copy of template unless that
// is empty. Nobody may be connected to the template meanwhile.
func (s *Server) createDatabase(ctx context.Context, name, template string) error {
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " OWNER " + Role
	if template != "" {
		sql += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	return s.asSuperuser(ctx, sql)
}

func (s *Server) dropDatabase(ctx context.Context, name string) error {
	return s.asSuperuser(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

func (s *Server) asSuperuser(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, s.url(superuser, "postgres"))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql)
	return errors.Join(err, c.Close(ctx))
}

func (s *Server) url(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, s.port, database)
}
