package httpx

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Middleware wraps a handler.
type Middleware = func(http.Handler) http.Handler

// Chain wraps h; the first middleware sees a request first.
func Chain(h http.Handler, mw ...Middleware) http.Handler {
	for _, m := range slices.Backward(mw) {
		h = m(h)
	}
	return h
}

// Options are what Standard needs.
type Options struct {
	Name    string        // of the server in traces and metrics, such as "public"
	Log     *slog.Logger  // nil: nothing is logged
	NewID   func() string // of requests; nil: ids.New
	MaxBody int64         // bytes a handler can read; 0: 256 KiB
	HSTS    bool          // clients speak TLS, to us or to a proxy in front of us
	Trusted bool          // callers are ours: their trace goes on here instead of being linked

	// Where spans and metrics go and how traces travel; nil: what the otel package has.
	Traces     trace.TracerProvider
	Metrics    metric.MeterProvider
	Propagator propagation.TextMapPropagator
}

const defaultMaxBody = 256 << 10

// Standard wraps h into what every server of this product runs: request ids,
// traces, recovery from panics, security headers and a cap on bodies.
func Standard(h http.Handler, o Options) http.Handler {
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	return Chain(h, RequestID(o.NewID), WithLogger(o.Log), Trace(o), Recover(), SecurityHeaders(o.HSTS), LimitBody(o.MaxBody))
}

type requestIDKey struct{}

type loggerKey struct{}

// RequestID gives every request an id of our own making, in its context and in X-Request-Id.
func RequestID(newID func() string) Middleware {
	if newID == nil {
		newID = func() string { return ids.New(ids.Request) }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := newID()
			w.Header().Set(headerRequestID, id)
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
		})
	}
}

// RequestIDFrom returns the request's id, "" outside a request.
func RequestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithLogger lets LoggerFrom return log with the request's id.
func WithLogger(log *slog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		if log == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l := log.With("request_id", RequestIDFrom(r.Context()))
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loggerKey{}, l)))
		})
	}
}

// LoggerFrom returns the request's logger, or one that logs nothing.
func LoggerFrom(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.New(slog.DiscardHandler)
}

// Trace makes a span and metrics for every request. Spans are named by method and
// route, never by what the caller chose; queries are recorded nowhere, since
// people put tokens there. Nothing between Trace and the router may copy the
// request, or the route gets lost.
func Trace(o Options) Middleware {
	opts := []otelhttp.Option{
		otelhttp.WithServerName(o.Name), // and not the Host header, which would make metrics without bound
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			if r.Pattern == "" {
				return method(r.Method)
			}
			return r.Pattern
		}),
	}
	if !o.Trusted {
		opts = append(opts, otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }))
	}
	if o.Traces != nil {
		opts = append(opts, otelhttp.WithTracerProvider(o.Traces))
	}
	if o.Propagator != nil {
		opts = append(opts, otelhttp.WithPropagators(o.Propagator))
	}
	if o.Metrics != nil {
		opts = append(opts, otelhttp.WithMeterProvider(o.Metrics))
	}
	return otelhttp.NewMiddleware(o.Name, opts...)
}

func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "HTTP"
}

// Recover answers a panic with an opaque server_error, or cuts the connection
// where an answer has begun. The log gets the place and, for a fault of the
// runtime, its text; other panic values may hold anything and are not logged.
func Recover() Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t := &tracker{ResponseWriter: w}
			defer func() {
				if v := recover(); v != nil {
					answerPanic(t, r, v)
				}
			}()
			next.ServeHTTP(t, r)
		})
	}
}

func answerPanic(t *tracker, r *http.Request, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
		panic(v) //nolint:forbidigo // the documented way to cut a connection
	}
	LoggerFrom(r.Context()).ErrorContext(r.Context(), "handler panicked",
		"route", r.Pattern, "panic", panicText(v), "stack", string(debug.Stack()))
	if t.wrote {
		panic(http.ErrAbortHandler) //nolint:forbidigo // the documented way to cut a connection
	}
	WriteOAuthError(t, r, problem.New(problem.Internal, problem.ServerError, "", "internal error"), TokenEndpoint)
}

// panicText is what the log may hold of a panic.
func panicText(v any) string {
	if re, ok := v.(runtime.Error); ok {
		return re.Error()
	}
	return ""
}

// tracker remembers whether an answer has begun.
type tracker struct {
	http.ResponseWriter
	wrote bool
}

func (t *tracker) WriteHeader(status int) {
	t.wrote = t.wrote || status >= http.StatusOK
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracker) Write(p []byte) (int, error) {
	t.wrote = true
	return t.ResponseWriter.Write(p)
}

// Flush is for handlers that look for http.Flusher; http.ResponseController uses Unwrap.
func (t *tracker) Flush() {
	t.wrote = true
	// An error here means that the client has gone, which the next Write tells.
	_ = http.NewResponseController(t.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tracker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// SecurityHeaders sets what is right for answers that are data; a handler that
// serves pages replaces Content-Security-Policy by its own.
func SecurityHeaders(hsts bool) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("X-Frame-Options", "DENY")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
			if hsts {
				h.Set("Strict-Transport-Security", "max-age=31536000")
			}
			next.ServeHTTP(w, r)
		})
	}
}
