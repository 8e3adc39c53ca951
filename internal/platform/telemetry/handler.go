package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// NewHandler wraps inner. Every record gets trace_id, span_id and company from its
// context, and everything in it is redacted before inner sees it.
func NewHandler(inner slog.Handler) slog.Handler { return &handler{inner} }

type handler struct{ inner slog.Handler }

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, scrub(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(redact(a))
		return true
	})
	if ctx != nil {
		if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
			out.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
		}
		if scope, err := tenancy.From(ctx); err == nil {
			out.AddAttrs(slog.String("company", scope.CompanyID()))
		}
	}
	return h.inner.Handle(ctx, out)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redact(a)
	}
	return &handler{h.inner.WithAttrs(clean)}
}

func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.inner.WithGroup(name)} }
