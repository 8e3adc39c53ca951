package relay

import (
	"context"
	"encoding/json"

	"github.com/poppyfield/poppyfield/services/relay/app"
	"github.com/poppyfield/poppyfield/services/relay/queue"
	"github.com/poppyfield/poppyfield/services/relay/store/queuestore"
)

// newQueue makes the queue of events to listening endpoints.
func (s *Service) newQueue() {
	s.kept = queuestore.New(s.deps.DB, s.deps.Events, policyOf)
	with := queue.Deps{Store: s.kept, Teller: teller{s.app}, Bus: s.deps.Bus, Now: s.deps.Now, Log: s.deps.Log}
	if s.deps.Directory != nil {
		with.Retention = s.retention
	}
	s.queue = queue.New(s.deps.Queue, with)
}

// policyOf reads what the queue needs to know from an endpoint's settings. Those that
// make no sense are its owner's to set right; until then the defaults are good enough.
func policyOf(settings json.RawMessage) queue.Policy {
	e := app.NewListener()
	if len(settings) > 0 && json.Unmarshal(settings, &e.Settings) != nil {
		e = app.NewListener()
	}
	return queue.Policy{MaxInFlight: e.InFlight(), Schedule: e.Schedule()}
}

// teller makes the attempts of the queue.
type teller struct{ app *app.App }

// Tell implements queue.Teller.
func (t teller) Tell(ctx context.Context, key queue.Key, m queue.Message) (queue.Answer, error) {
	got, err := t.app.Tell(ctx, key.Scope, key.ID, app.Telling{ID: m.EventID, Body: m.Body, Attempt: m.Attempt - 1, DeliveryID: m.DeliveryID})
	if err != nil {
		return queue.Answer{}, err
	}
	out := queue.Answer{Outcome: queue.Refused, Sent: got.Outcome != app.Held, Status: got.Status, Reason: got.Reason, RetryAfter: got.RetryAfter}
	switch got.Outcome {
	case app.Answered, app.Accepted:
		out.Outcome = queue.Taken
	case app.Held:
		out.Outcome = queue.Held
	case app.Disabled:
		out.Outcome, out.Sent = queue.Off, got.Status != 0
	case app.Retry, app.Unwanted:
	}
	return out, nil
}
