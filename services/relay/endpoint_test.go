package relay_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

const hookURL = "https://backend.example/hook"

// listener makes an endpoint and returns it with its secret.
func (r *rig) listener(t testing.TB, e *adminv1.WebhookEndpoint) (*adminv1.WebhookEndpoint, string) {
	t.Helper()
	if e.GetUrl() == "" {
		e.Url = hookURL
	}
	got, err := r.endpoints.CreateWebhookEndpoint(r.ctx(t), &adminv1.CreateWebhookEndpointRequest{Parent: r.scope.Name(), Endpoint: e})
	require.NoError(t, err)
	return got.GetEndpoint(), got.GetSecret().GetSecret()
}

func (r *rig) getListener(t testing.TB, name string) *adminv1.WebhookEndpoint {
	t.Helper()
	got, err := r.endpoints.GetWebhookEndpoint(r.ctx(t), &adminv1.GetWebhookEndpointRequest{Name: name})
	require.NoError(t, err)
	return got
}

func idOf(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// tell makes an attempt at a listener.
func (r *rig) tell(t testing.TB, name string) app.Attempt {
	t.Helper()
	got, err := r.service.App().Tell(r.ctx(t), r.scope, idOf(name), app.Telling{ID: "evt_1", Body: []byte(`{"a":1}`), DeliveryID: "wdl_1"})
	require.NoError(t, err)
	return got
}

func TestWebhookEndpoint_Life(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, secret := r.listener(t, &adminv1.WebhookEndpoint{DisplayName: "CRM", EventTypes: []string{"conversation.closed", "session.*"}})
		require.True(t, strings.HasPrefix(e.GetName(), r.scope.Name()+"/endpoints/wep_"))
		require.True(t, strings.HasPrefix(secret, "whsec_"))
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, e.GetState())
		require.Equal(t, "closed", e.GetHealth().GetBreaker())
		require.Equal(t, e.String(), r.getListener(t, e.GetName()).String())
		require.NotEmpty(t, r.publicKeys(t), "v1a signs as well")

		up, err := r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{
			Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), DisplayName: "Data", Etag: e.GetEtag()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"display_name", "event_types"}},
		})
		require.NoError(t, err)
		require.Equal(t, "Data", up.GetDisplayName())
		require.Empty(t, up.GetEventTypes())
		require.Equal(t, hookURL, up.GetUrl())
		_, err = r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), DisplayName: "x", Etag: e.GetEtag()}})
		requireReason(t, err, problem.EtagMismatch)
		seen, err := r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), DisplayName: "x"}, ValidateOnly: true})
		require.NoError(t, err)
		require.Equal(t, "x", seen.GetDisplayName())
		require.Equal(t, "Data", r.getListener(t, e.GetName()).GetDisplayName())

		off, err := r.endpoints.DisableWebhookEndpoint(r.ctx(t), &adminv1.DisableWebhookEndpointRequest{Name: e.GetName(), Reason: "moving house"})
		require.NoError(t, err)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_DISABLED, off.GetState())
		require.Equal(t, "moving house", off.GetDisableReason())
		require.Equal(t, app.Disabled, r.tell(t, e.GetName()).Outcome)
		require.Empty(t, r.site.deliveries())
		on, err := r.endpoints.EnableWebhookEndpoint(r.ctx(t), &adminv1.EnableWebhookEndpointRequest{Name: e.GetName()})
		require.NoError(t, err)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, on.GetState())
		require.Empty(t, on.GetDisableReason())

		_, err = r.endpoints.DeleteWebhookEndpoint(r.ctx(t), &adminv1.DeleteWebhookEndpointRequest{Name: e.GetName(), Etag: e.GetEtag()})
		requireReason(t, err, problem.EtagMismatch)
		_, err = r.endpoints.DeleteWebhookEndpoint(r.ctx(t), &adminv1.DeleteWebhookEndpointRequest{Name: e.GetName(), Etag: on.GetEtag()})
		require.NoError(t, err)
		_, err = r.endpoints.GetWebhookEndpoint(r.ctx(t), &adminv1.GetWebhookEndpointRequest{Name: e.GetName()})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestCreateWebhookEndpoint_Refuses(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		e     *adminv1.WebhookEndpoint
		field string
	}{
		"no url":        {&adminv1.WebhookEndpoint{}, "endpoint.url"},
		"http":          {&adminv1.WebhookEndpoint{Url: "http://backend.example"}, "endpoint.url"},
		"private":       {&adminv1.WebhookEndpoint{Url: "https://10.0.0.1/"}, "endpoint.url"},
		"unknown type":  {&adminv1.WebhookEndpoint{Url: hookURL, EventTypes: []string{"session.*", "conversation.exploded"}}, "endpoint.event_types[1]"},
		"star inside":   {&adminv1.WebhookEndpoint{Url: hookURL, EventTypes: []string{"*.closed"}}, "endpoint.event_types[0]"},
		"a long name":   {&adminv1.WebhookEndpoint{Url: hookURL, DisplayName: strings.Repeat("x", 201)}, "endpoint.display_name"},
		"a bad header":  {&adminv1.WebhookEndpoint{Url: hookURL, Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"Host": "x"}}}, `endpoint.policy.headers["Host"]`},
		"a bad in fl.":  {&adminv1.WebhookEndpoint{Url: hookURL, Policy: &adminv1.DeliveryPolicy{MaxInFlight: -1}}, "endpoint.policy.max_in_flight"},
		"hidden header": {&adminv1.WebhookEndpoint{Url: hookURL, Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"X-A": hidden}}}, `endpoint.policy.headers["X-A"]`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, validateOnly := range []bool{true, false} {
				_, err := r.endpoints.CreateWebhookEndpoint(r.ctx(t), &adminv1.CreateWebhookEndpointRequest{Parent: r.scope.Name(), Endpoint: c.e, ValidateOnly: validateOnly})
				requireReason(t, err, problem.InvalidRequest)
				require.Equal(t, c.field, problem.As(err).Fields[0].Path)
			}
		})
	}
	got, err := r.endpoints.CreateWebhookEndpoint(r.ctx(t), &adminv1.CreateWebhookEndpointRequest{Parent: r.scope.Name(), Endpoint: &adminv1.WebhookEndpoint{Url: hookURL}, ValidateOnly: true})
	require.NoError(t, err)
	require.Empty(t, got.GetEndpoint().GetName())
	require.Nil(t, got.GetSecret())
	require.Empty(t, r.publicKeys(t))
}

