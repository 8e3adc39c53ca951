// Package bustest runs NATS servers as processes of their own for tests: the test
// binary starts itself again, so that a server can be killed as the system kills
// one. A package that uses StartServer runs its tests through Main.
package bustest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

const environment = "POPPYFIELD_BUSTEST_SERVER"

// Main runs the tests, or a NATS server in the child that StartServer made.
func Main(m *testing.M) {
	arg := os.Getenv(environment)
	if arg == "" {
		os.Exit(m.Run())
	}
	port, dir, _ := strings.Cut(arg, ":")
	if err := serve(port, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(port, dir string) error {
	p, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: p, JetStream: true, StoreDir: dir})
	if err != nil {
		return err
	}
	ns.Start()
	ns.WaitForShutdown()
	return nil
}

// Server is a NATS server with JetStream in a process of its own, on a loopback port that it keeps.
type Server struct {
	t    testing.TB
	port int
	dir  string
	cmd  *exec.Cmd
}

// StartServer starts a server with an empty store; it is killed at the end of the test.
func StartServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, port: FreePort(t), dir: t.TempDir()}
	t.Cleanup(s.Kill)
	s.Start()
	return s
}

// URL returns the server's address.
func (s *Server) URL() string { return "nats://127.0.0.1:" + strconv.Itoa(s.port) }

// Start runs the server, on the store that it had before, and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), environment+"="+strconv.Itoa(s.port)+":"+s.dir)
	s.cmd.Stderr = os.Stderr
	require.NoError(s.t, s.cmd.Start())
	require.Eventually(s.t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.port))
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, 30*time.Second, 10*time.Millisecond)
}

// Kill ends the server as SIGKILL does. A server that does not run is left alone.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may be gone already
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Erase deletes the store of a server that does not run.
func (s *Server) Erase() {
	s.t.Helper()
	require.Nil(s.t, s.cmd, "the server still runs")
	require.NoError(s.t, os.RemoveAll(s.dir))
}

// FreePort returns a loopback port that nobody uses at the moment.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
