package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// faultRuns is how many conversations each kind of misbehaving backend gets, faultWorkers at a time.
const (
	faultRuns    = 50
	faultWorkers = 5
)

// A backend may be slow, dead, flapping, answer garbage, twice or too late: every
// conversation has a truthful status within five seconds of its deadline, and each
// message is there once and in order.
func TestFaults_BackendsThatMisbehave(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d25", "poppy-0.1/7.7#3", "poppy-0.1/7.7#4")
		clausetest.Refuses(t, "poppy-0.1/7.7#d25", "poppy-0.1/7.12#d24")
		for name, fault := range faults() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				co := in.company(t, limits(object{"answer_deadline": fault.deadline}))
				co.backend.answer(fault.answer(t, co))
				// A few at a time: the faults are the backend's, not the machine's.
				for worker := range faultWorkers {
					t.Run(fmt.Sprint(worker), func(t *testing.T) {
						t.Parallel()
						s := co.visitor(t)
						for i := worker; i < faultRuns; i += faultWorkers {
							said := fmt.Sprintf("Hello %d", i)
							id := s.talk(t, said)
							if fault.close {
								s.post(t, closePath(id), "{}").is(t, http.StatusOK, "")
							}
							fault.check(t, s, id, said)
						}
					})
				}
			})
		}
	})
}

// fault is a way to misbehave.
type fault struct {
	deadline string
	close    bool // the agent closes before the answer
	answer   func(*testing.T, *company) func(delivery) reply
	check    func(t *testing.T, s *session, id, said string)
}

func faults() map[string]fault {
	hang := make(chan struct{})
	var late gates
	return map[string]fault{
		"slow": {
			deadline: "0.5s",
			answer: func(t *testing.T, _ *company) func(delivery) reply {
				return func(d delivery) reply {
					late.wait(t, d.body.Data.Conversation.ID)
					return says("Late: " + d.body.Data.Message.Text)
				}
			},
			check: func(t *testing.T, s *session, id, said string) {
				t.Helper()
				s.idleSoon(t, id)
				late.open(id)
				events := s.becomes(t, id, func(events []event) bool { return len(events) == 5 })
				require.Equal(t, []string{"user", "working", "company", "idle", "company"}, shape(events))
				require.Contains(t, events[2].words(), "did not answer in time")
				require.Equal(t, "Late: "+said, events[4].words())
			},
		},
		"dead": {
			deadline: "0.5s",
			answer: func(t *testing.T, _ *company) func(delivery) reply {
				t.Cleanup(func() { close(hang) })
				return func(delivery) reply { <-hang; return reply{status: http.StatusServiceUnavailable} }
			},
			check: func(t *testing.T, s *session, id, _ string) {
				t.Helper()
				require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.idleSoon(t, id)))
			},
		},
		"flapping": {
			deadline: "30s",
			answer: func(*testing.T, *company) func(delivery) reply {
				var mu sync.Mutex
				tries := map[string]int{}
				return func(d delivery) reply {
					mu.Lock()
					defer mu.Unlock()
					if tries[d.header.Get("webhook-id")]++; tries[d.header.Get("webhook-id")] == 1 && len(tries)%2 == 0 {
						return reply{status: http.StatusBadGateway}
					}
					return says("Back: " + d.body.Data.Message.Text)
				}
			},
			check: func(t *testing.T, s *session, id, said string) {
				t.Helper()
				events := s.idleSoon(t, id)
				require.Equal(t, []string{"user", "working", "company", "idle"}, shape(events))
				require.Equal(t, "Back: "+said, events[2].words())
			},
		},
		"garbage": {
			deadline: "1s",
			answer: func(*testing.T, *company) func(delivery) reply {
				all := []reply{
					{body: "<html>oops"},
					{body: `{"messages":"none"}`},
					{body: `{"messages":[{}]}`},
					{body: `{"messages":[{"text":1}]}`},
					{body: `{"messages":[{"text":"a\u0000b"}]}`},
					{body: `{"authorization":{"error":"nonsense"}}`},
					{body: "{}", header: map[string]string{"Content-Type": "text/html"}},
					{body: strings.Repeat(" ", 300<<10) + "{}"},
					{status: http.StatusFound, header: map[string]string{"Location": "https://backend.example/elsewhere"}},
				}
				var mu sync.Mutex
				n := 0
				return func(delivery) reply {
					mu.Lock()
					defer mu.Unlock()
					n++
					return all[n%len(all)]
				}
			},
			check: func(t *testing.T, s *session, id, _ string) {
				t.Helper()
				events := s.idleSoon(t, id)
				require.Equal(t, []string{"user", "working", "company", "idle"}, shape(events))
				require.Contains(t, events[2].words(), "did not answer in time")
			},
		},
		"twice": {
			deadline: "30s",
			answer: func(t *testing.T, co *company) func(delivery) reply {
				return func(d delivery) reply {
					said := says("Once: " + d.body.Data.Message.Text)
					// By the API too, with the delivery it answers, before the answer in the response.
					got := co.act(t, d.body.Data.Conversation.ID, "respond", object{
						"delivery": d.header.Get("webhook-id"), "messages": []any{object{"text": "Once: " + d.body.Data.Message.Text}},
					})
					if got.status != http.StatusOK {
						return reply{status: http.StatusInternalServerError}
					}
					return said
				}
			},
			check: func(t *testing.T, s *session, id, said string) {
				t.Helper()
				events := s.idleSoon(t, id)
				require.Equal(t, "Once: "+said, events[2].words())
				// The answer in the response has had its time, and added nothing.
				s.co.delivered(t, id)
				require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.events(t, id)))
			},
		},
		"after the close": {
			deadline: "30s", close: true,
			answer: func(*testing.T, *company) func(delivery) reply {
				return func(d delivery) reply { time.Sleep(time.Second); return says("Too late: " + d.body.Data.Message.Text) }
			},
			check: func(t *testing.T, s *session, id, _ string) {
				t.Helper()
				s.co.delivered(t, id)
				// Those that were answered before the close are complete; nothing came after it.
				events := s.events(t, id)
				require.Equal(t, "closed", events[len(events)-1].Status)
				require.Contains(t, []string{"user working closed", "user working company idle closed"}, strings.Join(shape(events), " "))
			},
		},
	}
}

