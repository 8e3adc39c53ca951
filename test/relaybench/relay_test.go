package relaybench_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
)

const (
	good   = 8 // Companies whose backends answer
	rounds = 2 // of the comparison with two that don't

	warmUp    = 3 * time.Second
	search    = 8 * time.Second
	half      = 10 * time.Second
	isolation = 8 * time.Second
	floorTime = 3 * time.Second

	isolated = 4 * good // agents of the good Companies in the comparison
	bad      = 16       // agents of each of the bad ones: as many as its deliveries in flight
	badWait  = 3 * time.Second
)

// steps are how many agents take turns while the peak is searched.
func steps() []int { return []int{16, 32, 64} }

// step is a load and its floor.
type step struct {
	Agents int     `json:"agents"`
	Relay  figures `json:"relay"`
	Floor  figures `json:"floor"` // as many clients commit what turns write
	// CPU is the processor time that this process took for a turn, and Busy the share of
	// all processors that anybody used: where it is 1, the processors are the limit.
	CPU  float64 `json:"cpu_ms_per_turn"`
	Busy float64 `json:"processors_busy"`
}

// results are all figures of a run.
type results struct {
	Steps       []step    `json:"steps"`
	Peak        step      `json:"peak"`
	Group       figures   `json:"group_commit"` // one row each, as many clients as at the peak
	Written     []written `json:"written_per_turn"`
	LogBytes    float64   `json:"wal_bytes_per_turn"`
	Commits     float64   `json:"transactions_per_turn"`
	Offered     float64   `json:"half_load_offered_per_second"`
	Half        figures   `json:"half_load"`
	Backend     figures   `json:"backend_alone"`
	Commit      figures   `json:"commit"` // one row, one client, around the half load
	Alone       []float64 `json:"isolation_alone_per_second"`
	Beside      []float64 `json:"isolation_beside_per_second"` // by Company, as Alone
	Runs        []float64 `json:"isolation_runs_per_second"`   // alone, beside, beside, alone
	Outstanding int       `json:"isolation_requests_of_the_bad"`
}

func TestRelay(t *testing.T) {
	if os.Getenv(enabled) == "" {
		t.Skip("a measurement: make bench-relay")
	}
	r := newRig(t)
	companies := make([]*company, good+2) // the last two are idle
	for i := range companies {
		companies[i] = r.newCompany(t, backendName("good", i))
	}
	agents := r.agents(slices.Max(steps()), companies[:good]...)
	t.Cleanup(func() { hangUp(agents) })
	var got results
	r.peak(t, agents, &got)
	r.halfLoad(t, agents, &got)
	hangUp(agents)
	r.isolate(t, companies[:good], &got)
	require.NoError(t, report(os.Stdout, got))
	if name := os.Getenv(jsonFile); name != "" {
		raw, err := json.MarshalIndent(got, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, append(raw, '\n'), 0o600))
	}
}

// turns has agents take turns one after the other for a while.
func turns(t *testing.T, agents []*agent, over time.Duration) [][]time.Duration {
	t.Helper()
	took, err := closedLoop(t.Context(), len(agents), over, func(ctx context.Context, i int) error { return agents[i].turn(ctx) })
	require.NoError(t, err)
	return took
}

// peak looks for the most turns a second.
func (r *rig) peak(t *testing.T, agents []*agent, got *results) {
	t.Helper()
	turns(t, agents, warmUp)
	var f *floor
	for _, n := range steps() {
		before, own, all := r.counters(t), processorTime(t), allProcessors(t)
		stop := profile(t, n == 32)
		s := step{Agents: n, Relay: summed(slices.Concat(turns(t, agents[:n], search)...), search)}
		stop()
		s.CPU = float64((processorTime(t) - own).Microseconds()) / 1000 / float64(s.Relay.Turns)
		s.Busy = all.since(allProcessors(t))
		after := r.counters(t)
		if f == nil {
			got.Written = r.wrote(t, before, after, s.Relay.Turns)
			got.LogBytes = float64(after.log-before.log) / float64(s.Relay.Turns)
			got.Commits = float64(after.commits-before.commits) / float64(s.Relay.Turns)
			f = r.newFloor(t, got.Written, len(agents))
		}
		s.Floor = f.measure(t, n, floorTime, f.turn)
		t.Logf("%d agents: %.0f turns/s", n, s.Relay.PerSecond)
		got.Steps = append(got.Steps, s)
		if s.Relay.PerSecond > got.Peak.Relay.PerSecond {
			got.Peak = s
		}
	}
	got.Group = f.measure(t, got.Peak.Agents, floorTime, f.one)
	r.floor = f
}

