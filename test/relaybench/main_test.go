package relaybench_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/peer"
)

const (
	// enabled has the measurement made.
	enabled = "POPPYFIELD_BENCH_RELAY"
	// jsonFile and profileFile are where the figures and a CPU profile at 32 agents go, if set.
	jsonFile    = "POPPYFIELD_BENCH_RELAY_JSON"
	profileFile = "POPPYFIELD_BENCH_RELAY_PROFILE"
	// role makes a process of this binary another one than the test.
	role = "POPPYFIELD_RELAYBENCH_ROLE"
)

func TestMain(m *testing.M) {
	if os.Getenv(role) == "backend" {
		if err := serveBackend(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "backend:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// backend is the Companies' side, in a process of its own: names that begin with "hang"
// never answer, all others at once.
type backend struct {
	address string
	in      io.Writer
}

func startBackend(t *testing.T, certificate peer.Certificate) *backend {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.Stderr = append(os.Environ(), role+"=backend"), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // what it has to say it says on stderr
	})
	require.NoError(t, json.NewEncoder(in).Encode(certificate))
	b := &backend{in: in}
	require.NoError(t, json.NewDecoder(out).Decode(&b.address))
	return b
}

// release ends the requests that hang.
func (b *backend) release(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(b.in, "release\n")
	require.NoError(t, err)
}

// held are the requests that hang.
type held struct {
	mu  sync.Mutex
	end chan struct{}
}

func (h *held) until() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.end)
	h.end = make(chan struct{})
}

const backendAnswer = `{"messages":[{"text":"pong"}]}`

// serveBackend runs until in ends.
func serveBackend(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return io.ErrUnexpectedEOF
	}
	var c peer.Certificate
	if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.Chain, c.Key)
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	if err != nil {
		return err
	}
	h := &held{end: make(chan struct{})}
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a connection with an unread body is not used again
			if strings.HasPrefix(r.Host, "hang") {
				select {
				case <-r.Context().Done():
				case <-h.until():
				}
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, backendAnswer)
		}),
	}
	go func() {
		for lines.Scan() {
			h.release()
		}
		_ = s.Shutdown(canceled())
	}()
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		return err
	}
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
