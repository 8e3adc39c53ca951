package relay_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// recorded are the events of a type that listeners would be told of, as their bodies.
func (r *rig) recorded(t testing.TB, kind string) []map[string]any {
	t.Helper()
	var out []map[string]any
	require.NoError(t, r.db.Read(r.ctx(t), r.scope, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.CompanyEvent.Query().Where(companyevent.Type(kind)).Order(companyevent.ByCreatedAt()).All(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			var body struct {
				Data map[string]any `json:"data"`
			}
			if err := json.Unmarshal(row.Body, &body); err != nil {
				return err
			}
			out = append(out, body.Data)
		}
		return nil
	}))
	return out
}

// fails lets n attempts at the backend fail with a status.
func (r *rig) fails(t testing.TB, n, status int) {
	t.Helper()
	r.site.with(status, "")
	for range n {
		require.Equal(t, retry, r.deliver(t, "dlv_1", `{}`).GetOutcome())
	}
}

func TestBreaker_HoldsWhatWouldFail(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		r.fails(t, 5, 500)
		sent := len(r.site.deliveries())
		got := r.deliver(t, "dlv_1", `{}`)
		require.Equal(t, held, got.GetOutcome())
		require.Equal(t, "endpoint keeps failing", got.GetReason())
		require.Equal(t, 10*time.Second, got.GetRetryAfter().AsDuration())
		require.Len(t, r.site.deliveries(), sent, "nothing was sent")
		h := r.backend(t).GetHealth()
		require.Equal(t, "open", h.GetBreaker())
		require.Equal(t, r.clock.Now().Add(10*time.Second), h.GetBreakerUntilTime().AsTime())
		require.EqualValues(t, 5, h.GetFailuresInSeries())
		require.NotNil(t, h.GetFailingSinceTime())
		require.Zero(t, h.GetSuccessRate())

		r.clock.Advance(10 * time.Second)
		r.fails(t, 1, 503)
		got = r.deliver(t, "dlv_1", `{}`)
		require.Equal(t, held, got.GetOutcome())
		require.Equal(t, 15*time.Second, got.GetRetryAfter().AsDuration(), "no longer, for an agent is waiting")

		r.clock.Advance(15 * time.Second)
		r.site.with(204, "")
		require.Equal(t, answered, r.deliver(t, "dlv_1", `{}`).GetOutcome())
		require.Equal(t, answered, r.deliver(t, "dlv_2", `{}`).GetOutcome())
		h = r.backend(t).GetHealth()
		require.Equal(t, "closed", h.GetBreaker())
		require.Zero(t, h.GetFailuresInSeries())
		require.Nil(t, h.GetFailingSinceTime())
		require.Equal(t, r.clock.Now(), h.GetLastSuccessTime().AsTime())
	})
}

func TestBreaker_WhatIsReachedAndRefusesIsNotDead(t *testing.T) {
	r := newRig(t)
	r.point(t)
	for _, status := range []int{400, 401, 404, 301} {
		r.fails(t, 6, status)
	}
	require.Equal(t, "closed", r.backend(t).GetHealth().GetBreaker())
	r.site.with(200, `{"messages":"nonsense"}`, "Content-Type", "application/json")
	for range 6 {
		require.Equal(t, "answer breaks the contract", r.deliver(t, "dlv_1", `{}`).GetReason())
	}
	require.Equal(t, "closed", r.backend(t).GetHealth().GetBreaker(), "a fault of one conversation")
	for _, status := range []int{408, 429, 500, 502, 503} {
		r.enable(t)
		r.fails(t, 5, status)
		require.Equal(t, "open", r.backend(t).GetHealth().GetBreaker(), status)
	}
	r.update(t, &adminv1.Backend{Url: "https://new.example/hook"})
	require.Equal(t, answered, r.deliver(t, "dlv_1", `{}`).GetOutcome(), "another address starts afresh")
}

