package relay_test

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/events"
)

// ends records that a Session ended, for whoever listens.
func (r *rig) ends(t testing.TB) {
	t.Helper()
	require.NoError(t, r.db.Write(t.Context(), r.scope, func(ctx context.Context, tx *ent.Tx) error {
		return r.events.Add(ctx, tx, r.scope, outbox.Event{Type: webhook.EventSessionEnded, Subject: "sessions/ses_1", At: r.clock.Now(), Data: webhook.SessionEndedData{
			SessionFacts: webhook.SessionFacts{Session: webhook.NewDeliverySession("ses_1", false, "", nil)}, Reason: "company",
		}})
	}))
}

func (r *rig) waiting(t testing.TB, endpoint, state string, n int) []*adminv1.WebhookDelivery {
	t.Helper()
	var got []*adminv1.WebhookDelivery
	require.Eventually(t, func() bool {
		list, err := r.webhooks.ListWebhookDeliveries(r.ctx(t), &adminv1.ListWebhookDeliveriesRequest{Parent: endpoint, Filter: `state = "` + state + `"`})
		require.NoError(t, err)
		got = list.GetDeliveries()
		for _, d := range got {
			if d.GetInFlight() {
				return false
			}
		}
		return len(got) == n
	}, 20*time.Second, 10*time.Millisecond, "%d %s", n, state)
	return got
}

// TestWH13_WebhookDelivery_EachAttemptIsFresh: the same id and bytes, signed anew with a time of its own.
func TestWH13_WebhookDelivery_EachAttemptIsFresh(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, secret := r.listener(t, &adminv1.WebhookEndpoint{EventTypes: []string{"session.*"}})
		r.site.with(http.StatusInternalServerError, "no")
		r.ends(t)
		r.waiting(t, e.GetName(), "pending", 1)
		require.Eventually(t, func() bool { return len(r.site.deliveries()) == 1 }, 20*time.Second, 10*time.Millisecond)
		r.waiting(t, e.GetName(), "pending", 1)
		r.clock.Advance(6 * time.Second)
		require.Eventually(t, func() bool { return len(r.site.deliveries()) == 2 }, 20*time.Second, 10*time.Millisecond)
		r.site.with(http.StatusOK, "")
		r.waiting(t, e.GetName(), "pending", 1)
		r.clock.Advance(6 * time.Minute)
		done := r.waiting(t, e.GetName(), "delivered", 1)[0]
		require.EqualValues(t, 3, done.GetAttempts())
		got := r.site.deliveries()
		require.Len(t, got, 3)
		for i, one := range got {
			require.Equal(t, got[0].body, one.body)
			require.Equal(t, done.GetEvent(), one.header.Get("webhook-id"))
			requireSigned(t, one, secret)
			if i > 0 {
				require.NotEqual(t, got[i-1].header.Get("webhook-timestamp"), one.header.Get("webhook-timestamp"))
				require.NotEqual(t, got[i-1].header.Get("webhook-signature"), one.header.Get("webhook-signature"))
			}
		}
		requireFits(t, got[0].body, webhook.EventSessionEnded)
		whole, err := r.webhooks.GetWebhookDelivery(r.ctx(t), &adminv1.GetWebhookDeliveryRequest{Name: done.GetName()})
		require.NoError(t, err)
		require.Equal(t, got[0].body, whole.GetBody())
	})
}

func requireSigned(t testing.TB, d delivery, secret string) {
	t.Helper()
	key, err := webhook.ParseSecret(secret)
	require.NoError(t, err)
	at, err := strconv.ParseInt(d.header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	h := webhook.Headers{ID: d.header.Get("webhook-id"), Timestamp: d.header.Get("webhook-timestamp"), Signature: d.header.Get("webhook-signature")}
	require.NoError(t, webhook.Verify(h, d.body, time.Unix(at, 0), key))
}

func requireFits(t testing.TB, body []byte, name string) {
	t.Helper()
	raw, err := events.Schema(name)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("https://poppyfield.example/"+name, doc))
	s, err := c.Compile("https://poppyfield.example/" + name)
	require.NoError(t, err)
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, s.Validate(got))
}

