package webhook_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

func TestWH01_ClassifyAttempt_Redirect(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		require.Equal(t, webhook.Verdict{Outcome: webhook.Retry, Reason: "redirect not followed"}, webhook.ClassifyAttempt(status, webhook.FailureNone))
	}
}

func TestWH03_ClassifyAttempt_Gone(t *testing.T) {
	require.Equal(t, webhook.Verdict{Outcome: webhook.Disable, Reason: "endpoint gone"}, webhook.ClassifyAttempt(410, webhook.FailureNone))
}

func TestWH08_ClassifyAttempt_EveryFailureIsRetried(t *testing.T) {
	seen := map[string]bool{}
	for _, failure := range []webhook.Failure{
		webhook.FailureDNS, webhook.FailureConnect, webhook.FailureTLS, webhook.FailureTimeout, webhook.FailureBlocked, webhook.FailureRead, webhook.FailureAnswer, 99,
	} {
		for _, status := range []int{0, 200, 410} {
			v := webhook.ClassifyAttempt(status, failure)
			require.Equal(t, webhook.Retry, v.Outcome)
			require.NotEmpty(t, v.Reason)
			seen[v.Reason] = true
		}
	}
	require.Len(t, seen, 8)
}

func TestClassifyAttempt_Status(t *testing.T) {
	for _, status := range []int{200, 202, 204, 299} {
		require.Equal(t, webhook.Delivered, webhook.ClassifyAttempt(status, webhook.FailureNone).Outcome)
	}
	for _, status := range []int{0, 100, 199, 400, 401, 404, 409, 429, 500, 502, 503, 504, 599} {
		require.Equal(t, webhook.Retry, webhook.ClassifyAttempt(status, webhook.FailureNone).Outcome)
	}
	require.Equal(t, "throttled with status 429", webhook.ClassifyAttempt(429, webhook.FailureNone).Reason)
	require.Equal(t, "status 500", webhook.ClassifyAttempt(500, webhook.FailureNone).Reason)
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 10, 10, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0":                             0,
		"7":                             7 * time.Second,
		" 120 ":                         2 * time.Minute,
		"3601":                          time.Hour,
		"99999999999999999999":          time.Hour,
		"Sat, 10 Oct 2026 12:00:30 GMT": 30 * time.Second,
		"Sat, 10 Oct 2026 11:00:00 GMT": 0,
		"Sun, 10 Oct 2027 12:00:00 GMT": time.Hour,
	} {
		got, ok := webhook.ParseRetryAfter(header, now)
		require.True(t, ok, header)
		require.Equal(t, want, got, header)
	}
	for _, header := range []string{"", " ", "-1", "1.5", "soon", "+5", "10 Oct 2026", "1 2"} {
		_, ok := webhook.ParseRetryAfter(header, now)
		require.False(t, ok, header)
	}
}

func TestNextAttempt_DefaultSchedule(t *testing.T) {
	schedule := webhook.DefaultSchedule()
	require.Equal(t, []string{"0s", "1s", "5s", "5m0s", "30m0s", "2h0m0s", "5h0m0s", "10h0m0s", "14h0m0s", "20h0m0s", "24h0m0s"}, durations(schedule))
	for made, want := range schedule {
		for _, jitter := range []float64{0, 0.25, 0.5, 0.999, -1, 2, math.NaN(), math.Inf(1)} {
			wait, ok := webhook.NextAttempt(schedule, made, jitter, 0)
			require.True(t, ok)
			require.InDelta(t, float64(want), float64(wait), 0.2*float64(want)+1)
		}
		middle, _ := webhook.NextAttempt(schedule, made, 0.5, 0)
		require.Equal(t, want, middle)
	}
	low, _ := webhook.NextAttempt(schedule, 3, 0, 0)
	require.Equal(t, 4*time.Minute, low)
	for _, made := range []int{-1, len(schedule), len(schedule) + 1} {
		_, ok := webhook.NextAttempt(schedule, made, 0.5, time.Hour)
		require.False(t, ok)
	}
	_, ok := webhook.NextAttempt(nil, 0, 0.5, 0)
	require.False(t, ok)
}

func durations(all []time.Duration) []string {
	var out []string
	for _, d := range all {
		out = append(out, strings.TrimSpace(d.String()))
	}
	return out
}

func TestNextAttempt_RetryAfterIsAFloor(t *testing.T) {
	schedule := webhook.DefaultSchedule()
	wait, ok := webhook.NextAttempt(schedule, 1, 0.5, 40*time.Second)
	require.True(t, ok)
	require.Equal(t, 40*time.Second, wait)
	wait, _ = webhook.NextAttempt(schedule, 4, 0.5, 40*time.Second)
	require.Equal(t, 30*time.Minute, wait)
}
