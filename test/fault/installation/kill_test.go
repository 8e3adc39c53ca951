package installation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/whole"
)

func TestKill_AnyProcessOfSix(t *testing.T) {
	const (
		kills         = 50
		conversations = 2 // that begin at each kill
		turns         = 3
		within        = 35 * time.Second // the answer deadline and a little more
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := whole.StartOutside(t, outside)
	i := whole.Serve(t, o, whole.InstallationOptions{Split: true})
	c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
	c.Backend.Answer(whole.Echo)
	endpoints, err := whole.FindCompany(t.Context(), i.Client, "https://"+c.Domain)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	names := slices.Sorted(maps.Keys(i.Processes))
	var order []int // each process at least eight times
	for len(order) < kills {
		order = append(order, random.Perm(len(names))...)
	}
	var group sync.WaitGroup
	var all []*whole.Dialogue
	failures := make(chan error, kills*conversations)
	for kill := range kills {
		for n := range conversations {
			d := &whole.Dialogue{Agent: whole.NewAgent(t, o, i.Client, endpoints), Name: fmt.Sprintf("%d.%d", kill, n)}
			all = append(all, d)
			group.Go(func() {
				err := whole.Persist(ctx, func() error { return d.Agent.StartSession(ctx) })
				if err == nil {
					err = d.Talk(ctx, turns, within)
				}
				if err != nil {
					failures <- fmt.Errorf("conversation %s (%s): %w", d.Name, d.ID, err)
				}
			})
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		p := i.Processes[names[order[kill]]]
		require.NoError(t, p.Kill())
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		p.Start(t)
		p.AwaitReady(t)
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	longest := time.Duration(0)
	for _, d := range all {
		d.Check(t)
		longest = max(longest, d.Longest)
	}
	repeats := whole.CheckWebhooks(t, c, all)
	whole.CheckConversations(t, i.API, c, len(all))
	t.Logf("%d kills, %d conversations, %d webhooks repeated, longest turn %s", kills, len(all), repeats, longest)
}

// What the installation stands on is killed under load, again and again: what was
// accepted is neither lost, doubled nor reordered, and every agent is told in time.
func TestKill_PostgreSQLUnderLoad(t *testing.T) {
	// Recovery takes PostgreSQL about as long as it is up in between: turns need several windows.
	killUnderLoad(t, 400*time.Millisecond, time.Minute, func(p place) (kill, restart func(testing.TB)) { return p.PostgreSQL.Crash, p.PostgreSQL.Restart })
}

func TestKill_NATSUnderLoad(t *testing.T) {
	killUnderLoad(t, 0, 35*time.Second, func(p place) (kill, restart func(testing.TB)) { return p.NATS.Kill, p.NATS.Restart })
}

// killUnderLoad kills 50 times, each time after up at least; a turn has to be over within a time.
func killUnderLoad(t *testing.T, up, within time.Duration, of func(place) (kill, restart func(testing.TB))) {
	t.Helper()
	const (
		kills         = 50
		conversations = 2
		turns         = 3
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := newPlace(t, whole.InstallationOptions{Durable: true})
	p.company.Backend.Answer(whole.Echo)
	// An answer that takes longer than usual is still the answer: nobody is told that none came.
	require.NoError(t, p.API.Call(t.Context(), http.MethodPatch, p.company.Name+"/limits?update_mask=answer_deadline",
		map[string]any{"answer_deadline": fmt.Sprintf("%ds", int(within.Seconds()))}, nil))
	kill, restart := of(p)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	var all []*whole.Dialogue
	failures := make(chan error, kills*conversations)
	for n := range kills {
		for m := range conversations {
			d := &whole.Dialogue{Agent: whole.NewAgent(t, p.outside, p.Client, p.agent.Endpoints), Name: fmt.Sprintf("%d.%d", n, m)}
			all = append(all, d)
			group.Go(func() {
				err := whole.Persist(ctx, func() error { return d.Agent.StartSession(ctx) })
				if err == nil {
					err = d.Talk(ctx, turns, within)
				}
				if err != nil {
					failures <- fmt.Errorf("conversation %s (%s): %w", d.Name, d.ID, err)
				}
			})
		}
		time.Sleep(up + time.Duration(random.IntN(250))*time.Millisecond)
		kill(t)
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		restart(t)
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	longest := time.Duration(0)
	for _, d := range all {
		d.Check(t)
		longest = max(longest, d.Longest)
	}
	repeats := whole.CheckWebhooks(t, p.company, all)
	whole.CheckConversations(t, p.API, p.company, len(all))
	t.Logf("%d kills, %d conversations, %d webhooks repeated, longest turn %s", kills, len(all), repeats, longest)
}