// TestWH17_WebhookDelivery_RetriesGoToTheNewURL: what waits goes to the new URL, and nothing more to the old one.
func TestWH17_WebhookDelivery_RetriesGoToTheNewURL(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{EventTypes: []string{"session.ended"}})
		r.site.with(http.StatusInternalServerError, "no")
		for range 3 {
			r.ends(t)
		}
		require.Eventually(t, func() bool { return len(r.site.deliveries()) == 3 }, 20*time.Second, 10*time.Millisecond)
		r.waiting(t, e.GetName(), "pending", 3)
		_, err := r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{
			Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), Url: "https://new.example/hook"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url"}},
		})
		require.NoError(t, err)
		r.clock.Advance(6 * time.Second)
		r.waiting(t, e.GetName(), "delivered", 3)
		require.Len(t, r.site.deliveries(), 3)
		require.Len(t, r.new.deliveries(), 3)
	})
}

func TestWebhookDelivery_WaitsWhileDisabledAndGoesWhenEnabled(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{EventTypes: []string{"session.*"}})
		_, err := r.endpoints.DisableWebhookEndpoint(r.ctx(t), &adminv1.DisableWebhookEndpointRequest{Name: e.GetName(), Reason: "being moved"})
		require.NoError(t, err)
		r.ends(t)
		r.ends(t)
		for _, d := range r.waiting(t, e.GetName(), "pending", 2) {
			require.Nil(t, d.GetNextAttemptTime())
		}
		require.Empty(t, r.site.deliveries())
		_, err = r.endpoints.EnableWebhookEndpoint(r.ctx(t), &adminv1.EnableWebhookEndpointRequest{Name: e.GetName()})
		require.NoError(t, err)
		r.waiting(t, e.GetName(), "delivered", 2)
	})
}

func TestWebhookDelivery_ResendAndCancel(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		start := timestamppb.New(r.clock.Now().Add(-time.Minute))
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		r.ends(t)
		first := r.waiting(t, e.GetName(), "delivered", 1)[0]
		again, err := r.webhooks.ResendWebhookDelivery(r.ctx(t), &adminv1.ResendWebhookDeliveryRequest{Name: first.GetName()})
		require.NoError(t, err)
		require.Equal(t, first.GetEvent(), again.GetEvent())
		require.Equal(t, "resend", again.GetOrigin())
		r.waiting(t, e.GetName(), "delivered", 2)
		r.clock.Advance(time.Second)

		fresh, _ := r.listener(t, &adminv1.WebhookEndpoint{Url: "https://new.example/hook"})
		dry, err := r.webhooks.ResendWebhookDeliveries(r.ctx(t), &adminv1.ResendWebhookDeliveriesRequest{Parent: fresh.GetName(), StartTime: start, ValidateOnly: true})
		require.NoError(t, err)
		require.EqualValues(t, 1, dry.GetResent())
		got, err := r.webhooks.ResendWebhookDeliveries(r.ctx(t), &adminv1.ResendWebhookDeliveriesRequest{Parent: fresh.GetName(), StartTime: start})
		require.NoError(t, err)
		require.EqualValues(t, 1, got.GetResent())
		require.False(t, got.GetMore())
		sent := r.waiting(t, fresh.GetName(), "delivered", 1)[0]
		require.Equal(t, first.GetEvent(), sent.GetEvent())
		_, err = r.webhooks.CancelWebhookDelivery(r.ctx(t), &adminv1.CancelWebhookDeliveryRequest{Name: sent.GetName()})
		requireReason(t, err, problem.FailedPrecondition)

		other := tenancy.Into(t.Context(), dbtest.Company(t, r.db))
		_, err = r.webhooks.GetWebhookDelivery(other, &adminv1.GetWebhookDeliveryRequest{Name: sent.GetName()})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.webhooks.ListWebhookDeliveries(r.ctx(t), &adminv1.ListWebhookDeliveriesRequest{Parent: e.GetName(), Filter: `colour = "red"`})
		requireReason(t, err, problem.InvalidRequest, "filter")
		_, err = r.webhooks.ListWebhookDeliveries(r.ctx(t), &adminv1.ListWebhookDeliveriesRequest{Parent: e.GetName(), Filter: `state = "lost"`})
		requireReason(t, err, problem.InvalidRequest, "filter")
		page, err := r.webhooks.ListWebhookDeliveries(r.ctx(t), &adminv1.ListWebhookDeliveriesRequest{Parent: e.GetName(), PageSize: 1})
		require.NoError(t, err)
		require.Len(t, page.GetDeliveries(), 1)
		next, err := r.webhooks.ListWebhookDeliveries(r.ctx(t), &adminv1.ListWebhookDeliveriesRequest{Parent: e.GetName(), PageSize: 1, PageToken: page.GetNextPageToken()})
		require.NoError(t, err)
		require.Equal(t, first.GetName(), next.GetDeliveries()[0].GetName())
		require.Empty(t, next.GetNextPageToken())
	})
}
