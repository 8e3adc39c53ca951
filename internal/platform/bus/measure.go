package bus

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// Measure has p ask at every collection how many doorbells were dropped since Connect.
func (b *Bus) Measure(p metric.MeterProvider) error {
	_, err := p.Meter("github.com/poppyfield/poppyfield/internal/platform/bus").Int64ObservableCounter("poppyfield.bus.doorbells.dropped",
		metric.WithDescription("Doorbells that could not be sent: no connection, or too many at once."), metric.WithUnit("{doorbell}"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(min(b.dropped.Load(), 1<<62)))
			return nil
		}))
	return err
}