func TestCreateWebhookEndpoint_FiftyACompany(t *testing.T) {
	r := newRig(t)
	for range 50 {
		r.listener(t, &adminv1.WebhookEndpoint{})
	}
	_, err := r.endpoints.CreateWebhookEndpoint(r.ctx(t), &adminv1.CreateWebhookEndpointRequest{Parent: r.scope.Name(), Endpoint: &adminv1.WebhookEndpoint{Url: hookURL}})
	requireReason(t, err, problem.FailedPrecondition)
	names := map[string]bool{}
	req := &adminv1.ListWebhookEndpointsRequest{Parent: r.scope.Name(), PageSize: 20}
	pages := 0
	for {
		got, err := r.endpoints.ListWebhookEndpoints(r.ctx(t), req)
		require.NoError(t, err)
		pages++
		for _, e := range got.GetEndpoints() {
			require.False(t, names[e.GetName()])
			names[e.GetName()] = true
		}
		if req.PageToken = got.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	require.Len(t, names, 50)
	require.Equal(t, 3, pages)
	// The backend is none of them.
	r.point(t)
	got, err := r.endpoints.ListWebhookEndpoints(r.ctx(t), &adminv1.ListWebhookEndpointsRequest{Parent: r.scope.Name(), PageSize: 100})
	require.NoError(t, err)
	require.Len(t, got.GetEndpoints(), 50)
}

func TestWH14_WebhookEndpoint_SignsWithItsOwnSecrets(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, secret := r.listener(t, &adminv1.WebhookEndpoint{})
		_, other := r.listener(t, &adminv1.WebhookEndpoint{})
		r.point(t)
		backends := r.hmac(t, 0)
		require.Equal(t, app.Answered, r.tell(t, e.GetName()).Outcome)
		got := r.site.last(t)
		require.NoError(t, verifyHMAC(t, got, secret))
		require.Error(t, verifyHMAC(t, got, other))
		require.Error(t, verifyHMAC(t, got, backends))
		require.Contains(t, got.header.Get("Webhook-Signature"), "v1a,")

		rotated, err := r.endpoints.RotateWebhookEndpointSecret(r.ctx(t), &adminv1.RotateWebhookEndpointSecretRequest{Name: e.GetName(), Overlap: durationpb.New(time.Hour)})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(rotated.GetName(), e.GetName()+"/secrets/whs_"))
		r.tell(t, e.GetName())
		for _, s := range []string{secret, rotated.GetSecret()} {
			require.NoError(t, verifyHMAC(t, r.site.last(t), s))
		}
		r.deliver(t, "dlv_1", `{}`)
		require.NoError(t, verifyHMAC(t, r.site.last(t), backends), "the backend's goes on")
		require.Error(t, verifyHMAC(t, r.site.last(t), rotated.GetSecret()))

		listed, err := r.endpoints.ListWebhookEndpointSecrets(r.ctx(t), &adminv1.ListWebhookEndpointSecretsRequest{Parent: e.GetName()})
		require.NoError(t, err)
		require.Len(t, listed.GetSecrets(), 3)
		for _, s := range listed.GetSecrets() {
			require.Empty(t, s.GetSecret())
		}
		r.clock.Advance(time.Hour)
		r.tell(t, e.GetName())
		require.Error(t, verifyHMAC(t, r.site.last(t), secret))
		for range 4 {
			_, err = r.endpoints.RotateWebhookEndpointSecret(r.ctx(t), &adminv1.RotateWebhookEndpointSecretRequest{Name: e.GetName(), Overlap: durationpb.New(time.Hour)})
			require.NoError(t, err)
		}
		_, err = r.endpoints.RotateWebhookEndpointSecret(r.ctx(t), &adminv1.RotateWebhookEndpointSecretRequest{Name: e.GetName(), Overlap: durationpb.New(time.Hour)})
		requireReason(t, err, problem.FailedPrecondition)
	})
}

