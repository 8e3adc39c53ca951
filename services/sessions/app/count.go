package app

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// counts are the service's own metrics. Their attributes are words of the catalogue of
// problems and the like, and never name a Company, an agent or a User.
type counts struct{ opened, refused metric.Int64Counter }

func newCounts(m metric.Meter) (counts, error) {
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	opened, err := m.Int64Counter("poppyfield.sessions.opened",
		metric.WithDescription("Session Tokens issued, for a new Session or a renewed one."), metric.WithUnit("{token}"))
	refused, err2 := m.Int64Counter("poppyfield.sessions.refused",
		metric.WithDescription("Token requests that were refused, by the reason."), metric.WithUnit("{request}"))
	return counts{opened, refused}, errors.Join(err, err2)
}

func (c counts) open(ctx context.Context, i Issued, err error) {
	if err != nil {
		c.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", problem.As(err).Reason.Wire())))
		return
	}
	kind := "renewed"
	if i.Created {
		kind = "created"
	}
	c.opened.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", kind)))
}
