package fault_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	runs          = 50
	conversations = 4 // of a run, at the same time
	turns         = 4
	deadline      = 30 * time.Second // the installation's answer deadline
	// grace is what a turn may take beyond the deadline: the server may be away when it passes.
	grace = 5 * time.Second
)

// A dialogue is one conversation of one run, and what the agent saw of it.
type dialogue struct {
	agent  *whole.Agent
	name   string
	id     string
	sent   []string // message ids, in order
	events []whole.Event
	worst  time.Duration // from an accepted message to idle
}

func TestKill_NothingAcceptedIsLostOrDoubled(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := whole.StartOutside(t, "")
	s := devserver.Start(t, devserver.Options{DevHosts: o.DevHosts(), TrustCA: []string{o.CAFile}, Flags: []string{"--demo=false"}})
	client := s.Client(t)
	api := whole.API{Origin: s.APIOrigin, Key: s.OperatorAPIKey, Client: client}
	c := whole.Onboard(t, api, o, whole.Spec{Slug: "kill"})
	c.Backend.Answer(func(w whole.Webhook) (int, string) {
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		return whole.Echo(w)
	})
	endpoints := whole.Endpoints{Issuer: c.Issuer, Token: c.Issuer + "/oauth/token", Conversations: c.Issuer + "/poppy/conversations"}

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var all []*dialogue
	var group sync.WaitGroup
	failures := make(chan error, runs*conversations)
	var restarts []time.Duration
	for run := range runs {
		agent := whole.NewAgent(t, o, client, endpoints)
		started := make(chan error, 1)
		group.Go(func() { started <- whole.Persist(ctx, func() error { return agent.StartSession(ctx) }) })
		var mine []*dialogue
		for n := range conversations {
			mine = append(mine, &dialogue{agent: agent, name: fmt.Sprintf("%d.%d", run, n)})
		}
		all = append(all, mine...)
		group.Go(func() {
			if err := <-started; err != nil {
				failures <- err
				return
			}
			for _, d := range mine {
				group.Go(func() {
					if err := d.talk(ctx); err != nil {
						failures <- fmt.Errorf("conversation %s (%s): %w", d.name, d.id, err)
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
		d.check(t)
		worst = max(worst, d.worst)
	}
	repeats := checkWebhooks(t, c, all)
	checkConversations(t, api, c, len(all))
	slices.Sort(restarts)
	t.Logf("%d kills, %d conversations, %d messages, %d webhooks repeated; restart p50 %s, max %s; longest turn %s",
		runs, len(all), len(all)*turns, repeats, restarts[runs/2], restarts[runs-1], worst)
}

// talk sends message after message and waits for the answer to each.
func (d *dialogue) talk(ctx context.Context) error {
	cursor := ""
	for turn := range turns {
		id, text := fixture.RandomID(), fmt.Sprintf("%s/%d", d.name, turn)
		err := whole.Persist(ctx, func() (err error) {
			if turn == 0 {
				d.id, err = d.agent.Open(ctx, id, text)
				return err
			}
			return d.agent.Send(ctx, d.id, id, text)
		})
		if err != nil {
			return err
		}
		d.sent = append(d.sent, id)
		accepted := time.Now()
		var turnEvents []whole.Event
		for !slices.Contains(whole.Texts(turnEvents), "company: you said: "+text) || !whole.Idle(turnEvents) {
			if time.Since(accepted) > deadline+grace {
				return fmt.Errorf("no answer to %q and idle within %s: %+v", text, deadline+grace, turnEvents)
			}
			var page whole.Page
			err := whole.Persist(ctx, func() (err error) {
				page, err = d.agent.Read(ctx, d.id, cursor, 5)
				return err
			})
			if err != nil {
				return err
			}
			turnEvents, cursor = append(turnEvents, page.Events...), page.Cursor
		}
		d.worst = max(d.worst, time.Since(accepted))
		d.events = append(d.events, turnEvents...)
	}
	return nil
}

// check looks at what the agent read by cursor: every message once, in order, each
// followed by its answer, and no event twice.
func (d *dialogue) check(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	var ids, wanted []string
	for _, e := range d.events {
		require.False(t, seen[e.ID], "event %s of %s twice", e.ID, d.id)
		seen[e.ID] = true
		if e.Type == "message" && e.Message.Role == "user" {
			ids = append(ids, e.Message.ID)
		}
	}
	require.Equal(t, d.sent, ids)
	for turn := range turns {
		text := fmt.Sprintf("%s/%d", d.name, turn)
		wanted = append(wanted, "user: "+text, "company: you said: "+text)
	}
	require.Equal(t, wanted, whole.Texts(d.events))
}

// checkWebhooks looks at what the backend got and returns how many were repeats.
func checkWebhooks(t *testing.T, c *whole.Company, all []*dialogue) (repeats int) {
	t.Helper()
	ids, bodies, order := map[string]string{}, map[string]string{}, map[string][]string{}
	for _, w := range c.Backend.Received() {
		require.NoError(t, w.Verify(c.Secret))
		if body, again := bodies[w.ID]; again {
			require.Equal(t, body, string(w.Raw), "a repeat is the same")
			repeats++
			continue
		}
		bodies[w.ID] = string(w.Raw)
		require.NotContains(t, ids, w.MessageID, "two webhooks of one message")
		ids[w.MessageID] = w.ID
		order[w.Conversation] = append(order[w.Conversation], w.MessageID)
	}
	require.Len(t, bodies, len(all)*turns)
	for _, d := range all {
		require.Equal(t, d.sent, order[d.id])
	}
	return repeats
}

// checkConversations looks at it as the Company does: as many as were started, all idle.
func checkConversations(t *testing.T, api whole.API, c *whole.Company, wanted int) {
	t.Helper()
	found, token := 0, ""
	for {
		var page struct {
			Conversations []struct{ Name, Status string }
			Next          string `json:"next_page_token"`
		}
		require.NoError(t, api.Call(t.Context(), http.MethodGet, c.Name+"/conversations?page_size=200&page_token="+token, nil, &page))
		for _, conversation := range page.Conversations {
			require.Equal(t, "idle", conversation.Status, conversation.Name)
		}
		found += len(page.Conversations)
		if token = page.Next; token == "" {
			require.Equal(t, wanted, found)
			return
		}
	}
}