func TestDeleteWebhookEndpoint_TakesWhatWaitsAlong(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		kept, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		waiting := func(name string, n int) {
			require.NoError(t, r.db.Write(r.ctx(t), r.scope, func(ctx context.Context, tx *ent.Tx) error {
				for range n {
					err := tx.EndpointDelivery.Create().SetID(ids.New(ids.Telling)).SetEndpointID(idOf(name)).SetEventID("evt_1").SetEventType("session.started").
						SetCreatedAt(r.clock.Now()).Exec(ctx)
					if err != nil {
						return err
					}
				}
				return nil
			}))
		}
		waiting(e.GetName(), 3)
		waiting(kept.GetName(), 2)
		h := r.getListener(t, e.GetName()).GetHealth()
		require.EqualValues(t, 3, h.GetPending())
		require.Equal(t, r.clock.Now(), h.GetOldestPendingTime().AsTime())
		_, err := r.endpoints.DeleteWebhookEndpoint(r.ctx(t), &adminv1.DeleteWebhookEndpointRequest{Name: e.GetName()})
		require.NoError(t, err)
		require.NoError(t, r.db.Read(r.ctx(t), r.scope, func(ctx context.Context, tx *ent.Tx) error {
			n, err := tx.EndpointDelivery.Query().Count(ctx)
			require.Equal(t, 2, n)
			if err != nil {
				return err
			}
			secrets, err := tx.WebhookSecret.Query().All(ctx)
			for _, s := range secrets {
				require.NotEqual(t, idOf(e.GetName()), s.EndpointID)
			}
			return err
		}))
	})
}

