package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

func TestUpdateLimits_WithinTheBounds(t *testing.T) {
	r := newRig(t)
	b := r.Bounds()
	for name, c := range map[string]struct {
		set   func(*app.Limits, time.Duration, int)
		lo    time.Duration
		hi    time.Duration
		loN   int
		hiN   int
		field string
	}{
		"token lifetime":  {func(l *app.Limits, d time.Duration, _ int) { l.SessionTokenLifetime = d }, b.Min.SessionTokenLifetime, b.Max.SessionTokenLifetime, 0, 0, "limits.session_token_lifetime"},
		"idle lifetime":   {func(l *app.Limits, d time.Duration, _ int) { l.SessionIdleLifetime = d }, b.Min.SessionIdleLifetime, b.Max.SessionIdleLifetime, 0, 0, "limits.session_idle_lifetime"},
		"retention":       {func(l *app.Limits, d time.Duration, _ int) { l.EventRetention = d }, b.Min.EventRetention, b.Max.EventRetention, 0, 0, "limits.event_retention"},
		"conversations":   {func(l *app.Limits, d time.Duration, _ int) { l.ConversationIdleLifetime = d }, b.Min.ConversationIdleLifetime, b.Max.ConversationIdleLifetime, 0, 0, "limits.conversation_idle_lifetime"},
		"answer deadline": {func(l *app.Limits, d time.Duration, _ int) { l.AnswerDeadline = d }, b.Min.AnswerDeadline, b.Max.AnswerDeadline, 0, 0, "limits.answer_deadline"},
		"session starts":  {func(l *app.Limits, _ time.Duration, n int) { l.SessionStartsPerMinute = n }, 0, 0, b.Min.SessionStartsPerMinute, b.Max.SessionStartsPerMinute, "limits.session_starts_per_minute"},
		"requests":        {func(l *app.Limits, _ time.Duration, n int) { l.RequestsPerMinute = n }, 0, 0, b.Min.RequestsPerMinute, b.Max.RequestsPerMinute, "limits.requests_per_minute"},
	} {
		t.Run(name, func(t *testing.T) {
			scope, _ := r.company(t, strings.ReplaceAll(name, " ", "-"))
			try := func(d time.Duration, n int) error {
				_, err := r.UpdateLimits(t.Context(), scope, "", func(l *app.Limits) error { c.set(l, d, n); return nil })
				return err
			}
			require.NoError(t, try(c.lo, c.loN))
			require.NoError(t, try(c.hi, c.hiN))
			require.NoError(t, try(0, 0), "0 is the default again")
			before := r.state(t, scope)
			requireReason(t, try(c.hi+1, c.hiN+1), problem.InvalidRequest, c.field)
			requireReason(t, try(-1, -1), problem.InvalidRequest, c.field)
			if c.lo > 0 {
				requireReason(t, try(c.lo-1, 0), problem.InvalidRequest, c.field)
			}
			require.Equal(t, before, r.state(t, scope))
		})
	}
}

func TestUpdateLimits_NamesEveryField(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	_, err := r.UpdateLimits(t.Context(), scope, "", func(l *app.Limits) error {
		l.EventRetention, l.RequestsPerMinute = time.Second, -5
		return nil
	})
	requireReason(t, err, problem.InvalidRequest, "limits.event_retention", "limits.requests_per_minute")
	_, err = r.UpdateLimits(t.Context(), scope, resource.ETag(c.Version+1), func(*app.Limits) error { return nil })
	requireReason(t, err, problem.EtagMismatch)
}

func TestInForce_FillsInDefaults(t *testing.T) {
	b := app.DefaultBounds()
	require.Equal(t, b.Default, b.InForce(app.Limits{}))
	require.NoError(t, b.Check(b.Default))
	own := app.Limits{
		SessionTokenLifetime: 2 * time.Hour, SessionIdleLifetime: 3 * time.Hour, EventRetention: 4 * time.Hour, ConversationIdleLifetime: 5 * time.Hour,
		AnswerDeadline: 6 * time.Second, SessionStartsPerMinute: 7, RequestsPerMinute: 8,
	}
	require.Equal(t, own, b.InForce(own))
}
