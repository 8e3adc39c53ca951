package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

const hidden = "•••"

// change sets the fields of the backend that paths name.
func (r *rig) change(t testing.TB, b *adminv1.Backend, paths ...string) (*adminv1.Backend, error) {
	t.Helper()
	b.Name = r.name()
	return r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: b, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
}

func seconds(s ...float64) []*durationpb.Duration {
	var out []*durationpb.Duration
	for _, one := range s {
		out = append(out, durationpb.New(time.Duration(one*float64(time.Second))))
	}
	return out
}

// pair makes a certificate that nobody signed, and its key, in PEM form.
func pair(t testing.TB, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func TestUpdateBackend_Kinds(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const url = "https://backend.example/v1/chat/completions"
		b, err := r.change(t, &adminv1.Backend{
			Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, Url: url, ApiKey: "sk-secret", Model: "m1", Instructions: "Be brief.", History: 7,
		}, "kind", "url", "api_key", "model", "instructions", "history")
		require.NoError(t, err)
		require.True(t, b.GetHasApiKey())
		require.Empty(t, b.GetApiKey())
		require.Equal(t, "m1", b.GetModel())
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, b.GetState())
		route := r.route(t)
		require.EqualValues(t, 7, route.GetHistory())
		require.False(t, route.GetOff() || route.GetDropLate())
		require.False(t, route.GetStream())

		// Everything sent back as it was read changes nothing, the key included.
		same, err := r.change(t, r.backend(t), "*")
		require.NoError(t, err)
		require.True(t, same.GetHasApiKey())
		require.Equal(t, b.GetInstructions(), same.GetInstructions())

		b, err = r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_A2A}, "kind")
		require.NoError(t, err)
		require.False(t, b.GetHasApiKey(), "another kind starts afresh")
		require.Empty(t, b.GetModel())
		require.EqualValues(t, 1, r.route(t).GetHistory())

		b, err = r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_STREAM}, "kind")
		require.NoError(t, err)
		require.Empty(t, b.GetUrl())
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, b.GetState())
		route = r.route(t)
		require.True(t, route.GetStream())
		require.False(t, route.GetOff())
		require.False(t, route.GetDropLate())
		_, err = r.change(t, &adminv1.Backend{}, "deliver_late")
		require.NoError(t, err)
		require.True(t, r.route(t).GetDropLate())
		_, err = r.store().UpdateEndpoint(r.ctx(t), r.scope, app.Backend, func(e *app.Endpoint) error { e.Enabled = false; return nil })
		require.NoError(t, err)
		require.True(t, r.route(t).GetOff())
		_, err = r.change(t, &adminv1.Backend{DeliverLate: true}, "deliver_late")
		require.NoError(t, err)
		r.enable(t)
		got := r.deliver(t, "dlv_1", `{}`)
		require.Equal(t, held, got.GetOutcome())
		require.Positive(t, got.GetRetryAfter().AsDuration())
		r.enable(t)

		b, err = r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_WEBHOOK}, "kind")
		require.NoError(t, err)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, b.GetState())
		require.Zero(t, r.route(t).GetHistory())
	})
}