func TestTestWebhookEndpoint_OnceAndWithoutConsequences(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		e, secret := r.listener(t, &adminv1.WebhookEndpoint{DisplayName: "CRM", Policy: &adminv1.DeliveryPolicy{Rate: 0.001}})
		try := func(kind string) *adminv1.Attempt {
			got, err := r.endpoints.TestWebhookEndpoint(r.ctx(t), &adminv1.TestWebhookEndpointRequest{Name: e.GetName(), EventType: kind})
			require.NoError(t, err)
			return got.GetAttempt()
		}
		r.site.with(200, "thanks")
		got := try("")
		require.Equal(t, "delivered", got.GetOutcome())
		require.EqualValues(t, 200, got.GetStatus())
		require.Equal(t, "thanks", got.GetResponseBody())
		require.Equal(t, r.site.addr, got.GetAddress())
		require.NoError(t, verifyHMAC(t, r.site.last(t), secret))
		require.Contains(t, string(r.site.last(t).body), `"test.ping"`)
		require.Contains(t, string(r.site.last(t).body), e.GetName())
		got = try("session.started")
		require.Equal(t, "delivered", got.GetOutcome())
		require.Contains(t, string(r.site.last(t).body), `"session.started"`)
		_, err := r.endpoints.TestWebhookEndpoint(r.ctx(t), &adminv1.TestWebhookEndpointRequest{Name: e.GetName(), EventType: "no.such"})
		requireReason(t, err, problem.InvalidRequest, "event_type")

		r.site.with(http.StatusGone, "")
		for range 7 {
			require.Equal(t, "disabled", try("").GetOutcome())
		}
		now := r.getListener(t, e.GetName())
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, now.GetState())
		require.Zero(t, now.GetHealth().GetAttempts())
		require.Zero(t, now.GetHealth().GetFailuresInSeries())
		_, err = r.endpoints.DisableWebhookEndpoint(r.ctx(t), &adminv1.DisableWebhookEndpointRequest{Name: e.GetName()})
		require.NoError(t, err)
		r.site.with(204, "")
		require.Equal(t, "delivered", try("").GetOutcome(), "also where it is off")
	})
}

func TestListEventTypes_SchemaAndExample(t *testing.T) {
	r := newRig(t)
	got, err := r.endpoints.ListEventTypes(r.ctx(t), &adminv1.ListEventTypesRequest{Parent: r.scope.Name()})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(got.GetEventTypes()), 20)
	for _, e := range got.GetEventTypes() {
		require.NotEmpty(t, e.GetDescription())
		require.Equal(t, e.GetType(), e.GetExample().GetFields()["type"].GetStringValue())
		require.Equal(t, "object", e.GetSchema().GetFields()["type"].GetStringValue())
	}
}

func TestWebhookEndpoint_RingsWhoRemembersListeners(t *testing.T) {
	r := newRig(t)
	rung := make(chan string, 100)
	for _, pattern := range []string{bus.AllCompanies, bus.AllDeliveries} {
		leave, err := r.bus.Subscribe(pattern, func(_ context.Context, subject string, _ []byte) { rung <- subject })
		require.NoError(t, err)
		defer leave()
	}
	next := func() string {
		select {
		case s := <-rung:
			return s
		case <-time.After(20 * time.Second):
			require.FailNow(t, "no ring")
			return ""
		}
	}
	company, err := bus.CompanySubject(r.scope.CompanyID())
	require.NoError(t, err)
	delivery, err := bus.DeliverySubject(r.scope.CompanyID())
	require.NoError(t, err)
	e, _ := r.listener(t, &adminv1.WebhookEndpoint{})
	require.Equal(t, company, next())
	_, err = r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), Url: "https://new.example/hook"}})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{company, delivery}, []string{next(), next()})
	_, err = r.endpoints.EnableWebhookEndpoint(r.ctx(t), &adminv1.EnableWebhookEndpointRequest{Name: e.GetName()})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{company, delivery}, []string{next(), next()})
	_, err = r.endpoints.DeleteWebhookEndpoint(r.ctx(t), &adminv1.DeleteWebhookEndpointRequest{Name: e.GetName()})
	require.NoError(t, err)
	require.Equal(t, company, next())
}

