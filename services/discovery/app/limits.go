package app

import (
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Limits are a Company's lifetimes, rates and deadlines. A zero field means the installation's default.
type Limits struct {
	SessionTokenLifetime     time.Duration `json:"session_token_lifetime,omitempty" yaml:"session_token_lifetime"`
	SessionIdleLifetime      time.Duration `json:"session_idle_lifetime,omitempty" yaml:"session_idle_lifetime"`
	EventRetention           time.Duration `json:"event_retention,omitempty" yaml:"event_retention"`
	ConversationIdleLifetime time.Duration `json:"conversation_idle_lifetime,omitempty" yaml:"conversation_idle_lifetime"`
	AnswerDeadline           time.Duration `json:"answer_deadline,omitempty" yaml:"answer_deadline"`
	SessionStartsPerMinute   int           `json:"session_starts_per_minute,omitempty" yaml:"session_starts_per_minute"`
	RequestsPerMinute        int           `json:"requests_per_minute,omitempty" yaml:"requests_per_minute"`
}

// Bounds are the operator's: what a Company gets by default, and how far it may go either way.
type Bounds struct {
	Default Limits `yaml:"default"`
	Min     Limits `yaml:"min"`
	Max     Limits `yaml:"max"`
}

// Sound fails when a default is not within its own bounds.
func (b Bounds) Sound() error {
	if err := b.Check(b.Default); err != nil {
		return fmt.Errorf("default %w", err)
	}
	return nil
}

// DefaultBounds are the bounds of an installation that sets none. Session Tokens
// last hours and not days (Poppy 4.2).
func DefaultBounds() Bounds {
	const day = 24 * time.Hour
	return Bounds{
		Default: Limits{
			SessionTokenLifetime: time.Hour, SessionIdleLifetime: 7 * day, EventRetention: 90 * day, ConversationIdleLifetime: 7 * day,
			AnswerDeadline: 30 * time.Second, SessionStartsPerMinute: 600, RequestsPerMinute: 600,
		},
		Min: Limits{
			SessionTokenLifetime: time.Minute, SessionIdleLifetime: time.Minute, EventRetention: time.Minute, ConversationIdleLifetime: time.Minute,
			AnswerDeadline: time.Second, SessionStartsPerMinute: 1, RequestsPerMinute: 1,
		},
		Max: Limits{
			SessionTokenLifetime: day, SessionIdleLifetime: 365 * day, EventRetention: 3650 * day, ConversationIdleLifetime: 365 * day,
			AnswerDeadline: 10 * time.Minute, SessionStartsPerMinute: 6000, RequestsPerMinute: 60000,
		},
	}
}

// InForce returns l with the defaults filled in.
func (b Bounds) InForce(l Limits) Limits {
	fill := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&l.SessionTokenLifetime, b.Default.SessionTokenLifetime)
	fill(&l.SessionIdleLifetime, b.Default.SessionIdleLifetime)
	fill(&l.EventRetention, b.Default.EventRetention)
	fill(&l.ConversationIdleLifetime, b.Default.ConversationIdleLifetime)
	fill(&l.AnswerDeadline, b.Default.AnswerDeadline)
	if l.SessionStartsPerMinute == 0 {
		l.SessionStartsPerMinute = b.Default.SessionStartsPerMinute
	}
	if l.RequestsPerMinute == 0 {
		l.RequestsPerMinute = b.Default.RequestsPerMinute
	}
	return l
}

// Check names every field of l that is outside the operator's bounds.
func (b Bounds) Check(l Limits) error {
	p := problem.New(problem.Invalid, problem.InvalidRequest, "", "limits are outside the operator's bounds")
	dur := func(name string, v, lo, hi time.Duration) {
		if v != 0 && (v < lo || v > hi) {
			p = p.WithField("limits."+name, fmt.Sprintf("must be between %s and %s", lo, hi))
		}
	}
	num := func(name string, v, lo, hi int) {
		if v != 0 && (v < lo || v > hi) {
			p = p.WithField("limits."+name, fmt.Sprintf("must be between %d and %d", lo, hi))
		}
	}
	dur("session_token_lifetime", l.SessionTokenLifetime, b.Min.SessionTokenLifetime, b.Max.SessionTokenLifetime)
	dur("session_idle_lifetime", l.SessionIdleLifetime, b.Min.SessionIdleLifetime, b.Max.SessionIdleLifetime)
	dur("event_retention", l.EventRetention, b.Min.EventRetention, b.Max.EventRetention)
	dur("conversation_idle_lifetime", l.ConversationIdleLifetime, b.Min.ConversationIdleLifetime, b.Max.ConversationIdleLifetime)
	dur("answer_deadline", l.AnswerDeadline, b.Min.AnswerDeadline, b.Max.AnswerDeadline)
	num("session_starts_per_minute", l.SessionStartsPerMinute, b.Min.SessionStartsPerMinute, b.Max.SessionStartsPerMinute)
	num("requests_per_minute", l.RequestsPerMinute, b.Min.RequestsPerMinute, b.Max.RequestsPerMinute)
	if len(p.Fields) > 0 {
		return p
	}
	return nil
}
