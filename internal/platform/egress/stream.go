package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// StreamRequest is a POST whose answer is read as it comes.
type StreamRequest struct {
	URL         string
	Header      http.Header // as of PostRequest
	ContentType string      // "" means application/json
	Body        []byte
	MaxBytes    int64 // of the answer's body in all; zero means 256 KiB, more than 8 MiB is cut to 8 MiB
	// AckTimeout is the time from look-up to the answer's headers; zero means Timeout.
	AckTimeout time.Duration
	// IdleTimeout is how long a read may wait for the next piece of the body; zero means Timeout.
	IdleTimeout time.Duration
	Timeout     time.Duration // of everything; zero means 15 s, at most 5 min
	Traced      bool          // as of PostRequest
	Certificate *tls.Certificate
}

// MaxStreamBytes is the most that a streamed answer may have.
const MaxStreamBytes = 8 << 20

// StreamResponse is an answer whose status and headers came. Its Body must be closed.
type StreamResponse struct {
	URL         string
	Status      int
	Header      http.Header // of the names that Response keeps
	ContentType string
	Address     string
	// Body fails with an [Error]: for an answer above the cap, one that stops for too
	// long, and one that breaks off. It is no body for a status other than 2xx whose
	// text would not be read. Closing it early closes the connection.
	Body io.ReadCloser

	watch *stopwatch
}

// Timing returns the times of the exchange until now.
func (r *StreamResponse) Timing() Timing {
	t, _ := r.watch.done()
	return t
}

// Answer returns the answer as one that was read whole, with body.
func (r *StreamResponse) Answer(body []byte) Response {
	return Response{
		URL: r.URL, Status: r.Status, Header: r.Header, ContentType: r.ContentType, Body: body, Timing: r.Timing(), Address: r.Address,
	}
}

// Stream sends a POST and returns when the answer's headers are there. Where none
// come the error is an [Error], and the response, without a body, tells the address
// and the times that are known. Like Post it sends once, and follows no redirect.
func (c *Client) Stream(ctx context.Context, r StreamRequest) (*StreamResponse, error) {
	x := PostRequest{URL: r.URL, Header: r.Header, ContentType: r.ContentType, Body: r.Body, Timeout: r.Timeout, Traced: r.Traced, Certificate: r.Certificate}.exchange()
	x.cap = clamp(r.MaxBytes, DefaultPostBytes, MaxStreamBytes)
	out := &StreamResponse{URL: r.URL, Header: http.Header{}, watch: &stopwatch{now: c.now, start: c.now()}}
	u, err := c.guard.CheckURL(r.URL)
	if err != nil {
		return out, err
	}
	outer := ctx
	ctx, span := c.telemetry.tracer.Start(ctx, "egress "+x.method, spanOptions(x.method, u)...) //nolint:spancheck // the body ends it
	inner, cancel := context.WithCancelCause(ctx)
	b := &streamBody{client: c, outer: outer, inner: inner, cancel: cancel, span: span, response: out, left: x.cap, idle: clamp(r.IdleTimeout, x.timeout, x.timeout)}
	b.total = time.AfterFunc(x.timeout, func() { cancel(newError(Timeout, "the server took too long", nil)) })
	ack := time.AfterFunc(clamp(r.AckTimeout, x.timeout, x.timeout), func() { cancel(newError(Timeout, "the server took too long to begin its answer", nil)) })
	res, err := c.roundTrip(httptrace.WithClientTrace(inner, out.watch.trace()), u, x)
	ack.Stop()
	_, out.Address = out.watch.done()
	if err != nil {
		return out, b.end(err) //nolint:spancheck,nolintlint // which ends it; whether that is seen depends on what was linted before
	}
	out.Status, out.Header, out.ContentType, out.URL = res.StatusCode, keep(res.Header), mediaType(res.Header), u.String()
	b.body, out.Body = res.Body, b
	if err := checkBody(res, x.cap); err != nil {
		if out.Status >= 200 && out.Status <= 299 {
			_ = res.Body.Close() // nothing of it is wanted
			out.Body = nil
			return out, b.end(err) //nolint:spancheck,nolintlint // which ends it; whether that is seen depends on what was linted before
		}
		b.left, b.silent = 0, true
	}
	return out, nil
}

// streamBody reads the body of a streamed answer within its bounds.
type streamBody struct {
	client       *Client
	outer, inner context.Context // a body outlives the call that began it
	cancel       context.CancelCauseFunc
	span         trace.Span
	response     *StreamResponse
	body         io.ReadCloser
	left         int64 // bytes that may come yet
	idle         time.Duration
	total        *time.Timer
	silent       bool // nothing of the body is read
	ended        error
}

// Read implements io.Reader.
func (b *streamBody) Read(p []byte) (int, error) {
	switch {
	case b.ended != nil:
		return 0, b.ended
	case b.silent:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	// One byte more than allowed shows that there is more.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	idle := time.AfterFunc(b.idle, func() { b.cancel(newError(Timeout, "the answer stopped for too long", nil)) })
	n, err := b.body.Read(p)
	idle.Stop()
	if int64(n) > b.left {
		n, err = int(b.left), tooLarge()
	}
	b.left -= int64(n)
	// Cancelling tells a server over HTTP/1.1 before the connection is gone; one that
	// then ends its answer must not make a cut text look whole.
	if b.inner.Err() != nil {
		n, err = 0, context.Cause(b.inner)
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		_ = b.end(nil)
		b.ended = io.EOF
	default:
		b.ended = b.end(err)
	}
	return n, b.ended
}

// lingering is how long and for how many bytes Close waits for an end that is near.
const (
	lingering    = 50 * time.Millisecond
	lingerBuffer = 1 << 10
)

// Close gives the rest of the answer up. It never fails. It waits for a moment, since
// an answer that has been read to its end leaves a connection that can be used again.
func (b *streamBody) Close() error {
	if b.ended == nil && !b.silent {
		b.idle = min(b.idle, lingering)
		_, _ = b.Read(make([]byte, lingerBuffer)) // whatever comes, nobody wants it
	}
	if b.ended == nil {
		_ = b.end(nil)
		b.ended = newError(Canceled, "the answer was closed", nil)
	}
	_ = b.body.Close() // the connection is the transport's
	return nil
}

// end stops the clocks, tells the telemetry, and gives err its kind.
func (b *streamBody) end(err error) error {
	b.total.Stop()
	if err != nil {
		if cause := context.Cause(b.inner); cause != nil && b.outer.Err() == nil {
			err = cause
		}
		err = classify(b.outer, b.inner, err)
	}
	t, address := b.response.watch.done()
	b.client.telemetry.record(b.outer, b.span, http.MethodPost, Response{Status: b.response.Status, Timing: t, Address: address}, err)
	b.span.End()
	b.cancel(nil)
	return err
}
