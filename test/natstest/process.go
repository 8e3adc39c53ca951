package natstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/poppyfield/poppyfield/test/child"
)

const (
	module = "github.com/nats-io/nats-server/v2"

	startTimeout = 30 * time.Second
	stopTimeout  = 20 * time.Second
)

// A Server is a nats-server process.
type Server struct {
	binary, dir string
	port        int
	process     *child.Process
}

// Start starts a server for one test and ends it with the test. Its data goes with
// the test too.
func Start(t testing.TB) *Server {
	t.Helper()
	binary, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{binary: binary, dir: t.TempDir()}
	// The free port is found by binding it, so another process may take it first.
	for range 5 {
		if s.port, err = child.FreePort(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.process.Stop(stopTimeout); err != nil {
			t.Error(err)
		}
	})
	return s
}

// URL is where clients connect. It stays the same when the server starts again.
func (s *Server) URL() string { return "nats://127.0.0.1:" + strconv.Itoa(s.port) }

// Kill ends the server at once, with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Restart starts a killed server again on the same port and data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Connect returns a connection that closes with the test.
func (s *Server) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	c, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (s *Server) run() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	config := filepath.Join(s.dir, "nats.conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream { store_dir: %q, sync_interval: 1s }\n",
		s.port, filepath.Join(s.dir, "store"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	s.process, err = child.Start(child.Spec{Path: s.binary, Args: []string{"-c", config}, Output: log})
	if err != nil {
		return err
	}
	return s.awaitReady()
}

func (s *Server) awaitReady() error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.answers()
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
		case <-timeout.C:
			err = errors.Join(err, s.process.Stop(stopTimeout))
		case <-tick.C:
			continue
		}
		text, _ := os.ReadFile(filepath.Join(s.dir, "log")) // what there is helps
		return fmt.Errorf("nats-server did not start: %w\n%s", err, text)
	}
}

// answers says whether the server takes clients and JetStream is up.
func (s *Server) answers() error {
	c, err := nats.Connect(s.URL(), nats.MaxReconnects(0))
	if err != nil {
		return err
	}
	defer c.Close()
	js, err := c.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AccountInfo()
	return err
}

// Build makes the server's binary, where it is not there yet: for callers that have no
// network to fetch modules from when they start a server.
func Build(ctx context.Context) error {
	_, err := build(ctx)
	return err
}

// build returns the server's binary, which the first call on a machine builds. The
// file appears when it is whole, so test binaries that build at once do no harm.
func build(ctx context.Context) (string, error) {
	version, err := moduleVersion(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "poppyfield", "bin")
	binary := filepath.Join(dir, "nats-server-"+version)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	part := fmt.Sprintf("%s.%d", binary, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-o", part, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building nats-server: %w\n%s", err, out)
	}
	return binary, os.Rename(part, binary)
}

func moduleVersion(ctx context.Context) (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version, nil
			}
		}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("asking for the version of nats-server: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
