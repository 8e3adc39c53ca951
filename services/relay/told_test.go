package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// told is everything that relay tells about itself, nothing of it redacted.
type told struct {
	logger   *slog.Logger
	tracing  *trace.TracerProvider
	metering *metric.MeterProvider

	log    *lines
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

// lines is a buffer that many may write to.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func newTold() *told {
	t := &told{log: &lines{}, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	t.logger = slog.New(slog.NewJSONHandler(t.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.tracing = trace.NewTracerProvider(trace.WithSpanProcessor(t.spans))
	t.metering = metric.NewMeterProvider(metric.WithReader(t.reader))
	return t
}

// all returns logs, spans and metrics as one text.
func (o *told) all(t testing.TB) string {
	t.Helper()
	var metrics metricdata.ResourceMetrics
	require.NoError(t, o.reader.Collect(t.Context(), &metrics))
	m, err := json.Marshal(metrics)
	require.NoError(t, err)
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	out := o.log.buf.String() + string(m)
	for _, s := range o.spans.Ended() {
		out += fmt.Sprintf("%s %v %v %v\n", s.Name(), s.Attributes(), s.Status(), s.Events())
	}
	return out
}