func TestUpdateBackend_WhatDoesNotGoWithItsKind(t *testing.T) {
	r := newRig(t)
	const url = "https://backend.example/hook"
	chat, a2a, stream := adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, adminv1.BackendKind_BACKEND_KIND_A2A, adminv1.BackendKind_BACKEND_KIND_STREAM
	for name, c := range map[string]struct {
		b      *adminv1.Backend
		fields []string
	}{
		"chat without url":      {&adminv1.Backend{Kind: chat}, []string{"backend.url"}},
		"a2a without url":       {&adminv1.Backend{Kind: a2a}, []string{"backend.url"}},
		"a2a with model":        {&adminv1.Backend{Kind: a2a, Url: url, Model: "m"}, []string{"backend.model"}},
		"stream with url":       {&adminv1.Backend{Kind: stream, Url: url}, []string{"backend.url"}},
		"webhook with api key":  {&adminv1.Backend{Url: url, ApiKey: "k"}, []string{"backend.api_key"}},
		"webhook with model":    {&adminv1.Backend{Url: url, Model: "m", History: 3}, []string{"backend.model", "backend.history"}},
		"webhook, instructions": {&adminv1.Backend{Url: url, Instructions: "m"}, []string{"backend.instructions"}},
		"api key with a space":  {&adminv1.Backend{Kind: chat, Url: url, ApiKey: "a b"}, []string{"backend.api_key"}},
		"ack above attempt": {
			&adminv1.Backend{Url: url, AttemptTimeout: durationpb.New(time.Second), AckTimeout: durationpb.New(2 * time.Second)}, []string{"backend.ack_timeout"},
		},
		"ack above a minute": {&adminv1.Backend{Url: url, AckTimeout: durationpb.New(61 * time.Second)}, []string{"backend.ack_timeout"}},
		"two at once": {
			&adminv1.Backend{Url: "http://backend.example", AttemptTimeout: durationpb.New(-1)}, []string{"backend.url", "backend.attempt_timeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.b.Name = r.name()
			_, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: c.b})
			requireReason(t, err, problem.InvalidRequest, c.fields...)
		})
	}
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, r.backend(t).GetState())
}

func TestUpdateBackend_PolicyByMask(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		first, err := r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{
			Schedule: seconds(1, 2.5), MaxInFlight: 3, Rate: 20, Burst: 4, DisableAfter: durationpb.New(time.Hour), Headers: map[string]string{"X-Team": "a"},
		}}, "policy")
		require.NoError(t, err)
		require.Len(t, first.GetPolicy().GetSchedule(), 2)
		route := r.route(t)
		require.Len(t, route.GetSchedule(), 2)
		require.Equal(t, 2500*time.Millisecond, route.GetSchedule()[1].AsDuration())
		require.EqualValues(t, 3, route.GetMaxInFlight())

		b, err := r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{MaxInFlight: 9, Rate: 1}}, "policy.max_in_flight")
		require.NoError(t, err)
		require.EqualValues(t, 9, b.GetPolicy().GetMaxInFlight())
		require.InDelta(t, 20, b.GetPolicy().GetRate(), 0, "not named")
		require.Len(t, b.GetPolicy().GetSchedule(), 2)

		// Without a mask what is set counts.
		b = r.update(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{Burst: 7}})
		require.EqualValues(t, 7, b.GetPolicy().GetBurst())
		require.EqualValues(t, 9, b.GetPolicy().GetMaxInFlight())

		b, err = r.change(t, &adminv1.Backend{}, "policy")
		require.NoError(t, err)
		require.Empty(t, b.GetPolicy().GetSchedule())
		require.Empty(t, b.GetPolicy().GetHeaders())
		route = r.route(t)
		require.Len(t, route.GetSchedule(), 10, "the default again")
		require.Equal(t, time.Second, route.GetSchedule()[0].AsDuration())
		require.EqualValues(t, 64, route.GetMaxInFlight())
		require.Equal(t, 30*time.Second, route.GetTimeout().AsDuration())
	})
}

