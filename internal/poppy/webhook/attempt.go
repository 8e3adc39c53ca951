package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Failure is how an attempt failed apart from its status.
type Failure uint8

// The failures. FailureNone is an answer that was read whole.
const (
	FailureNone    Failure = iota
	FailureDNS             // the name did not resolve
	FailureConnect         // no connection
	FailureTLS             // no secure connection
	FailureTimeout         // no whole answer in time
	FailureBlocked         // the address is one that deliveries may not reach
	FailureRead            // the connection broke, or the answer was too large
	FailureAnswer          // answered with success, but with a body that breaks the contract
)

// Outcome is what an attempt means for its delivery.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota + 1
	Retry             // failed; again by the schedule
	Disable           // the endpoint is gone: no further attempt to it
)

// Verdict is the outcome of an attempt, with a reason for the Company to read and
// to filter by: lower case, stable.
type Verdict struct {
	Outcome Outcome
	Reason  string
}

// ClassifyAttempt judges an attempt. A failure decides before the status, which is
// 0 where there was no answer. Every failure is retried, DNS errors and refused
// addresses included, since any of them may be set right; a redirect is a failure
// and is never followed; 410 alone disables the endpoint.
func ClassifyAttempt(status int, failure Failure) Verdict {
	switch failure {
	case FailureNone:
		return classifyStatus(status)
	case FailureDNS:
		return Verdict{Retry, "name not resolved"}
	case FailureConnect:
		return Verdict{Retry, "no connection"}
	case FailureTLS:
		return Verdict{Retry, "no secure connection"}
	case FailureTimeout:
		return Verdict{Retry, "no answer in time"}
	case FailureBlocked:
		return Verdict{Retry, "address not allowed"}
	case FailureRead:
		return Verdict{Retry, "answer not readable"}
	case FailureAnswer:
		return Verdict{Retry, "answer breaks the contract"}
	}
	return Verdict{Retry, "failed"}
}

func classifyStatus(status int) Verdict {
	switch {
	case status >= 200 && status <= 299:
		return Verdict{Delivered, "delivered"}
	case status == http.StatusGone:
		return Verdict{Disable, "endpoint gone"}
	case status >= 300 && status <= 399:
		return Verdict{Retry, "redirect not followed"}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return Verdict{Retry, fmt.Sprintf("throttled with status %d", status)}
	}
	return Verdict{Retry, fmt.Sprintf("status %d", status)}
}

// MaxRetryAfter caps how long a backend may ask to be left alone.
const MaxRetryAfter = time.Hour

// ParseRetryAfter reads a Retry-After header (RFC 9110 section 10.2.3): seconds or
// an HTTP date. The result is between 0 and MaxRetryAfter; ok is false for a
// header that is absent or malformed.
func ParseRetryAfter(header string, now time.Time) (time.Duration, bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0, false
	}
	if strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 32)
		if err != nil {
			return MaxRetryAfter, true // more digits than a number holds
		}
		return min(time.Duration(seconds)*time.Second, MaxRetryAfter), true
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}

// DefaultSchedule returns the waits before each attempt, counted from the one
// before it: that of Standard Webhooks with an early second attempt, because an
// agent is waiting. The first attempt is at once; 11 attempts span 75 h 35 min 6 s.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		0, time.Second, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const jitterShare = 0.2 // of a wait, either way

// NextAttempt returns how long to wait after made attempts, and false when the
// schedule has no further one. jitter is a random number from 0 up to 1 that
// spreads the wait by a fifth either way; retryAfter, 0 for none, is what the
// backend asked for and is a floor.
func NextAttempt(schedule []time.Duration, made int, jitter float64, retryAfter time.Duration) (time.Duration, bool) {
	if made < 0 || made >= len(schedule) {
		return 0, false
	}
	if !(jitter >= 0 && jitter <= 1) { // NaN too
		jitter = 0.5
	}
	wait := time.Duration(float64(schedule[made]) * (1 - jitterShare + 2*jitterShare*jitter))
	return max(wait, retryAfter), true
}
