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

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

const (
	answered = relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED
	accepted = relayv1.DeliverOutcome_DELIVER_OUTCOME_ACCEPTED
	retry    = relayv1.DeliverOutcome_DELIVER_OUTCOME_RETRY
	disabled = relayv1.DeliverOutcome_DELIVER_OUTCOME_DISABLED
	unwanted = relayv1.DeliverOutcome_DELIVER_OUTCOME_UNWANTED
)

func TestDeliver_JudgesTheAnswer(t *testing.T) {
	const json = "application/json"
	huge := `{"messages":[{"text":"` + strings.Repeat("x", 300<<10) + `"}]}`
	r := newRig(t)
	r.point(t)
	for name, c := range map[string]struct {
		status  int
		kind    string
		body    string
		outcome relayv1.DeliverOutcome
		texts   []string
		reason  string
	}{
		"200 with messages":          {200, json, `{"messages":[{"text":"Hello"},{"text":"Anna here","sender":"human","data":{"n":1.0}}]}`, answered, []string{"agent: Hello ", `human: Anna here {"n":1.0}`}, "delivered"},
		"200 with no message":        {200, json, `{"messages":[]}`, answered, nil, "delivered"},
		"200 with an empty object":   {200, json, `{}`, answered, nil, "delivered"},
		"200 without a body":         {200, "", "", answered, nil, "delivered"},
		"201":                        {201, "application/json; charset=utf-8", `{"messages":[{"text":"Hello"}]}`, answered, []string{"agent: Hello "}, "delivered"},
		"204":                        {204, "", "", answered, nil, "delivered"},
		"202":                        {202, json, `{"messages":[{"text":"Hello"}]}`, accepted, nil, "delivered"},
		"202 with HTML":              {202, "text/html", `<html>`, accepted, nil, "delivered"},
		"garbage":                    {200, json, `{"messages":[`, retry, nil, "answer breaks the contract"},
		"a list":                     {200, json, `[]`, retry, nil, "answer breaks the contract"},
		"member twice":               {200, json, `{"messages":[],"messages":[]}`, retry, nil, "answer breaks the contract"},
		"one bad message":            {200, json, `{"messages":[{"text":"Hello"},{"sender":"robot","text":"x"}]}`, retry, nil, "answer breaks the contract"},
		"HTML":                       {200, "text/html", `<html>`, retry, nil, "answer breaks the contract"},
		"JSON as text":               {200, "text/plain", `{}`, retry, nil, "answer breaks the contract"},
		"too large":                  {200, json, huge, retry, nil, "answer not readable"},
		"400":                        {400, json, `{}`, retry, nil, "status 400"},
		"401":                        {401, json, `{}`, retry, nil, "status 401"},
		"404":                        {404, "text/html", `<html>`, retry, nil, "status 404"},
		"500":                        {500, "text/html", `<html>`, retry, nil, "status 500"},
		"500, endless":               {500, "text/html", huge, retry, nil, "status 500"},
		"502":                        {502, "", "", retry, nil, "status 502"},
		"304":                        {304, "", "", retry, nil, "redirect not followed"},
		"redirect without a target":  {302, "", "", retry, nil, "redirect not followed"},
		"compressed without request": {200, json, "\x1f\x8b", retry, nil, "answer not readable"},
	} {
		t.Run(name, func(t *testing.T) {
			header := []string{"Content-Type", c.kind}
			if name == "compressed without request" {
				header = append(header, "Content-Encoding", "gzip")
			}
			r.site.with(c.status, c.body, header...)
			got := r.deliver(t, "evt_1", `{"type":"conversation.message"}`)
			require.Equal(t, c.outcome, got.GetOutcome())
			require.Equal(t, c.reason, got.GetReason())
			if c.reason != "answer not readable" {
				require.Equal(t, int32(c.status), got.GetStatus())
			}
			var texts []string
			for _, m := range got.GetMessages() {
				texts = append(texts, m.GetSender()+": "+m.GetText()+" "+string(m.GetData()))
			}
			require.Equal(t, c.texts, texts)
			require.Zero(t, got.GetRetryAfter().AsDuration())
		})
	}
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.backend(t).GetState(), "no failure but 410 turns it off here")
	require.Equal(t, int64(1), r.site.accepts.Load(), "one connection for all of them")
}