func TestBreaker_OneEndpointDoesNotHoldAnother(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.fails(t, 5, 500)
	e, _ := r.listener(t, &adminv1.WebhookEndpoint{Url: "https://new.example/hook"})
	require.Equal(t, held, r.deliver(t, "dlv_1", `{}`).GetOutcome())
	require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
}

func TestRate_HoldsWhatIsTooMuch(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{Policy: &adminv1.DeliveryPolicy{Rate: 2, Burst: 2}})
		require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
		require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
		got := r.tell(t, e.GetName())
		require.Equal(t, app.Held, got.Outcome)
		require.Equal(t, "rate used up", got.Reason)
		require.InDelta(t, 0.5, got.RetryAfter.Seconds(), 0.001)
		require.Len(t, r.site.deliveries(), 2)
		r.clock.Advance(got.RetryAfter)
		require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
	})
}

func TestTell_ListenersAnswerNothing(t *testing.T) {
	r := newRig(t)
	e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
	for name, c := range map[string]struct {
		status int
		body   string
		kind   string
	}{
		"text": {200, "ok", "text/plain"}, "odd JSON": {201, `{"messages":7}`, "application/json"}, "broken JSON": {200, `{`, "application/json"},
		"later": {202, "", ""}, "messages": {200, `{"messages":[{"text":"hi"}]}`, "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			r.site.with(c.status, c.body, "Content-Type", c.kind)
			got := r.tell(t, e.GetName())
			require.Contains(t, []app.Outcome{app.Answered, app.Accepted}, got.Outcome)
			require.True(t, got.Empty())
		})
	}
}

func TestWH03_Gone_DisablesAtOnceAndTells(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		watch, _ := r.listener(t, &adminv1.WebhookEndpoint{Url: "https://new.example/hook", EventTypes: []string{"endpoint.*"}})
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{DisplayName: "CRM"})
		r.point(t)
		r.site.with(http.StatusGone, "")
		require.Equal(t, app.Disabled, r.tell(t, e.GetName()).Outcome)
		require.Equal(t, disabled, r.deliver(t, "dlv_1", `{}`).GetOutcome())
		off := r.getListener(t, e.GetName())
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_DISABLED, off.GetState())
		require.Equal(t, "endpoint gone", off.GetDisableReason())
		require.NotEqual(t, e.GetEtag(), off.GetEtag())
		sent := len(r.site.deliveries())
		require.Equal(t, app.Disabled, r.tell(t, e.GetName()).Outcome)
		require.Len(t, r.site.deliveries(), sent)
		events := r.recorded(t, "endpoint.disabled")
		require.Len(t, events, 2)
		// They are of the same moment, and so in no order.
		require.ElementsMatch(t, []any{
			map[string]any{"name": e.GetName(), "display_name": "CRM"},
			map[string]any{"name": r.name(), "display_name": ""},
		}, []any{events[0]["endpoint"], events[1]["endpoint"]})
		for _, e := range events {
			require.Equal(t, "endpoint gone", e["reason"])
		}

		// On again, and well: that is told once, too.
		_, err := r.endpoints.EnableWebhookEndpoint(r.ctx(t), &adminv1.EnableWebhookEndpointRequest{Name: e.GetName()})
		require.NoError(t, err)
		require.Empty(t, r.recorded(t, "endpoint.recovered"))
		r.site.with(204, "")
		for range 3 {
			require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
		}
		require.Len(t, r.recorded(t, "endpoint.recovered"), 1)
		_ = watch
	})
}