func TestUpdateBackend_PolicyBounds(t *testing.T) {
	r := newRig(t)
	cert, key := pair(t, "client")
	other, _ := pair(t, "other")
	for name, c := range map[string]struct {
		p      *adminv1.DeliveryPolicy
		fields []string
	}{
		"wait above 48 h":  {&adminv1.DeliveryPolicy{Schedule: seconds(1, 48*3600+1)}, []string{"backend.policy.schedule[1]"}},
		"negative wait":    {&adminv1.DeliveryPolicy{Schedule: seconds(-1)}, []string{"backend.policy.schedule[0]"}},
		"21 waits":         {&adminv1.DeliveryPolicy{Schedule: seconds(make([]float64, 21)...)}, []string{"backend.policy.schedule"}},
		"in flight":        {&adminv1.DeliveryPolicy{MaxInFlight: 257}, []string{"backend.policy.max_in_flight"}},
		"rate":             {&adminv1.DeliveryPolicy{Rate: 10001}, []string{"backend.policy.rate"}},
		"negative rate":    {&adminv1.DeliveryPolicy{Rate: -1}, []string{"backend.policy.rate"}},
		"burst":            {&adminv1.DeliveryPolicy{Burst: -1}, []string{"backend.policy.burst"}},
		"disable after":    {&adminv1.DeliveryPolicy{DisableAfter: durationpb.New(31 * 24 * time.Hour)}, []string{"backend.policy.disable_after"}},
		"no key":           {&adminv1.DeliveryPolicy{ClientCertificate: cert}, []string{"backend.policy.client_key"}},
		"no certificate":   {&adminv1.DeliveryPolicy{ClientKey: key}, []string{"backend.policy.client_certificate"}},
		"another's key":    {&adminv1.DeliveryPolicy{ClientCertificate: other, ClientKey: key}, []string{"backend.policy.client_certificate"}},
		"no PEM":           {&adminv1.DeliveryPolicy{ClientCertificate: "x", ClientKey: key}, []string{"backend.policy.client_certificate"}},
		"hidden at first":  {&adminv1.DeliveryPolicy{Headers: map[string]string{"X-A": hidden}}, []string{`backend.policy.headers["X-A"]`, `backend.policy.headers["X-A"]`}},
		"line break":       {&adminv1.DeliveryPolicy{Headers: map[string]string{"X-A": "a\r\nHost: b"}}, []string{`backend.policy.headers["X-A"]`}},
		"twice":            {&adminv1.DeliveryPolicy{Headers: map[string]string{"X-A": "a", "x-a": "b"}}, []string{`backend.policy.headers["x-a"]`}},
		"no name of one":   {&adminv1.DeliveryPolicy{Headers: map[string]string{"X A": "a"}}, []string{`backend.policy.headers["X A"]`}},
		"more than enough": {&adminv1.DeliveryPolicy{Headers: many(21)}, []string{"backend.policy.headers"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.change(t, &adminv1.Backend{Policy: c.p}, "policy")
			requireReason(t, err, problem.InvalidRequest)
			var paths []string
			for _, f := range problem.As(err).Fields {
				paths = append(paths, f.Path)
			}
			require.Subset(t, c.fields, paths)
			require.NotEmpty(t, paths)
			require.NotContains(t, err.Error(), "PRIVATE KEY")
		})
	}
	for _, name := range []string{
		"Host", "content-type", "Content-Length", "webhook-id", "Webhook-Anything", "Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authorization", "traceparent", "Tracestate", "User-Agent", "Accept", "Expect",
	} {
		_, err := r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{name: "x"}}}, "policy.headers")
		requireReason(t, err, problem.InvalidRequest, `backend.policy.headers["`+name+`"]`)
	}
	_, err := r.change(t, &adminv1.Backend{
		Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, Url: "https://backend.example/", ApiKey: "k",
		Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"authorization": "Basic x"}},
	}, "kind", "url", "api_key", "policy.headers")
	requireReason(t, err, problem.InvalidRequest, "backend.policy.headers")
}

func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out["X-"+strings.Repeat("a", i+1)] = "v"
	}
	return out
}

func TestPolicy_HeadersAreSentAndNeverShown(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		b, err := r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"x-team": "blue-secret", "Authorization": "Basic c2VjcmV0"}}}, "policy.headers")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"X-Team": hidden, "Authorization": hidden}, b.GetPolicy().GetHeaders())
		r.deliver(t, "dlv_1", `{}`)
		got := r.site.last(t).header
		require.Equal(t, "blue-secret", got.Get("X-Team"))
		require.Equal(t, "Basic c2VjcmV0", got.Get("Authorization"))

		_, err = r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"X-Team": hidden, "X-New": "two"}}}, "policy.headers")
		require.NoError(t, err)
		r.deliver(t, "dlv_2", `{}`)
		got = r.site.last(t).header
		require.Equal(t, "blue-secret", got.Get("X-Team"), "kept")
		require.Equal(t, "two", got.Get("X-New"))
		require.Empty(t, got.Get("Authorization"), "left out")

		for _, a := range r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name()}) {
			require.Equal(t, hidden, a.GetRequestHeaders()["X-Team"])
			require.NotEmpty(t, a.GetRequestHeaders()["Webhook-Signature"])
		}
		requireNowhere(t, r, "blue-secret", "c2VjcmV0")
	})
}

