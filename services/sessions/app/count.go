package app

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// counts are the service's own metrics. Their attributes are words of the catalogue of
// problems and the like, and never name a Company, an agent or a User.
type counts struct{ opened, signedIn, ended, refused metric.Int64Counter }

func newCounts(m metric.Meter) (counts, error) {
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	opened, err := m.Int64Counter("poppyfield.sessions.opened",
		metric.WithDescription("Session Tokens issued, for a new Session or a renewed one."), metric.WithUnit("{token}"))
	signedIn, err1 := m.Int64Counter("poppyfield.sessions.signed_in",
		metric.WithDescription("Signed-in Session Tokens issued, by the type of sign-in or by an Account Token."), metric.WithUnit("{token}"))
	ended, err2 := m.Int64Counter("poppyfield.sessions.grants_ended",
		metric.WithDescription("Sign-ins that were taken back, by the reason."), metric.WithUnit("{grant}"))
	refused, err3 := m.Int64Counter("poppyfield.sessions.refused",
		metric.WithDescription("Token requests that were refused, by the reason."), metric.WithUnit("{request}"))
	return counts{opened, signedIn, ended, refused}, errors.Join(err, err1, err2, err3)
}

func (c counts) open(ctx context.Context, i Issued, err error) {
	if c.refuse(ctx, err) {
		return
	}
	kind := "renewed"
	if i.Created {
		kind = "created"
	}
	c.opened.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", kind)))
}

func (c counts) signIn(ctx context.Context, kind string, err error) {
	if !c.refuse(ctx, err) {
		c.signedIn.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", kind)))
	}
}

func (c counts) end(ctx context.Context, n int, reason store.EndReason) {
	if n > 0 {
		c.ended.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reason", string(reason))))
	}
}

func (c counts) refuse(ctx context.Context, err error) bool {
	if err != nil {
		c.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", problem.As(err).Reason.Wire())))
	}
	return err != nil
}