func TestWH10_NothingButFailures_DisablesOnceAtTheThreshold(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.listener(t, &adminv1.WebhookEndpoint{Url: "https://new.example/hook"})
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		name := e.GetName()
		const five = 5 * 24 * time.Hour
		r.site.with(404, "")
		for range 19 {
			require.Equal(t, app.Retry, r.tell(t, name).Outcome)
			r.clock.Advance(five / 20)
		}
		require.EqualValues(t, 19, r.getListener(t, name).GetHealth().GetFailuresInSeries())
		r.site.with(204, "")
		require.Equal(t, app.Answered, r.tell(t, name).Outcome)
		require.Zero(t, r.getListener(t, name).GetHealth().GetFailuresInSeries(), "a success ends the series")
		r.site.with(404, "")
		for range 20 {
			require.Equal(t, app.Retry, r.tell(t, name).Outcome)
			r.clock.Advance(five / 20)
		}
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.getListener(t, name).GetState())

		// Five days after the first failure, by several workers at the same time.
		outcomes := make([]app.Outcome, 6)
		var all sync.WaitGroup
		for i := range outcomes {
			all.Go(func() {
				got, err := r.service.App().Tell(r.ctx(t), r.scope, idOf(name), app.Telling{ID: "evt_1", Body: []byte(`{}`), DeliveryID: "wdl_1"})
				if err == nil {
					outcomes[i] = got.Outcome
				}
			})
		}
		all.Wait()
		for _, o := range outcomes {
			require.Equal(t, app.Disabled, o)
		}
		off := r.getListener(t, name)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_DISABLED, off.GetState())
		require.Equal(t, "nothing but failures for 5 days, the last: status 404", off.GetDisableReason())
		require.Len(t, r.recorded(t, "endpoint.disabled"), 1, "told once")

		_, err := r.endpoints.EnableWebhookEndpoint(r.ctx(t), &adminv1.EnableWebhookEndpointRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, app.Retry, r.tell(t, name).Outcome, "five more days")
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.getListener(t, name).GetState())
	})
}

func TestWH10_DisableAfterIsTheEndpointsOwn(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.update(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{DisableAfter: seconds(3600)[0]}})
	r.fails(t, 1, 500)
	r.clock.Advance(time.Hour - time.Second)
	r.fails(t, 1, 500)
	r.clock.Advance(time.Second)
	r.site.with(500, "")
	got := r.deliver(t, "dlv_1", `{}`)
	require.Equal(t, disabled, got.GetOutcome())
	require.EqualValues(t, 500, got.GetStatus())
	require.Equal(t, "nothing but failures for 1h0m0s, the last: status 500", r.backend(t).GetDisableReason())
}

// A success writes nothing: there would be a commit for each message.
func TestHealth_GoodPathWritesNothing(t *testing.T) {
	r := newRig(t)
	r.point(t)
	row := func() *ent.Endpoint {
		var out *ent.Endpoint
		require.NoError(t, r.db.Read(r.ctx(t), r.scope, func(ctx context.Context, tx *ent.Tx) error {
			var err error
			out, err = tx.Endpoint.Query().Only(ctx)
			return err
		}))
		return out
	}
	before := row()
	for range 10 {
		r.deliver(t, "dlv_1", `{}`)
	}
	require.Equal(t, before.String(), row().String())
	// A series is written at its beginning, and not with each failure.
	r.fails(t, 4, 404)
	require.Equal(t, 1, row().Failures)
	require.EqualValues(t, 4, r.backend(t).GetHealth().GetFailuresInSeries())
	require.Equal(t, before.Version, row().Version, "health is no change of the resource")
	r.clock.Advance(5 * time.Second)
	r.fails(t, 1, 404)
	require.Equal(t, 5, row().Failures)
}

