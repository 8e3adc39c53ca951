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

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func TestGetBackend_OfACompanyThatHasNone(t *testing.T) {
	r := newRig(t)
	b := r.backend(t)
	require.Equal(t, r.name(), b.GetName())
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, b.GetState())
	require.True(t, b.GetDeliverLate())
	require.Equal(t, 30*time.Second, b.GetAttemptTimeout().AsDuration())
	require.Nil(t, b.GetCreateTime())
	_, err := r.backends.EnableBackend(r.ctx(t), &adminv1.EnableBackendRequest{Name: r.name()})
	requireReason(t, err, problem.FailedPrecondition, "backend.url")
}

func TestUpdateBackend_RefusesURLsThatMustNotBeReached(t *testing.T) {
	r := newRig(t)
	for _, url := range []string{
		"http://backend.example/hook", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "https://169.254.169.254/latest", "https://localhost/", "https://2130706433/",
		"https://u:p@backend.example/", "ftp://backend.example", "backend.example", "https://", "https://backend.internal/", "javascript:alert(1)",
	} {
		for _, validateOnly := range []bool{true, false} {
			_, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: &adminv1.Backend{Name: r.name(), Url: url}, ValidateOnly: validateOnly})
			requireReason(t, err, problem.InvalidRequest, "backend.url")
		}
	}
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, r.backend(t).GetState())
	require.Empty(t, r.publicKeys(t), "what is refused leaves no key behind")
}

func TestUpdateBackend_AttemptTimeout(t *testing.T) {
	r := newRig(t)
	for d, ok := range map[time.Duration]bool{
		99 * time.Millisecond: false, 100 * time.Millisecond: true, 5 * time.Minute: true, 5*time.Minute + 1: false, -time.Second: false, 0: true,
	} {
		in := &adminv1.Backend{Name: r.name(), AttemptTimeout: durationpb.New(d)}
		got, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: in})
		if !ok {
			requireReason(t, err, problem.InvalidRequest, "backend.attempt_timeout")
			continue
		}
		require.NoError(t, err)
		if d == 0 {
			d = 30 * time.Second
		}
		require.Equal(t, d, got.GetAttemptTimeout().AsDuration())
	}
}

func TestUpdateBackend_MaskETagAndValidateOnly(t *testing.T) {
	r := newRig(t)
	first := r.update(t, &adminv1.Backend{Url: "https://backend.example/hook", AttemptTimeout: durationpb.New(time.Second)})
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, first.GetState())
	update := func(b *adminv1.Backend, validateOnly bool, paths ...string) (*adminv1.Backend, error) {
		b.Name = r.name()
		return r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: b, ValidateOnly: validateOnly, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	got, err := update(&adminv1.Backend{Url: "https://new.example/", DeliverLate: false}, true, "url", "deliver_late")
	require.NoError(t, err)
	require.Equal(t, "https://new.example/", got.GetUrl(), "shown as it would be")
	require.False(t, got.GetDeliverLate())
	require.Equal(t, "https://backend.example/hook", r.backend(t).GetUrl())
	require.Equal(t, first.GetEtag(), r.backend(t).GetEtag())

	got, err = update(&adminv1.Backend{Url: "https://new.example/", Etag: first.GetEtag()}, false, "deliver_late")
	require.NoError(t, err)
	require.False(t, got.GetDeliverLate())
	require.Equal(t, "https://backend.example/hook", got.GetUrl())
	for _, validateOnly := range []bool{true, false} {
		_, err = update(&adminv1.Backend{Etag: first.GetEtag(), DeliverLate: true}, validateOnly, "deliver_late")
		requireReason(t, err, problem.EtagMismatch)
	}
	_, err = update(&adminv1.Backend{}, false, "state")
	requireReason(t, err, problem.InvalidRequest, "update_mask")
}

func TestBackend_RingsWhenItIsReachableAgain(t *testing.T) {
	r := newRig(t)
	rung := make(chan string, 10)
	leave, err := r.bus.Subscribe(bus.AllDeliveries, func(_ context.Context, subject string, _ []byte) { rung <- subject })
	require.NoError(t, err)
	defer leave()
	want, err := bus.DeliverySubject(r.scope.CompanyID())
	require.NoError(t, err)
	rings := func(n int, what string) {
		t.Helper()
		for range n {
			select {
			case got := <-rung:
				require.Equal(t, want, got)
			case <-time.After(20 * time.Second):
				require.FailNow(t, "no ring", what)
			}
		}
		// A message of our own comes after everything that was sent before it.
		mark, err := bus.DeliverySubject("cmp_mark")
		require.NoError(t, err)
		r.bus.Publish(t.Context(), mark, nil)
		require.Equal(t, mark, <-rung, what)
	}
	r.update(t, &adminv1.Backend{Url: "https://backend.example/hook"})
	rings(1, "the first URL")
	r.update(t, &adminv1.Backend{Url: "https://backend.example/hook", AttemptTimeout: durationpb.New(time.Second)})
	rings(0, "the same URL")
	r.update(t, &adminv1.Backend{Url: "https://new.example/hook"})
	rings(1, "another URL")
	_, err = r.backends.EnableBackend(r.ctx(t), &adminv1.EnableBackendRequest{Name: r.name()})
	require.NoError(t, err)
	rings(1, "enabled")
	_, err = r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{
		Backend: &adminv1.Backend{Name: r.name()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url"}},
	})
	require.NoError(t, err)
	rings(0, "taken away")
}

