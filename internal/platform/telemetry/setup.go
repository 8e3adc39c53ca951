package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config says who the process is and where its telemetry goes.
type Config struct {
	Service  string
	Version  string
	Instance string

	LogFormat string // "json" or "text"; "" is "json"
	LogLevel  slog.Level
	LogWriter io.Writer

	// OTLPEndpoint is the URL of a collector that takes OTLP over gRPC. Where it is
	// empty the standard variables OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT decide. With
	// neither nothing is exported, and trace ids are passed on all the same.
	OTLPEndpoint string
	// Getenv reads those variables; nil reads none. The exporter's other standard
	// variables are read by OpenTelemetry itself.
	Getenv func(string) string
}

// Telemetry is what Setup made.
type Telemetry struct {
	log        *slog.Logger
	traces     *sdktrace.TracerProvider
	metrics    *sdkmetric.MeterProvider
	registry   *prometheus.Registry
	propagator propagation.TextMapPropagator
}

// Setup makes logger and providers. It changes nothing outside of what it returns;
// see SetGlobal.
func Setup(ctx context.Context, cfg Config) (*Telemetry, error) {
	log, err := newLogger(cfg)
	if err != nil {
		return nil, err
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", cfg.Service),
		attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", cfg.Instance),
	)
	traces, err := newTraces(ctx, cfg, res)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: metrics: %w", err), traces.Shutdown(ctx))
	}
	return &Telemetry{
		log:        log,
		traces:     traces,
		metrics:    sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res)),
		registry:   registry,
		propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}, nil
}

func newLogger(cfg Config) (*slog.Logger, error) {
	w := cfg.LogWriter
	if w == nil {
		w = io.Discard
	}
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	var inner slog.Handler
	switch cfg.LogFormat {
	case "", "json":
		inner = slog.NewJSONHandler(w, opts)
	case "text":
		inner = slog.NewTextHandler(w, opts)
	default:
		return nil, fmt.Errorf("telemetry: log format %q is neither json nor text", cfg.LogFormat)
	}
	log := slog.New(NewHandler(inner))
	if cfg.Service != "" {
		log = log.With("service", cfg.Service)
	}
	return log, nil
}

func newTraces(ctx context.Context, cfg Config, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	env := cfg.Getenv
	if env == nil {
		env = func(string) string { return "" }
	}
	var opts []otlptracegrpc.Option
	switch {
	case cfg.OTLPEndpoint != "":
		opts = append(opts, otlptracegrpc.WithEndpointURL(cfg.OTLPEndpoint))
	case env("OTEL_TRACES_EXPORTER") == "none",
		env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "":
		// Spans that nobody gets are not recorded; they carry their ids on.
		return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.NeverSample())), nil
	}
	exporter, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: trace exporter: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter)), nil
}

// SetGlobal makes the providers and the propagator those of the otel package, from
// where libraries take them. The composition root calls it once.
func (t *Telemetry) SetGlobal() {
	otel.SetTracerProvider(t.traces)
	otel.SetMeterProvider(t.metrics)
	otel.SetTextMapPropagator(t.propagator)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.log.Warn("telemetry", "error", err) }))
}

// Logger returns the process's logger.
func (t *Telemetry) Logger() *slog.Logger { return t.log }

// TracerProvider returns the source of tracers.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.traces }

// MeterProvider returns the source of meters.
func (t *Telemetry) MeterProvider() metric.MeterProvider { return t.metrics }

// Propagator reads and writes the W3C headers traceparent, tracestate and baggage.
func (t *Telemetry) Propagator() propagation.TextMapPropagator { return t.propagator }

// MetricsHandler answers with all metrics in the form that Prometheus reads.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Shutdown sends what is left and ends the providers, by the deadline of ctx.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}