func TestAttempts_ShowWhatHappened(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		r.site.with(500, "oh no\x00\xff "+strings.Repeat("x", 8<<10), "Content-Type", "text/plain")
		r.deliver(t, "dlv_1", `{}`)
		r.clock.Advance(time.Second)
		r.site.with(204, "")
		r.deliver(t, "dlv_1", `{}`)
		r.clock.Advance(time.Second)
		r.deliver(t, "dlv_2", `{}`)
		r.update(t, &adminv1.Backend{Url: "https://refused.example/hook"})
		r.clock.Advance(time.Second)
		r.deliver(t, "dlv_3", `{}`)

		got := r.listAttempts(t, &adminv1.ListAttemptsRequest{Delivery: r.name() + "/deliveries/dlv_1"})
		require.Len(t, got, 2)
		require.Equal(t, "delivered", got[0].GetOutcome(), "the newest first")
		first := got[1]
		require.Equal(t, r.name()+"/deliveries/dlv_1", first.GetDelivery())
		require.Equal(t, "retry", first.GetOutcome())
		require.EqualValues(t, 500, first.GetStatus())
		require.Equal(t, "status 500", first.GetReason())
		require.Equal(t, r.site.addr, first.GetAddress())
		require.Positive(t, first.GetConnect().AsDuration())
		require.Positive(t, first.GetFirstByte().AsDuration())
		require.Equal(t, "dlv_1", first.GetRequestHeaders()["Webhook-Id"])
		require.True(t, strings.HasPrefix(first.GetResponseBody(), "oh no\uFFFD\uFFFD xxx"))
		require.LessOrEqual(t, len(first.GetResponseBody()), 4<<10+8)

		all := r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name(), PageSize: 3})
		require.Len(t, all, 4)
		require.Equal(t, "no connection", all[0].GetReason())
		require.Zero(t, all[0].GetStatus())
		for i := range all[1:] {
			require.False(t, all[i+1].GetStartTime().AsTime().After(all[i].GetStartTime().AsTime()))
		}
		require.Empty(t, r.listAttempts(t, &adminv1.ListAttemptsRequest{Delivery: r.name() + "/deliveries/dlv_9"}))

		e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		r.tell(t, e.GetName())
		got = r.listAttempts(t, &adminv1.ListAttemptsRequest{Delivery: e.GetName() + "/deliveries/wdl_1"})
		require.Len(t, got, 1)
		require.Equal(t, e.GetName()+"/deliveries/wdl_1", got[0].GetDelivery())
		require.Len(t, r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: e.GetName()}), 1)
		for name, req := range map[string]*adminv1.ListAttemptsRequest{
			"neither":        {},
			"another's":      {Endpoint: e.GetName(), Delivery: r.name() + "/deliveries/dlv_1"},
			"no such parent": {Delivery: "companies/cmp_x/backend/deliveries/dlv_1"},
		} {
			req.Parent = r.scope.Name()
			_, err := r.attempts.ListAttempts(r.ctx(t), req)
			require.Error(t, err, name)
		}
	})
}

func TestAttempts_PrunedAfterTheRetention(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, err := app.New(app.Deps{
			Store: r.store(), Now: r.clock.Now,
			Retention: func(context.Context, tenancy.Scope) (time.Duration, error) { return time.Hour, nil },
		})
		require.NoError(t, err)
		r.point(t)
		r.deliver(t, "dlv_1", `{}`)
		r.clock.Advance(30 * time.Minute)
		r.deliver(t, "dlv_2", `{}`)
		require.Len(t, r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name()}), 2)
		r.clock.Advance(31 * time.Minute)
		require.NoError(t, a.Prune(t.Context()))
		left := r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name()})
		require.Len(t, left, 1)
		require.Equal(t, r.name()+"/deliveries/dlv_2", left[0].GetDelivery())
	})
}

func TestSecretExpiring_ToldOnceADayAhead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.listener(t, &adminv1.WebhookEndpoint{Url: "https://new.example/hook", EventTypes: []string{"secret.*"}})
		r.hmac(t, 0)
		r.hmac(t, 48*time.Hour)
		look := func() int {
			require.NoError(t, r.service.App().TellExpiring(t.Context()))
			return len(r.recorded(t, "secret.expiring"))
		}
		require.Zero(t, look())
		r.clock.Advance(25 * time.Hour)
		require.Equal(t, 1, look())
		require.Equal(t, 1, look())
		secret, ok := r.recorded(t, "secret.expiring")[0]["secret"].(map[string]any)
		require.True(t, ok)
		require.Equal(t, "hmac", secret["kind"])
		require.Contains(t, secret["name"], r.name()+"/secrets/whs_")
	})
}
