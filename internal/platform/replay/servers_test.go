package replay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
)

// victimDir makes the test binary a process that claims on an embedded server there and waits to be killed.
const victimDir = "POPPYFIELD_REPLAY_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		if err := victim(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

func victim(ctx context.Context, dir string) error {
	b, err := bus.Connect(ctx, bus.Config{Embedded: &bus.Embedded{StoreDir: dir}})
	if err != nil {
		return err
	}
	m, err := replay.Open(ctx, b.JetStream(), replay.Config{Now: later, Timeout: patience})
	if err != nil {
		return err
	}
	for i := range 100 {
		if err := m.Claim(ctx, "cmp_1", "k", "o", strconv.Itoa(i), later(), later().Add(time.Hour)); err != nil {
			return err
		}
	}
	_, err = fmt.Println("claimed")
	return err
}

func TestClaim_SurvivesAKilledProcessWithAnEmbeddedServer(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, err)
	require.Equal(t, "claimed\n", line)

	m := open(t, connect(t, bus.Config{Embedded: &bus.Embedded{StoreDir: dir}}))
	for i := range 100 {
		require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", strconv.Itoa(i), later(), later().Add(time.Hour)), replay.ErrSeen, "%d", i)
	}
}

// cluster starts three servers in this process and returns them with their addresses.
func cluster(t testing.TB) (nodes []*server.Server, addrs string) {
	t.Helper()
	ports := freePorts(t, 6)
	var routes []*url.URL
	var urls []string
	for i := range 3 {
		routes = append(routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(ports[3+i])})
		urls = append(urls, "nats://127.0.0.1:"+strconv.Itoa(ports[i]))
	}
	for i := range 3 {
		ns, err := server.NewServer(&server.Options{
			ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: ports[i], NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[3+i]},
		})
		require.NoError(t, err)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		nodes = append(nodes, ns)
	}
	require.Eventually(t, func() bool {
		for _, ns := range nodes {
			if !ns.JetStreamIsCurrent() {
				return false
			}
		}
		return true
	}, 3*patience, 20*time.Millisecond)
	return nodes, strings.Join(urls, ",")
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func TestClaim_InAClusterThatLosesANode(t *testing.T) {
	nodes, addrs := cluster(t)
	memories := make([]*replay.Memory, 2)
	for i := range memories {
		memories[i] = open(t, connect(t, bus.Config{URL: addrs}), func(c *replay.Config) { c.Replicas = 3 })
	}
	for _, m := range memories {
		require.Eventually(t, func() bool { return m.Ready(t.Context()) == nil }, 3*patience, 20*time.Millisecond)
	}
	issued, until := later(), later().Add(time.Hour)
	claim := func(m *replay.Memory, value string) error {
		return m.Claim(t.Context(), "cmp_1", "k", "o", value, issued, until)
	}
	for i := range 20 {
		require.NoError(t, claim(memories[i%2], strconv.Itoa(i)))
		require.ErrorIs(t, claim(memories[(i+1)%2], strconv.Itoa(i)), replay.ErrSeen)
	}
	nodes[0].Shutdown()
	for _, m := range memories {
		require.Eventually(t, func() bool { return m.Ready(t.Context()) == nil }, 3*patience, 20*time.Millisecond)
	}
	for i := range 20 {
		m := memories[i%2]
		var err error
		require.Eventually(t, func() bool {
			err = claim(m, strconv.Itoa(i))
			return !errors.Is(err, replay.ErrUnavailable)
		}, 3*patience, 20*time.Millisecond)
		require.ErrorIs(t, err, replay.ErrSeen)
	}
	require.Eventually(t, func() bool { return claim(memories[0], "new") == nil }, 3*patience, 20*time.Millisecond)
}