func TestWH01_Deliver_RedirectsAreNotFollowed(t *testing.T) {
	r := newRig(t)
	r.point(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, target := range []string{"https://new.example/hook", "https://127.0.0.1/hook", "http://127.0.0.1:1/", "https://93.184.216.34/", "/elsewhere", "//new.example/"} {
			r.site.with(status, "", "Location", target)
			before := len(r.site.deliveries())
			got := r.deliver(t, "evt_1", `{}`)
			require.Equal(t, retry, got.GetOutcome())
			require.Equal(t, "redirect not followed", got.GetReason())
			require.Equal(t, int32(status), got.GetStatus())
			require.Len(t, r.site.deliveries(), before+1)
		}
	}
	require.Empty(t, r.new.deliveries())
	require.Zero(t, r.new.accepts.Load())
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.backend(t).GetState())
}

func TestWH03_WH10_Deliver_410TurnsTheBackendOff(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		r.site.with(http.StatusGone, "")
		got := r.deliver(t, "evt_1", `{}`)
		require.Equal(t, disabled, got.GetOutcome())
		require.Equal(t, "endpoint gone", got.GetReason())
		require.Equal(t, int32(410), got.GetStatus())
		b := r.backend(t)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_DISABLED, b.GetState())
		require.Equal(t, "endpoint gone", b.GetDisableReason())

		// Not asked again, whatever it would say now.
		r.site.with(http.StatusOK, "")
		got = r.deliver(t, "evt_1", `{}`)
		require.Equal(t, disabled, got.GetOutcome())
		require.Equal(t, "backend disabled", got.GetReason())
		require.Len(t, r.site.deliveries(), 1)

		b, err := r.backends.EnableBackend(r.ctx(t), &adminv1.EnableBackendRequest{Name: r.name()})
		require.NoError(t, err)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, b.GetState())
		require.Empty(t, b.GetDisableReason())
		require.Equal(t, answered, r.deliver(t, "evt_1", `{}`).GetOutcome())
		require.Len(t, r.site.deliveries(), 2)

		// And once more.
		r.site.with(http.StatusGone, "gone", "Content-Type", "text/html")
		require.Equal(t, disabled, r.deliver(t, "evt_2", `{}`).GetOutcome())
		// Another URL is another endpoint.
		r.update(t, &adminv1.Backend{Url: "https://new.example/hook"})
		require.Equal(t, answered, r.deliver(t, "evt_2", `{}`).GetOutcome())
		require.Equal(t, "evt_2", r.new.last(t).header.Get("Webhook-Id"))
	})
}

func TestWH17_Deliver_410OfTheOldURLDoesNotTurnOffTheNew(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		r.site.answers(func(w http.ResponseWriter, _ *http.Request) {
			r.update(t, &adminv1.Backend{Url: "https://new.example/hook"})
			w.WriteHeader(http.StatusGone)
		})
		got := r.deliver(t, "evt_1", `{}`)
		require.Equal(t, retry, got.GetOutcome(), "to be tried at the new URL")
		b := r.backend(t)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, b.GetState())
		require.Equal(t, "https://new.example/hook", b.GetUrl())
		require.Equal(t, answered, r.deliver(t, "evt_1", `{}`).GetOutcome())
		require.Len(t, r.site.deliveries(), 1, "no further request to the old URL")
		require.Equal(t, "evt_1", r.new.last(t).header.Get("Webhook-Id"))
	})
}

func TestWH17_Deliver_BackendTakenAwayGetsNothing(t *testing.T) {
	r := newRig(t)
	r.point(t)
	b, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: &adminv1.Backend{Name: r.name()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url"}}})
	require.NoError(t, err)
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, b.GetState())
	got := r.deliver(t, "evt_1", `{}`)
	require.Equal(t, disabled, got.GetOutcome())
	require.Equal(t, "no backend is set", got.GetReason())
	require.Empty(t, r.site.deliveries())
}

func TestDeliver_RetryAfter(t *testing.T) {
	r := newRig(t)
	r.point(t)
	now := r.clock.Now()
	for name, c := range map[string]struct {
		status int
		header string
		want   time.Duration
	}{
		"429 with seconds": {429, "17", 17 * time.Second},
		"503 with seconds": {503, "120", 2 * time.Minute},
		"503 with a date":  {503, now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second},
		"past date":        {429, now.Add(-time.Hour).Format(http.TimeFormat), 0},
		"far too long":     {429, "999999999999", time.Hour},
		"malformed":        {503, "soon", 0},
		"absent":           {429, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var header []string
			if c.header != "" {
				header = []string{"Retry-After", c.header}
			}
			r.site.with(c.status, "", header...)
			r.enable(t) // starts afresh: the breaker would hold the sixth
			got := r.deliver(t, "evt_1", `{}`)
			require.Equal(t, retry, got.GetOutcome())
			require.Contains(t, got.GetReason(), "throttled with status")
			require.InDelta(t, c.want.Seconds(), got.GetRetryAfter().AsDuration().Seconds(), 1)
		})
	}
}