// gates are waited at until they open, one for each conversation.
type gates struct {
	mu  sync.Mutex
	all map[string]chan struct{}
}

func (g *gates) gate(id string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[string]chan struct{}{}
	}
	if g.all[id] == nil {
		g.all[id] = make(chan struct{})
	}
	return g.all[id]
}

func (g *gates) open(id string) { close(g.gate(id)) }

func (g *gates) wait(t *testing.T, id string) {
	select {
	case <-g.gate(id):
	case <-t.Context().Done():
	}
}

// becomes waits until the events of a conversation are as wanted.
func (s *session) becomes(t *testing.T, id string, wanted func([]event) bool) []event {
	t.Helper()
	var events []event
	until(t, "the events are there", func() bool {
		events = s.events(t, id)
		return wanted(events)
	})
	return events
}

// idleSoon waits until a conversation is idle.
func (s *session) idleSoon(t *testing.T, id string) []event {
	t.Helper()
	return s.becomes(t, id, func(events []event) bool { return len(events) > 0 && events[len(events)-1].Status == "idle" })
}

// deliveryOf returns the first delivery of a conversation as the Company sees it.
func (co *company) deliveryOf(t testing.TB, conversation string) map[string]any {
	t.Helper()
	list := co.admin(t, http.MethodGet, co.name+"/backend/deliveries?filter="+strings.ReplaceAll(`conversation="`+co.name+"/conversations/"+conversation+`"`, `"`, "%22"), nil).is(t, http.StatusOK, "")
	all, _ := list.body["deliveries"].([]any)
	if len(all) == 0 {
		return nil
	}
	one, _ := all[0].(map[string]any)
	return one
}

// delivered waits until the first delivery of a conversation is done, asking no more often than a key may.
func (co *company) delivered(t testing.TB, conversation string) {
	t.Helper()
	require.Eventually(t, func() bool { return co.deliveryOf(t, conversation)["state"] == "delivered" }, patience, 400*time.Millisecond, "the delivery is done")
}
