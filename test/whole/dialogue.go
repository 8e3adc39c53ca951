package whole

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
)

// A Dialogue is one conversation with a backend that echoes, and what the agent saw of it.
type Dialogue struct {
	Agent *Agent
	// Name begins all its messages.
	Name string
	ID   string
	// Longest is the time of its longest turn, from an accepted message to idle.
	Longest time.Duration

	sent   []string // message ids, in order
	events []Event
}

// Talk sends message after message and waits for the answer to each, whatever happens to
// the server meanwhile. Within bounds how long a turn may take.
func (d *Dialogue) Talk(ctx context.Context, turns int, within time.Duration) error {
	cursor := ""
	for turn := range turns {
		id, text := fixture.RandomID(), fmt.Sprintf("%s/%d", d.Name, turn)
		err := Persist(ctx, func() (err error) {
			if turn == 0 {
				d.ID, err = d.Agent.Open(ctx, id, text)
				return err
			}
			return d.Agent.Send(ctx, d.ID, id, text)
		})
		if err != nil {
			return err
		}
		d.sent = append(d.sent, id)
		accepted := time.Now()
		var turnEvents []Event
		for !slices.Contains(Texts(turnEvents), "company: you said: "+text) || !Idle(turnEvents) {
			if time.Since(accepted) > within {
				return fmt.Errorf("no answer to %q and idle within %s: %+v", text, within, turnEvents)
			}
			var page Page
			err := Persist(ctx, func() (err error) {
				page, err = d.Agent.Read(ctx, d.ID, cursor, 5)
				return err
			})
			if err != nil {
				return err
			}
			turnEvents, cursor = append(turnEvents, page.Events...), page.Cursor
		}
		d.Longest = max(d.Longest, time.Since(accepted))
		d.events = append(d.events, turnEvents...)
	}
	return nil
}

// Check looks at what the agent read by cursor: every message once, in order, each
// followed by its answer, and no event twice.
func (d *Dialogue) Check(t testing.TB) {
	t.Helper()
	seen := map[string]bool{}
	var ids, wanted []string
	for _, e := range d.events {
		require.False(t, seen[e.ID], "event %s of %s twice", e.ID, d.ID)
		seen[e.ID] = true
		if e.Type == "message" && e.Message.Role == "user" {
			ids = append(ids, e.Message.ID)
		}
	}
	require.Equal(t, d.sent, ids)
	for turn := range d.sent {
		text := fmt.Sprintf("%s/%d", d.Name, turn)
		wanted = append(wanted, "user: "+text, "company: you said: "+text)
	}
	require.Equal(t, wanted, Texts(d.events))
}

// CheckWebhooks looks at what the backend got and returns how many were repeats.
func CheckWebhooks(t testing.TB, c *Company, all []*Dialogue) (repeats int) {
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
	messages := 0
	for _, d := range all {
		messages += len(d.sent)
		require.Equal(t, d.sent, order[d.ID])
	}
	require.Len(t, bodies, messages)
	return repeats
}

// CheckConversations looks at it as the Company does: as many as were started, all idle.
func CheckConversations(t testing.TB, api API, c *Company, wanted int) {
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