func TestWH08_Deliver_BackendThatIsNotReached(t *testing.T) {
	r := newRig(t)
	r.zone.set("failing.example", "fails")
	r.zone.set("private.example", "10.0.0.1")
	r.zone.set("loopback.example", "127.0.0.1")
	r.zone.set("linklocal.example", "169.254.169.254")
	for host, reason := range map[string]string{
		"unknown.example": "name not resolved", "failing.example": "name not resolved", "private.example": "address not allowed", "loopback.example": "address not allowed",
		"linklocal.example": "address not allowed", "refused.example": "no connection", "untrusted.example": "no secure connection",
	} {
		t.Run(host, func(t *testing.T) {
			r.update(t, &adminv1.Backend{Url: "https://" + host + "/hook"})
			got := r.deliver(t, "evt_1", `{}`)
			require.Equal(t, retry, got.GetOutcome(), "every one of them may be set right")
			require.Equal(t, reason, got.GetReason())
			require.Zero(t, got.GetStatus())
			require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.backend(t).GetState())
		})
	}
	require.Empty(t, r.site.deliveries())
}

func TestDeliver_SlowAnswer(t *testing.T) {
	r := newRig(t)
	r.update(t, &adminv1.Backend{Url: "https://backend.example/hook", AttemptTimeout: durationpb.New(100 * time.Millisecond)})
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	hold := func(r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}
	r.site.answers(func(_ http.ResponseWriter, req *http.Request) { hold(req) })
	got := r.deliver(t, "evt_1", `{}`)
	require.Equal(t, retry, got.GetOutcome())
	require.Equal(t, "no answer in time", got.GetReason())
	require.Zero(t, got.GetStatus())

	r.site.answers(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"messages":[`))
		_ = http.NewResponseController(w).Flush()
		hold(req)
	})
	got = r.deliver(t, "evt_1", `{}`)
	require.Equal(t, retry, got.GetOutcome())
	require.Equal(t, "no answer in time", got.GetReason())
}

func TestDeliver_CallerThatGivesUpIsNoFailureOfTheBackend(t *testing.T) {
	r := newRig(t)
	r.point(t)
	ctx, cancel := context.WithCancel(r.ctx(t))
	r.site.answers(func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	stream, err := r.deliveries.Deliver(ctx, &relayv1.DeliverRequest{DeliveryId: "evt_1", Body: []byte(`{}`)})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.ErrorIs(t, err, context.Canceled)
}

func TestDeliver_LateMessages(t *testing.T) {
	r := newRig(t)
	late := func() *relayv1.DeliverResponse {
		return r.attempt(t, &relayv1.DeliverRequest{DeliveryId: "evt_1", Body: []byte(`{}`), Late: true})
	}
	r.point(t)
	require.True(t, r.backend(t).GetDeliverLate(), "wanted unless said otherwise")
	require.Equal(t, answered, late().GetOutcome())
	_, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: &adminv1.Backend{Name: r.name()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deliver_late"}}})
	require.NoError(t, err)
	got := late()
	require.Equal(t, unwanted, got.GetOutcome())
	require.Equal(t, "late messages are not wanted", got.GetReason())
	require.Len(t, r.site.deliveries(), 1)
	require.Equal(t, answered, r.deliver(t, "evt_2", `{}`).GetOutcome(), "those in time are wanted")
	// Of a backend that is off as well: they needn't wait for it.
	r.site.with(http.StatusGone, "")
	require.Equal(t, disabled, r.deliver(t, "evt_2", `{}`).GetOutcome())
	require.Equal(t, unwanted, late().GetOutcome())
}

func TestDeliver_WithoutBackendOrCompany(t *testing.T) {
	r := newRig(t)
	got := r.deliver(t, "evt_1", `{}`)
	require.Equal(t, disabled, got.GetOutcome())
	require.Equal(t, "no backend is set", got.GetReason())
	_, err := r.deliveries.Deliver(t.Context(), &relayv1.DeliverRequest{DeliveryId: "evt_1", Body: []byte(`{}`)})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}
