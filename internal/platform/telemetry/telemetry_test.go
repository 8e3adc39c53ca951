package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/telemetry"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const canary = "kanarienvogel"

func setup(t testing.TB, change ...func(*telemetry.Config)) (*telemetry.Telemetry, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cfg := telemetry.Config{Service: "test", Version: "1", Instance: "i", LogWriter: &out, LogLevel: slog.LevelDebug}
	for _, c := range change {
		c(&cfg)
	}
	tel, err := telemetry.Setup(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	return tel, &out
}

func attr(key string, value any) slog.Attr { return slog.Attr{Key: key, Value: slog.AnyValue(value)} }

// secrets are attributes that hold the canary, by key, by type and by shape.
func secrets() []slog.Attr {
	jwt := "eyJhbGciOiJFUzI1NiJ9.eyJqdGkiOiJ" + canary + "In0." + canary + "sig"
	token := "pst_" + canary + strings.Repeat("A", 43-len(canary))
	return []slog.Attr{
		attr("authorization", canary), attr("DPoP", canary), attr("client_assertion", canary),
		attr("access_token", canary), attr("clientSecret", canary), attr("http.request.header.cookie", canary),
		attr("code", canary), attr("user_code", canary), attr("code_verifier", canary), attr("password", canary),
		attr("text", canary), attr("message_text", canary), attr("body", []byte(canary)), attr("url.query", canary),
		attr("token", slog.GroupValue(attr("value", canary))), attr("request", slog.GroupValue(attr("inner", slog.GroupValue(attr("secret", canary))))),
		attr("a", keys.NewSecret(canary)), attr("b", []byte(canary)), attr("c", struct{ Field string }{canary}),
		attr("d", map[string]string{"x": canary}), attr("e", http.Header{"X": {canary}}), attr("f", json.RawMessage(canary)),
		attr("g", url.Values{"x": {canary}}), attr("h", &http.Cookie{Name: "s", Value: canary}),
		attr("i", &url.URL{Scheme: "https", Host: "a.example", RawQuery: "x=" + canary, User: url.User(canary)}),
		attr("j", []keys.Secret{keys.NewSecret(canary)}), attr("k", map[string]any{"token": canary}),
		attr("l", "got "+jwt+" from it"), attr("m", errors.New("bad token "+token)), attr("n", []string{"x", token}),
		attr("o", &url.Error{Op: "Get", URL: "https://a.example/p?code=" + canary, Err: errors.New("refused")}),
		attr("p", "Authorization: DPoP "+canary), attr("q", "grant_type=x&code="+canary+"&z=1"),
		attr("r", "postgres://user:"+canary+"@db/x"), attr("s", "whsec_"+canary+strings.Repeat("A", 40)+"="),
		attr("t", fmt.Errorf("wrapped: %w", errors.New("bearer "+canary))),
	}
}

func TestLG01_NoSecretReachesTheLog(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		tel, out := setup(t, func(c *telemetry.Config) { c.LogFormat = format })
		log := tel.Logger()
		for _, a := range secrets() {
			out.Reset()
			log.LogAttrs(t.Context(), slog.LevelDebug, "request", a)
			log.With(a).Info("request")
			log.WithGroup("g").With("x", 1).LogAttrs(t.Context(), slog.LevelError, "request", a)
			log.WithGroup("g").LogAttrs(t.Context(), slog.LevelError, "request", slog.Any("list", slog.GroupValue(a)))
			require.NotContains(t, out.String(), canary, "%s: %s", format, a.Key)
			require.Equal(t, 4, strings.Count(out.String(), "\n"), out.String())
		}
		out.Reset()
		var said slog.Record
		said.Message = "token is pst_" + canary + strings.Repeat("A", 43-len(canary))
		require.NoError(t, log.Handler().Handle(t.Context(), said))
		require.NotContains(t, out.String(), canary)
	}
}

