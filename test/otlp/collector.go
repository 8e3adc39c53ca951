package otlp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A Span is one that the product exported. Ids are lower-case hex.
type Span struct {
	TraceID, SpanID, ParentID string
	Name                      string
	Kind                      tracepb.Span_SpanKind
	// Links are the trace ids of linked spans.
	Links []string
	// Attributes are those with text or a whole number as their value.
	Attributes map[string]any
}

// A Collector takes what is exported to it until its test ends.
type Collector struct {
	// URL is for otlp_endpoint.
	URL string

	collectortrace.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []Span
	raw   []byte
}

// Start starts a collector on loopback.
func Start(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + l.Addr().String()}
	s := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(s, c)
	// Both services' methods are called Export, so metrics have a type of their own.
	collectormetrics.RegisterMetricsServiceServer(s, metrics{to: c})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return c
}

// Export takes spans.
func (c *Collector) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(r)
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, newSpan(s))
			}
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

type metrics struct {
	collectormetrics.UnimplementedMetricsServiceServer
	to *Collector
}

func (m metrics) Export(_ context.Context, r *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	m.to.keep(r)
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

// keep keeps a request as text, whatever is in it.
func (c *Collector) keep(m proto.Message) {
	text, err := protojson.Marshal(m)
	if err != nil {
		text = []byte(err.Error())
	}
	c.raw = append(append(c.raw, text...), '\n')
}

func newSpan(s *tracepb.Span) Span {
	out := Span{
		TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()), ParentID: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Kind: s.GetKind(), Attributes: map[string]any{},
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(l.GetTraceId()))
	}
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out.Attributes[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out.Attributes[a.GetKey()] = v.IntValue
		}
	}
	return out
}

// Raw is everything that was exported, as JSON.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

// Spans are all spans that came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Print lists spans, for the log of a test that fails.
func Print(spans []Span) string {
	var out strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&out, "%s %s < %s %s %q %v\n", s.TraceID, s.SpanID, s.ParentID, strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"), s.Name, s.Attributes)
	}
	return out.String()
}

// Await returns all spans as soon as they satisfy enough, which exporters may take
// some seconds for.
func (c *Collector) Await(t testing.TB, what string, enough func([]Span) bool) []Span {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		spans := c.Spans()
		if enough(spans) {
			return spans
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("the collector never had %s among %d spans", what, len(spans))
		}
	}
}