// halfLoad measures how long turns take at half of the peak.
func (r *rig) halfLoad(t *testing.T, agents []*agent, got *results) {
	t.Helper()
	got.Backend = r.backendAlone(t)
	var commits []time.Duration
	commit := func() {
		took, err := closedLoop(t.Context(), 1, floorTime/2, r.floor.one)
		require.NoError(t, err)
		commits = append(commits, took[0]...)
	}
	commit()
	got.Offered = got.Peak.Relay.PerSecond / 2
	took, err := openLoop(t.Context(), agents, got.Offered, half)
	require.NoError(t, err)
	got.Half = summed(took, half)
	commit()
	got.Commit = summed(commits, floorTime)
}

// backendAlone measures what the backend itself takes, as a client next to it sees it.
func (r *rig) backendAlone(t *testing.T) figures {
	t.Helper()
	roots, err := egress.LoadRoots([]string{r.authority})
	require.NoError(t, err)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, r.backend.address)
		},
	}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), 900)
	took, err := closedLoop(t.Context(), 1, time.Second, func(ctx context.Context, _ int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+backendName("good", 0)+"/webhook", bytes.NewReader(body))
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	})
	require.NoError(t, err)
	return summed(took[0], time.Second)
}

// isolate compares the good Companies alone with the same beside one whose backend hangs
// and one whose backend refuses connections: alone, beside, beside, alone.
func (r *rig) isolate(t *testing.T, companies []*company, got *results) {
	t.Helper()
	agents := r.agents(isolated, companies...)
	t.Cleanup(func() { hangUp(agents) })
	turns(t, agents, warmUp/3)
	got.Alone, got.Beside = make([]float64, good), make([]float64, good)
	measure := func(into []float64) {
		all := 0.0
		for i, took := range turns(t, agents, isolation) {
			rate := float64(len(took)) / isolation.Seconds()
			into[i%good] += rate / rounds
			all += rate
		}
		got.Runs = append(got.Runs, all)
	}
	beside := func(round int) {
		got.Outstanding += r.bother(t, round, func() { measure(got.Beside) })
	}
	measure(got.Alone)
	beside(0)
	beside(1)
	measure(got.Alone)
}

// bother runs work while agents of two new Companies send to backends that don't take
// it, and returns how many requests they made. Nothing of them is left after it.
func (r *rig) bother(t *testing.T, round int, work func()) int {
	t.Helper()
	agents := append(
		r.agents(bad, r.newCompany(t, backendName("hang", round))),
		r.agents(bad, r.newCompany(t, backendName("refuse", round)))...)
	defer hangUp(agents)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	failed := make(chan error, len(agents))
	for _, a := range agents {
		wait.Go(func() {
			if err := a.say(ctx, 0, false); err != nil {
				failed <- err
				return
			}
			for {
				if err := a.say(ctx, badWait, false); err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
			}
		})
	}
	work()
	cancel()
	wait.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	sent := 0
	for _, a := range agents {
		sent += a.sent
		require.NoError(t, a.end(t.Context()))
	}
	r.backend.release(t)
	return sent
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processors is what the system counted of their time, in its own units.
type processors struct{ idle, all float64 }

func allProcessors(t *testing.T) processors {
	t.Helper()
	raw, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(raw), "\n")
	var p processors
	// cpu user nice system idle iowait irq softirq steal guest guest_nice: the guests' is in the users'.
	for i, field := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseFloat(field, 64)
		require.NoError(t, err)
		p.all += n
		if i == 3 || i == 4 {
			p.idle += n
		}
	}
	return p
}

// since is the share of the time since p that was used.
func (p processors) since(now processors) float64 {
	return 1 - (now.idle-p.idle)/max(now.all-p.all, 1)
}

// profile writes a CPU profile until the returned function is called, if one is wanted.
func profile(t *testing.T, wanted bool) func() {
	t.Helper()
	name := os.Getenv(profileFile)
	if name == "" || !wanted {
		return func() {}
	}
	out, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, pprof.StartCPUProfile(out))
	return func() {
		pprof.StopCPUProfile()
		require.NoError(t, out.Close())
	}
}
