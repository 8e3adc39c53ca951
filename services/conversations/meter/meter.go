// Package meter counts what conversations do. Nothing it counts names a Company, an
// agent or a User: the attributes have few values, whoever uses the installation.
package meter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

const scope = "github.com/poppyfield/poppyfield/services/conversations"

// Meter holds the instruments.
type Meter struct {
	meter      metric.Meter
	accepted   metric.Int64Counter
	deliveries metric.Int64Counter
	attempt    metric.Float64Histogram
	turn       metric.Float64Histogram
	missed     metric.Int64Counter
	pending    atomic.Int64
	oldest     atomic.Int64 // nanoseconds
	observed   metric.Registration
}

// New makes the instruments; a nil provider makes ones that count nothing.
func New(p metric.MeterProvider) (*Meter, error) {
	if p == nil {
		p = noop.NewMeterProvider()
	}
	m := &Meter{meter: p.Meter(scope)}
	var errs [5]error
	m.accepted, errs[0] = m.meter.Int64Counter("poppyfield.conversations.messages.accepted",
		metric.WithDescription("Messages of Personal Agents that were accepted."), metric.WithUnit("{message}"))
	m.deliveries, errs[1] = m.meter.Int64Counter("poppyfield.conversations.deliveries",
		metric.WithDescription("Recorded attempts at webhooks, by what came of them."), metric.WithUnit("{attempt}"))
	m.attempt, errs[2] = m.meter.Float64Histogram("poppyfield.conversations.delivery.attempt.duration",
		metric.WithDescription("From the call of relay to its result, the backend's own time included."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
	m.turn, errs[3] = m.meter.Float64Histogram("poppyfield.conversations.turn.duration",
		metric.WithDescription("From the acceptance of a message to the event that answers it."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800))
	m.missed, errs[4] = m.meter.Int64Counter("poppyfield.conversations.answers.missed",
		metric.WithDescription("Turns whose agent was told that no answer came in time."), metric.WithUnit("{turn}"))
	return m, errors.Join(errs[:]...)
}

// Observe has held, the number of reads held now, and the backlog asked for at every collection, until Close.
func (m *Meter) Observe(held func() int) error {
	var errs [3]error
	reads, err := m.meter.Int64ObservableGauge("poppyfield.conversations.reads.held",
		metric.WithDescription("Requests that wait for events now."), metric.WithUnit("{request}"))
	errs[0] = err
	pending, err := m.meter.Int64ObservableGauge("poppyfield.conversations.deliveries.pending",
		metric.WithDescription("Messages of the whole installation that their backends don't have yet."), metric.WithUnit("{delivery}"))
	errs[1] = err
	oldest, err := m.meter.Float64ObservableGauge("poppyfield.conversations.deliveries.overdue",
		metric.WithDescription("For how long the delivery that waits longest has been due."), metric.WithUnit("s"))
	errs[2] = err
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	m.observed, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(reads, int64(held()))
		o.ObserveInt64(pending, m.pending.Load())
		o.ObserveFloat64(oldest, time.Duration(m.oldest.Load()).Seconds())
		return nil
	}, reads, pending, oldest)
	return err
}

// Close ends what Observe began.
func (m *Meter) Close() error {
	if m.observed == nil {
		return nil
	}
	return m.observed.Unregister()
}

// Accepted counts a message, which may have started its conversation.
func (m *Meter) Accepted(ctx context.Context, first bool) {
	m.accepted.Add(ctx, 1, metric.WithAttributes(attribute.Bool("first", first)))
}

// Attempted records an attempt at a delivery. The outcome is one of a few words.
func (m *Meter) Attempted(ctx context.Context, outcome string, took time.Duration) {
	m.attempt.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// Delivered counts an attempt whose result was recorded, or a delivery that ended without one.
func (m *Meter) Delivered(ctx context.Context, outcome string) {
	m.deliveries.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// Answered records a turn from its message to its answer.
func (m *Meter) Answered(ctx context.Context, took time.Duration) {
	m.turn.Record(ctx, took.Seconds())
}

// Missed counts turns without an answer in time.
func (m *Meter) Missed(ctx context.Context, turns int) {
	if turns > 0 {
		m.missed.Add(ctx, int64(turns))
	}
}

// Backlog notes how many deliveries are pending, and for how long the first one has been due.
func (m *Meter) Backlog(pending int, overdue time.Duration) {
	m.pending.Store(int64(pending))
	m.oldest.Store(int64(max(overdue, 0)))
}