func TestPolicy_APIKeyIsSentAndNeverShown(t *testing.T) {
	r := newRig(t)
	_, err := r.change(t, &adminv1.Backend{
		Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, Url: "https://backend.example/v1/chat/completions", ApiKey: "sk-very-secret", Model: "m",
	}, "kind", "url", "api_key", "model")
	require.NoError(t, err)
	r.deliver(t, "dlv_1", `{}`)
	// A request that could be made at all carries the key; the log never does.
	for _, d := range r.site.deliveries() {
		require.Equal(t, "Bearer sk-very-secret", d.header.Get("Authorization"))
		require.Empty(t, d.header.Get("Webhook-Signature"))
	}
	for _, a := range r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name()}) {
		require.Equal(t, hidden, a.GetRequestHeaders()["Authorization"])
		require.NotContains(t, a.GetRequestHeaders(), "Webhook-Signature")
	}
	requireNowhere(t, r, "sk-very-secret")
	b, err := r.change(t, &adminv1.Backend{}, "api_key")
	require.NoError(t, err)
	require.False(t, b.GetHasApiKey())
}

func TestPolicy_ClientCertificate(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.deliver(t, "dlv_1", `{}`)
	require.Empty(t, r.site.last(t).shown)
	cert, key := pair(t, "first")
	b, err := r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{ClientCertificate: cert, ClientKey: key}}, "policy.client_certificate", "policy.client_key")
	require.NoError(t, err)
	require.Equal(t, cert, b.GetPolicy().GetClientCertificate())
	require.Empty(t, b.GetPolicy().GetClientKey())
	r.deliver(t, "dlv_2", `{}`)
	require.Len(t, r.site.last(t).shown, 1)
	require.Equal(t, "first", r.site.last(t).shown[0].Subject.CommonName)

	// The key stays when the whole policy is sent back as it was read.
	_, err = r.change(t, r.backend(t), "policy")
	require.NoError(t, err)
	next, nextKey := pair(t, "second")
	_, err = r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{ClientCertificate: next}}, "policy.client_certificate")
	requireReason(t, err, problem.InvalidRequest, "backend.policy.client_certificate")
	_, err = r.change(t, &adminv1.Backend{Policy: &adminv1.DeliveryPolicy{ClientCertificate: next, ClientKey: nextKey}}, "policy.client_certificate", "policy.client_key")
	require.NoError(t, err)
	r.deliver(t, "dlv_3", `{}`)
	require.Equal(t, "second", r.site.last(t).shown[0].Subject.CommonName, "at once")

	_, err = r.change(t, &adminv1.Backend{}, "policy.client_certificate")
	require.NoError(t, err)
	r.deliver(t, "dlv_4", `{}`)
	require.Empty(t, r.site.last(t).shown)
	requireNowhere(t, r, "PRIVATE KEY")
}

