package egress

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"
)

const scope = "github.com/poppyfield/poppyfield/internal/platform/egress"

// telemetry records spans and durations. Paths and queries of URLs may hold
// secrets of a Company, so host, method and outcome are all it learns; trace
// context is not sent to strangers.
type telemetry struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

func newTelemetry(tp trace.TracerProvider, mp metric.MeterProvider) (telemetry, error) {
	if tp == nil {
		tp = tnoop.NewTracerProvider()
	}
	if mp == nil {
		mp = mnoop.NewMeterProvider()
	}
	h, err := mp.Meter(scope).Float64Histogram("poppyfield.egress.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Time of a request to a foreign URL, by method and outcome."),
		metric.WithExplicitBucketBoundaries(.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60))
	if err != nil {
		return telemetry{}, fmt.Errorf("egress: duration metric: %w", err)
	}
	return telemetry{tracer: tp.Tracer(scope), duration: h}, nil
}

func spanOptions(method string, u URL) []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", method),
		attribute.String("server.address", u.Hostname()),
		attribute.Int("server.port", int(u.Port())),
	)}
}

// record tells span and metric how the exchange went.
func (t telemetry) record(ctx context.Context, span trace.Span, method string, r Response, err error) {
	outcome := string(KindOf(err))
	if err == nil {
		outcome = fmt.Sprintf("%dxx", r.Status/100)
	}
	if r.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	}
	if err != nil {
		span.SetAttributes(attribute.String("error.type", outcome))
		span.SetStatus(codes.Error, DetailOf(err))
	}
	t.duration.Record(ctx, r.Timing.Total.Seconds(), metric.WithAttributes(
		attribute.String("http.request.method", method), attribute.String("outcome", outcome)))
}

// Timing says how long the parts of an exchange took. Parts that did not happen are zero.
type Timing struct {
	DNS       time.Duration // zero on a connection used again
	Connect   time.Duration // look-up included
	TLS       time.Duration
	FirstByte time.Duration // from the start to the first byte of the answer
	Total     time.Duration
	Reused    bool // the connection was open already
}