func TestHandler_ShowsWhatIsFit(t *testing.T) {
	tel, out := setup(t)
	tel.Logger().Info("served", "route", "POST /oauth/token", "status_code", 401, "conversation", "cnv_01hzxw5f3s9q8r7t6v5w4x3y2z",
		"took", 3*time.Millisecond, "addr", netip.MustParseAddr("192.0.2.1"), "error", errors.New("connection refused"), "ok", true,
		"url", &url.URL{Scheme: "https", Host: "a.example", Path: "/p", RawQuery: "q=1"}, "level2", slog.LevelWarn, "nothing", nil)
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Equal(t, "POST /oauth/token", got["route"])
	require.InDelta(t, 401, got["status_code"], 0)
	require.Equal(t, "cnv_01hzxw5f3s9q8r7t6v5w4x3y2z", got["conversation"])
	require.Equal(t, "192.0.2.1", got["addr"])
	require.Equal(t, "connection refused", got["error"])
	require.Equal(t, true, got["ok"])
	require.Equal(t, "https://a.example/p", got["url"])
	require.Equal(t, "test", got["service"])
}

func TestHandler_AddsTraceAndCompany(t *testing.T) {
	tel, out := setup(t)
	scope, err := tenancy.For("cmp_01hzxw5f3s9q8r7t6v5w4x3y2z")
	require.NoError(t, err)
	ctx, span := tel.TracerProvider().Tracer("t").Start(tenancy.Into(t.Context(), scope), "s")
	defer span.End()
	tel.Logger().InfoContext(ctx, "x")
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Equal(t, span.SpanContext().TraceID().String(), got["trace_id"])
	require.Equal(t, span.SpanContext().SpanID().String(), got["span_id"])
	require.Equal(t, scope.CompanyID(), got["company"])
}

func TestSetup_PassesTracesOnWithoutAnExporter(t *testing.T) {
	tel, _ := setup(t)
	want := "4bf92f3577b34da6a3ce929d0e0e4736"
	in := propagation.HeaderCarrier{"Traceparent": {"00-" + want + "-00f067aa0ba902b7-01"}}
	ctx, span := tel.TracerProvider().Tracer("t").Start(tel.Propagator().Extract(t.Context(), in), "s")
	defer span.End()
	out := propagation.HeaderCarrier{}
	tel.Propagator().Inject(ctx, out)
	require.Contains(t, out.Get("traceparent"), want)

	// And begins one where there is none.
	_, own := tel.TracerProvider().Tracer("t").Start(t.Context(), "s")
	defer own.End()
	require.True(t, own.SpanContext().IsValid())
	require.False(t, own.IsRecording())
}

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestSetup_ExportsWhereConfigured(t *testing.T) {
	for name, change := range map[string]func(*telemetry.Config){
		"endpoint": func(c *telemetry.Config) { c.OTLPEndpoint = "http://127.0.0.1:1" },
		"variable": func(c *telemetry.Config) {
			c.Getenv = environment(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
		},
	} {
		tel, _ := setup(t, change)
		_, span := tel.TracerProvider().Tracer("t").Start(t.Context(), "s")
		require.True(t, span.IsRecording(), name)
		// Never ended: the collector of this test does not exist.
	}
	tel, _ := setup(t, func(c *telemetry.Config) {
		c.Getenv = environment(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"})
	})
	_, span := tel.TracerProvider().Tracer("t").Start(t.Context(), "s")
	defer span.End()
	require.False(t, span.IsRecording())
	require.True(t, trace.SpanContextFromContext(trace.ContextWithSpan(t.Context(), span)).IsValid())
}

func TestSetup_MetricsOnAHandler(t *testing.T) {
	tel, _ := setup(t)
	counter, err := tel.MeterProvider().Meter("t").Int64Counter("poppyfield.test.things")
	require.NoError(t, err)
	counter.Add(t.Context(), 3)
	w := httptest.NewRecorder()
	tel.MetricsHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Regexp(t, `poppyfield_test_things_total\{[^}]*\} 3`, w.Body.String())
	require.Contains(t, w.Body.String(), "go_goroutines")
}

func TestSetup_RefusesUnknownLogFormat(t *testing.T) {
	_, err := telemetry.Setup(t.Context(), telemetry.Config{LogFormat: "xml"})
	require.Error(t, err)
}

func BenchmarkHandler(b *testing.B) {
	var out bytes.Buffer
	l := slog.New(telemetry.NewHandler(slog.NewJSONHandler(&out, nil)))
	for b.Loop() {
		out.Reset()
		l.InfoContext(b.Context(), "request served", "route", "POST /poppy/conversations/{id}/messages", "status_code", 200, "conversation", "cnv_01hzxw5f3s9q8r7t6v5w4x3y2z")
	}
}