// Who may change the URL may not read the secrets: they don't follow it to another server.
func TestUpdateBackend_SecretsStayWithTheirServer(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		cert, key := pair(t, "client")
		fill := func() {
			t.Helper()
			_, err := r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, Url: "https://backend.example/chat", ApiKey: "sk-secret", Policy: &adminv1.DeliveryPolicy{
				Headers: map[string]string{"X-Team": "blue-secret"}, ClientCertificate: cert, ClientKey: key, Rate: 1000,
			}}, "kind", "url", "api_key", "policy")
			require.NoError(t, err)
		}
		move := func(url string) *adminv1.Backend {
			t.Helper()
			b, err := r.change(t, &adminv1.Backend{Url: url}, "url")
			require.NoError(t, err)
			return b
		}
		for _, url := range []string{"https://backend.example/elsewhere?a=b", "https://backend.example:443/x", "https://BACKEND.example/"} {
			fill()
			b := move(url)
			require.True(t, b.GetHasApiKey(), url)
			require.Len(t, b.GetPolicy().GetHeaders(), 1, url)
			require.NotEmpty(t, b.GetPolicy().GetClientCertificate(), url)
		}
		for _, url := range []string{"https://new.example/chat", "https://backend.example:8443/chat", "https://backend.example.new.example/chat"} {
			fill()
			b := move(url)
			require.False(t, b.GetHasApiKey(), url)
			require.Empty(t, b.GetPolicy().GetHeaders(), url)
			require.Empty(t, b.GetPolicy().GetClientCertificate(), url)
			require.InDelta(t, 1000, b.GetPolicy().GetRate(), 0, "no secret")
		}
		fill()
		move("https://new.example/chat")
		r.attempt(t, &relayv1.DeliverRequest{DeliveryId: "dlv_1", Body: []byte(`{"data":{"message":{"text":"Hi."}}}`)})
		got := r.new.last(t)
		require.Empty(t, got.header.Get("Authorization"))
		require.Empty(t, got.header.Get("X-Team"))
		require.Empty(t, got.shown)

		// By way of no URL at all it is the same.
		fill()
		_, err := r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_STREAM}, "kind")
		require.NoError(t, err)
		b, err := r.change(t, &adminv1.Backend{Kind: adminv1.BackendKind_BACKEND_KIND_WEBHOOK, Url: "https://new.example/hook"}, "kind", "url")
		require.NoError(t, err)
		require.Empty(t, b.GetPolicy().GetHeaders())

		// What is given in the same call is for the new one; what should stay can't.
		fill()
		b, err = r.change(t, &adminv1.Backend{Url: "https://new.example/chat", ApiKey: "sk-new", Policy: &adminv1.DeliveryPolicy{
			Headers: map[string]string{"X-Team": "red"}, ClientCertificate: cert, ClientKey: key,
		}}, "url", "api_key", "policy")
		require.NoError(t, err)
		require.True(t, b.GetHasApiKey())
		require.Len(t, b.GetPolicy().GetHeaders(), 1)
		require.NotEmpty(t, b.GetPolicy().GetClientCertificate())
		_, err = r.change(t, &adminv1.Backend{Url: "https://backend.example/chat", Policy: &adminv1.DeliveryPolicy{Headers: map[string]string{"X-Team": hidden}}}, "url", "policy.headers")
		requireReason(t, err, problem.InvalidRequest, `backend.policy.headers["X-Team"]`)
		_, err = r.change(t, &adminv1.Backend{Url: "https://backend.example/chat", Policy: &adminv1.DeliveryPolicy{ClientCertificate: cert}}, "url", "policy.client_certificate")
		requireReason(t, err, problem.InvalidRequest, "backend.policy.client_key")
	})
}

// requireNowhere checks that secrets are in nothing that relay tells or answers.
func requireNowhere(t testing.TB, r *rig, secrets ...string) {
	t.Helper()
	told := r.told.all(t) + r.backend(t).String()
	for _, a := range r.listAttempts(t, &adminv1.ListAttemptsRequest{Endpoint: r.name()}) {
		told += a.String()
	}
	for _, secret := range secrets {
		require.NotContains(t, told, secret)
	}
}

func (r *rig) route(t testing.TB) *relayv1.GetRouteResponse {
	t.Helper()
	got, err := r.deliveries.GetRoute(r.ctx(t), &relayv1.GetRouteRequest{})
	require.NoError(t, err)
	return got
}

func (r *rig) listAttempts(t testing.TB, req *adminv1.ListAttemptsRequest) []*adminv1.Attempt {
	t.Helper()
	req.Parent = r.scope.Name()
	var out []*adminv1.Attempt
	for {
		got, err := r.attempts.ListAttempts(r.ctx(t), req)
		require.NoError(t, err)
		out = append(out, got.GetAttempts()...)
		if req.PageToken = got.GetNextPageToken(); req.GetPageToken() == "" {
			return out
		}
	}
}

const held = relayv1.DeliverOutcome_DELIVER_OUTCOME_HELD
