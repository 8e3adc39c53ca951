package devserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/poppyfield/poppyfield/test/child"
)

// Binary names the environment variable with the binary's path; without it the one
// that `make build` leaves in .bin is used.
const Binary = "POPPYFIELD_BIN"

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Options say how the server is started.
type Options struct {
	// DevHosts are values of --dev-host, NAME=IP:PORT.
	DevHosts []string
	// TrustCA are files of --trust-ca.
	TrustCA []string
	// DataDir keeps the server's data; empty means a folder that goes with the test.
	DataDir string
	// Flags are further flags of `poppyfield dev`.
	Flags []string
}

// Ready is the content of the ready file.
type Ready struct {
	PublicOrigin      string            `json:"public_origin"`
	ConsoleOrigin     string            `json:"console_origin"`
	APIOrigin         string            `json:"api_origin"`
	GRPCAddress       string            `json:"grpc_address"`
	MetricsOrigin     string            `json:"metrics_origin"`
	CAFile            string            `json:"ca_file"`
	DemoDomain        string            `json:"demo_domain"`
	DemoIssuer        string            `json:"demo_issuer"`
	OperatorAPIKey    string            `json:"operator_api_key"`
	DemoCompany       string            `json:"demo_company"`
	DemoCompanyAPIKey string            `json:"demo_company_api_key"`
	AccountsOrigin    string            `json:"accounts_origin"`
	Hosts             map[string]string `json:"hosts"`
}

// A Server is a running `poppyfield dev`.
type Server struct {
	Ready
	// ReadyFile and LogFile are paths; the log goes on after a restart.
	ReadyFile, LogFile string

	binary  string
	args    []string
	process *child.Process
}

// Start starts a server for one test and ends it with the test. When the test fails,
// the end of the server's log is shown.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	binary, err := FindBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if o.DataDir == "" {
		o.DataDir = filepath.Join(dir, "data")
	}
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{binary: binary, ReadyFile: filepath.Join(dir, "ready.json"), LogFile: filepath.Join(dir, "log")}
	s.args = []string{
		"dev", "--data-dir", o.DataDir, "--listen", "127.0.0.1:" + strconv.Itoa(port), "--ready-file", s.ReadyFile,
	}
	for _, host := range o.DevHosts {
		s.args = append(s.args, "--dev-host", host)
	}
	for _, file := range o.TrustCA {
		s.args = append(s.args, "--trust-ca", file)
	}
	s.args = append(s.args, o.Flags...)
	t.Cleanup(func() {
		if s.process != nil {
			if err := s.process.Stop(stopTimeout); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", s.logged())
		}
	})
	s.Restart(t)
	return s
}

// Restart starts a server that was killed or stopped again, on the same data and port,
// and waits until it is ready.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Launch is Restart without the wait.
func (s *Server) Launch(t testing.TB) {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Stop asks the server to end, as an operator does, and waits for it.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.process.Stop(stopTimeout); err != nil {
		t.Fatal(err)
	}
}

// Signal sends a signal to the server and does not wait.
func (s *Server) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Wait waits for the server's end and says how it ended: nil is exit code 0.
func (s *Server) Wait() error { return s.process.Wait() }

func (s *Server) run() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.awaitReady()
}

func (s *Server) launch() error {
	if err := os.Remove(s.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process, err = child.Start(child.Spec{Path: s.binary, Args: s.args, Output: log})
	return err
}

func (s *Server) awaitReady() error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(s.ReadyFile)
		if err == nil {
			if err := json.Unmarshal(text, &s.Ready); err != nil {
				return fmt.Errorf("the ready file: %w\n%s", err, text)
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-s.process.Done():
			return fmt.Errorf("the server ended before it was ready: %w\n%s", s.process.Wait(), s.logged())
		case <-timeout.C:
			return fmt.Errorf("the server is not ready after %s\n%s", startTimeout, s.logged())
		}
	}
}

// logged returns the last 16 KiB of the log.
func (s *Server) logged() []byte {
	text, err := os.ReadFile(s.LogFile)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-16<<10):]
}

// FindBinary returns the path of the binary under test.
func FindBinary() (string, error) {
	binary := os.Getenv(Binary)
	if binary == "" {
		_, file, _, _ := runtime.Caller(0)
		binary = filepath.Join(filepath.Dir(file), "..", "..", ".bin", "poppyfield")
	}
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("%w: run `make build`", err)
	}
	return filepath.Abs(binary)
}
