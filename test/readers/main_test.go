package readers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	// enabled has the measurement made, with as many readers as it says.
	enabled = "POPPYFIELD_BENCH_READERS"
	// role makes a process of this binary another one than the test.
	role = "POPPYFIELD_READERS_ROLE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "floor":
		os.Exit(ended(serveFloor()))
	case "agents":
		os.Exit(ended(runAgents(os.Stdin, os.Stdout)))
	}
	if os.Getenv(enabled) == "" {
		os.Exit(m.Run())
	}
	hosts := publicnet.Hosts{publicnet.Proxy: whole.ProxyHosts("noodles"), publicnet.Outside: whole.OutsideHosts()}
	os.Exit(publicnet.Main(m, hosts, func() error { return natstest.Build(context.Background()) }))
}

func ended(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "readers:", err)
		return 1
	}
	return 0
}

// A helper is a process of this binary with a role. It ends when its input does, and so
// with the test.
type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHelper(t *testing.T, name string) *helper {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h := &helper{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(h.stop)
	return h
}

func (h *helper) stop() {
	_ = h.in.Close()
	_ = h.cmd.Wait() // once; what it has to say it has said
}

func (h *helper) say(t *testing.T, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	_, err = h.in.Write(append(raw, '\n'))
	require.NoError(t, err)
}

func (h *helper) hear(t *testing.T, v any) {
	t.Helper()
	line, err := h.out.ReadBytes('\n')
	require.NoError(t, err, "a helper is gone")
	require.NoError(t, json.Unmarshal(line, v), "%s", line)
}
