package installation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/whole"
)

func TestKill_AnyProcessOfSix(t *testing.T) {
	const (
		kills         = 12 // each process twice
		conversations = 6  // that begin at each kill
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	names := slices.Sorted(maps.Keys(i.Processes))
	order := append(random.Perm(len(names)), random.Perm(len(names))...)
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