func TestMT06_WebhookEndpointsAreTheirCompanysAlone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		mine, _ := r.listener(t, &adminv1.WebhookEndpoint{})
		r.tell(t, mine.GetName())
		other := dbtest.Company(t, r.db)
		ctx := tenancy.Into(t.Context(), other)
		renamed := other.Name() + "/endpoints/" + idOf(mine.GetName())
		for _, name := range []string{mine.GetName(), renamed} {
			_, err := r.endpoints.GetWebhookEndpoint(ctx, &adminv1.GetWebhookEndpointRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.UpdateWebhookEndpoint(ctx, &adminv1.UpdateWebhookEndpointRequest{Endpoint: &adminv1.WebhookEndpoint{Name: name, DisplayName: "x"}})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.DeleteWebhookEndpoint(ctx, &adminv1.DeleteWebhookEndpointRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.EnableWebhookEndpoint(ctx, &adminv1.EnableWebhookEndpointRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.DisableWebhookEndpoint(ctx, &adminv1.DisableWebhookEndpointRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.TestWebhookEndpoint(ctx, &adminv1.TestWebhookEndpointRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.RotateWebhookEndpointSecret(ctx, &adminv1.RotateWebhookEndpointSecretRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.endpoints.ListWebhookEndpointSecrets(ctx, &adminv1.ListWebhookEndpointSecretsRequest{Parent: name})
			requireReason(t, err, problem.NotFoundReason)
		}
		_, err := r.service.App().Tell(ctx, other, idOf(mine.GetName()), app.Telling{ID: "evt_1", Body: []byte(`{}`), DeliveryID: "wdl_1"})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.attempts.ListAttempts(ctx, &adminv1.ListAttemptsRequest{Parent: other.Name(), Endpoint: mine.GetName()})
		requireReason(t, err, problem.NotFoundReason)
		got, err := r.attempts.ListAttempts(ctx, &adminv1.ListAttemptsRequest{Parent: other.Name(), Endpoint: renamed})
		require.NoError(t, err)
		require.Empty(t, got.GetAttempts())
		list, err := r.endpoints.ListWebhookEndpoints(ctx, &adminv1.ListWebhookEndpointsRequest{Parent: other.Name()})
		require.NoError(t, err)
		require.Empty(t, list.GetEndpoints())
		require.Len(t, r.site.deliveries(), 1)
		// A backend is no listener.
		r.point(t)
		_, err = r.service.App().Tell(r.ctx(t), r.scope, r.backendID(t), app.Telling{ID: "evt_1", Body: []byte(`{}`), DeliveryID: "wdl_1"})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func (r *rig) backendID(t testing.TB) string {
	t.Helper()
	b, err := r.service.App().Backend(r.ctx(t), r.scope)
	require.NoError(t, err)
	return b.ID
}

func TestUpdateWebhookEndpoint_SecretsStayWithTheirServer(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		cert, key := pair(t, "client")
		e, _ := r.listener(t, &adminv1.WebhookEndpoint{Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"X-Team": "blue-secret"}, ClientCertificate: cert, ClientKey: key}})
		move := func(url string) *adminv1.WebhookEndpoint {
			t.Helper()
			got, err := r.endpoints.UpdateWebhookEndpoint(r.ctx(t), &adminv1.UpdateWebhookEndpointRequest{Endpoint: &adminv1.WebhookEndpoint{Name: e.GetName(), Url: url}})
			require.NoError(t, err)
			return got
		}
		got := move("https://backend.example/other")
		require.Len(t, got.GetPolicy().GetHeaders(), 1)
		require.NotEmpty(t, got.GetPolicy().GetClientCertificate())
		got = move("https://new.example/hook")
		require.Empty(t, got.GetPolicy().GetHeaders())
		require.Empty(t, got.GetPolicy().GetClientCertificate())
		r.tell(t, e.GetName())
		require.Empty(t, r.new.last(t).header.Get("X-Team"))
		require.Empty(t, r.new.last(t).shown)
	})
}
