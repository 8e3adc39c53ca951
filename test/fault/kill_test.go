package fault_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	runs          = 50
	conversations = 4 // of a run, at the same time
	turns         = 4
	deadline      = time.Minute // the Company's answer deadline
	// grace is what a turn may take beyond the deadline: the server may be away when it passes.
	grace = 5 * time.Second
)

func TestKill_NothingAcceptedIsLostOrDoubled(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := whole.StartOutside(t, "")
	s := devserver.Start(t, devserver.Options{DevHosts: o.DevHosts(), TrustCA: []string{o.CAFile}, Flags: []string{"--demo=false"}})
	client := s.Client(t)
	api := whole.API{Origin: s.APIOrigin, Key: s.OperatorAPIKey, Client: client}
	c := whole.Onboard(t, api, o, whole.Spec{Slug: "kill", Deadline: "60s"})
	c.Backend.Answer(func(w whole.Webhook) (int, string) {
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		return whole.Echo(w)
	})
	endpoints := whole.Endpoints{Issuer: c.Issuer, Token: c.Issuer + "/oauth/token", Conversations: c.Issuer + "/poppy/conversations"}

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var all []*whole.Dialogue
	var group sync.WaitGroup
	failures := make(chan error, runs*conversations)
	var restarts []time.Duration
	for run := range runs {
		agent := whole.NewAgent(t, o, client, endpoints)
		started := make(chan error, 1)
		group.Go(func() { started <- whole.Persist(ctx, func() error { return agent.StartSession(ctx) }) })
		var mine []*whole.Dialogue
		for n := range conversations {
			mine = append(mine, &whole.Dialogue{Agent: agent, Name: fmt.Sprintf("%d.%d", run, n)})
		}
		all = append(all, mine...)
		group.Go(func() {
			if err := <-started; err != nil {
				failures <- err
				return
			}
			for _, d := range mine {
				group.Go(func() {
					if err := d.Talk(ctx, turns, deadline+grace); err != nil {
						failures <- fmt.Errorf("conversation %s (%s): %w", d.Name, d.ID, err)
						cancel()
					}
				})
			}
		})
		select {
		case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
		case <-ctx.Done():
		}
		s.Kill(t)
		if run%5 == 4 { // once more, while it starts
			s.Launch(t)
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			s.Kill(t)
		}
		begin := time.Now()
		s.Restart(t)
		restarts = append(restarts, time.Since(begin))
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	worst := time.Duration(0)
	for _, d := range all {
		d.Check(t)
		worst = max(worst, d.Longest)
	}
	repeats := whole.CheckWebhooks(t, c, all)
	whole.CheckConversations(t, api, c, len(all))
	slices.Sort(restarts)
	t.Logf("%d kills, %d conversations, %d messages, %d webhooks repeated; restart p50 %s, max %s; longest turn %s",
		runs+runs/5, len(all), len(all)*turns, repeats, restarts[runs/2], restarts[runs-1], worst)
}