func TestUpdateBackend_ValidateOnlyOfANewOne(t *testing.T) {
	r := newRig(t)
	got, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{
		Backend: &adminv1.Backend{Name: r.name(), Url: "https://backend.example/hook"}, ValidateOnly: true, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url", "deliver_late"}},
	})
	require.NoError(t, err)
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, got.GetState())
	require.False(t, got.GetDeliverLate())
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, r.backend(t).GetState())
	require.Empty(t, r.publicKeys(t))
}

func TestUpdateBackend_RefusedByItsETagMakesNoKey(t *testing.T) {
	r := newRig(t)
	_, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: &adminv1.Backend{Name: r.name(), Url: "https://backend.example/hook", Etag: `"stale"`}})
	requireReason(t, err, problem.EtagMismatch)
	require.Empty(t, r.publicKeys(t))
}

func TestMT03_BackendOfAnotherCompanyIsNotThere(t *testing.T) {
	r := newRig(t)
	other := &rig{}
	*other = *r
	other.scope = dbtest.Company(t, r.db)
	other.point(t)
	before := other.backend(t)
	ctx := r.ctx(t)
	for _, name := range []string{other.name(), "companies/cmp_00000000000000000000000000/backend"} {
		_, err := r.backends.GetBackend(ctx, &adminv1.GetBackendRequest{Name: name})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.backends.UpdateBackend(ctx, &adminv1.UpdateBackendRequest{Backend: &adminv1.Backend{Name: name, Url: "https://new.example/"}})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.backends.EnableBackend(ctx, &adminv1.EnableBackendRequest{Name: name})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.backends.RotateBackendSecret(ctx, &adminv1.RotateBackendSecretRequest{Name: name})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.backends.ListBackendSecrets(ctx, &adminv1.ListBackendSecretsRequest{Parent: name})
		requireReason(t, err, problem.NotFoundReason)
	}
	require.Equal(t, before.String(), other.backend(t).String())
	require.Len(t, other.publicKeys(t), 1)
}

func TestEgress_Fetch(t *testing.T) {
	r := newRig(t)
	r.zone.set("private.example", "10.0.0.1")
	fetch := func(url string, limit int64) *relayv1.FetchResponse {
		got, err := r.egress.Fetch(t.Context(), &relayv1.FetchRequest{Url: url, MaxBytes: limit, Timeout: durationpb.New(time.Second)})
		require.NoError(t, err, "what goes wrong is in the answer")
		return got
	}
	r.site.with(http.StatusOK, `{"a":1}`, "Content-Type", "Application/JSON; charset=utf-8", "Cache-Control", "max-age=5", "Set-Cookie", "a=b")
	got := fetch("https://backend.example/x", 0)
	require.Equal(t, int32(200), got.GetStatus())
	require.Equal(t, "application/json", got.GetContentType())
	require.Equal(t, `{"a":1}`, string(got.GetBody()))
	require.Equal(t, "max-age=5", got.GetHeaders()["Cache-Control"])
	require.NotContains(t, got.GetHeaders(), "Set-Cookie")
	require.Equal(t, "GET /x", r.site.last(t).path)

	r.site.with(http.StatusFound, "", "Location", "https://new.example/")
	got = fetch("https://backend.example/x", 0)
	require.Equal(t, int32(302), got.GetStatus())
	require.Equal(t, "https://new.example/", got.GetHeaders()["Location"])
	require.Empty(t, r.new.deliveries())

	r.site.with(http.StatusOK, strings.Repeat("x", 2000), "Content-Type", "application/json")
	for url, failure := range map[string]string{
		"https://backend.example/x": "too_large", "https://127.0.0.1/": "blocked", "https://private.example/": "blocked", "https://unknown.example/": "dns",
		"https://refused.example/": "connect", "https://untrusted.example/": "tls", "http://backend.example/": "invalid_url",
	} {
		got = fetch(url, 1000)
		require.Equal(t, failure, got.GetFailure(), url)
		require.NotEmpty(t, got.GetDetail())
		require.NotContains(t, got.GetDetail(), "10.0.0.1")
	}
}

func TestEgress_LookupTxt(t *testing.T) {
	r := newRig(t)
	r.zone.set("txt _poppyfield.a.example", "one|two")
	r.zone.set("txt _poppyfield.b.example", "fails")
	look := func(name string) *relayv1.LookupTxtResponse {
		got, err := r.egress.LookupTxt(t.Context(), &relayv1.LookupTxtRequest{Name: name})
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []string{"one", "two"}, look("_poppyfield.a.example").GetValues())
	got := look("_poppyfield.b.example")
	require.Equal(t, "dns", got.GetFailure())
	require.NotEmpty(t, got.GetDetail())
	got = look("_poppyfield.c.example")
	require.Empty(t, got.GetFailure())
	require.Empty(t, got.GetValues())
	require.Equal(t, "invalid_url", look("no name").GetFailure())
}
