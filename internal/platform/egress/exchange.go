package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

// Response is what a foreign server answered.
type Response struct {
	URL    string // the URL that answered
	Status int
	// Header has Cache-Control, Expires, ETag, Age, Date, Location and Retry-After, as
	// far as they came; nothing else of a foreign header gets any further.
	Header      http.Header
	ContentType string // media type in lower case, without parameters; "" when malformed
	Body        []byte
	Timing      Timing
	// Address is the IP and port that was talked to; "" where no connection was made.
	Address string
}

// CheckJSON reports with an [Error] of kind Redirect, Status or ContentType that
// the answer is not 200 with application/json or a +json type.
func (r Response) CheckJSON() error {
	switch {
	case isRedirect(r.Status):
		return newError(Redirect, "the server answered "+statusText(r.Status)+", and redirects are not followed", nil)
	case r.Status != http.StatusOK:
		return newError(Status, "the server answered "+statusText(r.Status)+" instead of 200", nil)
	case r.ContentType != "application/json" && !strings.HasSuffix(r.ContentType, "+json"):
		return newError(ContentType, "the answer is not application/json", nil)
	default:
		return nil
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return false
	}
}

// exchange is one request as all verbs send it.
type exchange struct {
	method  string
	url     string
	header  http.Header
	body    []byte
	cap     int64
	timeout time.Duration
	traced  bool
	shown   *tls.Certificate // nil: none
}

// do sends one request and reads the answer within cap and timeout.
func (c *Client) do(ctx context.Context, x exchange) (Response, error) {
	u, err := c.guard.CheckURL(x.url)
	if err != nil {
		return Response{}, err
	}
	ctx, span := c.telemetry.tracer.Start(ctx, "egress "+x.method, spanOptions(x.method, u)...)
	defer span.End()
	inner, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	clock := &stopwatch{now: c.now, start: c.now()}
	resp, err := c.send(httptrace.WithClientTrace(inner, clock.trace()), u, x)
	resp.Timing, resp.Address = clock.done()
	if err != nil {
		err = classify(ctx, inner, err)
	}
	c.telemetry.record(ctx, span, x.method, resp, err)
	return resp, err
}

func (c *Client) send(ctx context.Context, u URL, x exchange) (Response, error) {
	res, err := c.roundTrip(ctx, u, x)
	if err != nil {
		return Response{}, err
	}
	defer res.Body.Close()
	out := Response{URL: u.String(), Status: res.StatusCode, Header: keep(res.Header), ContentType: mediaType(res.Header)}
	out.Body, err = readBody(res, x.cap)
	if err == nil && ctx.Err() != nil {
		// Cancelling tells a server over HTTP/1.1 before the connection is gone; one that
		// then ends its answer must not make a cut text look whole.
		return Response{}, ctx.Err()
	}
	if err != nil && (res.StatusCode < 200 || res.StatusCode > 299) && ctx.Err() == nil {
		// The status says all there is to say; what is wrong with the text beside it
		// must not hide a 410 or 429.
		return out, nil
	}
	return out, err
}

// roundTrip sends the request and returns when status and headers of the answer are there.
func (c *Client) roundTrip(ctx context.Context, u URL, x exchange) (*http.Response, error) {
	var body io.Reader
	if x.body != nil {
		body = bytes.NewReader(x.body)
	}
	req, err := http.NewRequestWithContext(ctx, x.method, u.String(), body)
	if err != nil {
		return nil, newError(InvalidURL, "the URL is malformed", err)
	}
	for name, values := range x.header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if x.traced {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept-Encoding", "identity")
	// The transport itself, not an http.Client: no redirects, cookies, referrers or
	// credentials out of URLs.
	return c.transportFor(x.shown).RoundTrip(req)
}

func readBody(res *http.Response, limit int64) ([]byte, error) {
	if err := checkBody(res, limit); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, tooLarge()
	}
	return body, nil
}

// checkBody reports a body that would not be read, by what the header says of it.
func checkBody(res *http.Response, limit int64) error {
	for _, enc := range res.Header.Values("Content-Encoding") {
		if !strings.EqualFold(enc, "identity") {
			return newError(Encoding, "the answer has a Content-Encoding, which was not asked for", nil)
		}
	}
	if res.ContentLength > limit {
		return tooLarge()
	}
	return nil
}

func tooLarge() *Error { return newError(TooLarge, "the answer is larger than allowed", nil) }

func keep(h http.Header) http.Header {
	out := make(http.Header)
	for _, name := range []string{"Cache-Control", "Expires", "Etag", "Age", "Date", "Location", "Retry-After"} {
		if v := h.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// mediaType returns "" for a missing, repeated or malformed Content-Type.
func mediaType(h http.Header) string {
	v := h.Values("Content-Type")
	if len(v) != 1 {
		return ""
	}
	t, _, err := mime.ParseMediaType(v[0])
	if err != nil {
		return ""
	}
	return t
}

// classify gives err a kind. The deadline of the exchange outranks whatever broke
// because of it; outer is the caller's context, inner the one with our deadline.
func classify(outer, inner context.Context, err error) error {
	if errors.Is(outer.Err(), context.Canceled) {
		return newError(Canceled, "the request was given up", err)
	}
	var own *Error
	if errors.As(err, &own) && own.Kind != Connect && own.Kind != DNS {
		return own
	}
	if inner.Err() != nil || errors.Is(err, context.DeadlineExceeded) && own == nil {
		return newError(Timeout, "the server took too long", err)
	}
	if own != nil {
		return own
	}
	if detail := tlsDetail(err); detail != "" {
		return newError(TLS, detail, err)
	}
	// net/http has no types for these.
	text := err.Error()
	switch {
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "header list"),
		strings.Contains(text, "too many 1xx"):
		return newError(TooLarge, "the header of the answer is larger than allowed", err)
	case strings.Contains(text, "TLS handshake timeout"):
		return newError(TLS, "the TLS handshake took too long", err)
	default:
		return newError(Protocol, "the connection broke or the answer is not valid HTTP", err)
	}
}

func tlsDetail(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		op      *net.OpError
	)
	switch {
	case errors.As(err, &host):
		return "the certificate is not valid for the host"
	case errors.As(err, &unknown):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "the certificate does not verify"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	// With TLS 1.3 the server's alert may come after the handshake has ended on this side.
	case errors.As(err, &alert), errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"), strings.HasPrefix(err.Error(), "tls: "):
		return "the TLS handshake failed"
	default:
		return ""
	}
}

// location returns the absolute form of a redirect's target, "" when there is none.
func (r Response) location() string {
	// A fragment is for the one who reads the document, not for the request.
	loc, _, _ := strings.Cut(r.Header.Get("Location"), "#")
	if loc == "" || len(loc) > MaxURLLength {
		return ""
	}
	base, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	ref, err := url.Parse(loc)
	if err != nil {
		return ""
	}
	if ref.Host != "" {
		// Kept as sent, so that CheckURL sees the text and not a repaired form of it.
		if ref.Scheme == "" {
			return base.Scheme + ":" + loc
		}
		return loc
	}
	return base.ResolveReference(ref).String()
}

// stopwatch takes the times of one exchange. The transport may call its hooks after
// the exchange is over, hence the lock.
type stopwatch struct {
	now   func() time.Time
	start time.Time

	mu                      sync.Mutex
	t                       Timing
	address                 string
	connStart, dnsAt, tlsAt time.Time
}

func (s *stopwatch) trace() *httptrace.ClientTrace {
	locked := func(f func(at time.Time)) {
		at := s.now()
		s.mu.Lock()
		defer s.mu.Unlock()
		f(at)
	}
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { locked(func(at time.Time) { s.dnsAt = at }) },
		DNSDone:  func(httptrace.DNSDoneInfo) { locked(func(at time.Time) { s.t.DNS = at.Sub(s.dnsAt) }) },
		GetConn:  func(string) { locked(func(at time.Time) { s.connStart = at }) },
		GotConn: func(i httptrace.GotConnInfo) {
			locked(func(at time.Time) {
				s.t.Reused = i.Reused
				s.address = i.Conn.RemoteAddr().String()
				if !i.Reused {
					s.t.Connect = at.Sub(s.connStart) - s.t.TLS
				}
			})
		},
		TLSHandshakeStart: func() { locked(func(at time.Time) { s.tlsAt = at }) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			locked(func(at time.Time) { s.t.TLS = at.Sub(s.tlsAt) })
		},
		GotFirstResponseByte: func() { locked(func(at time.Time) { s.t.FirstByte = at.Sub(s.start) }) },
	}
}

// done returns the times so far, and the address that was talked to.
func (s *stopwatch) done() (Timing, string) {
	at := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Total = at.Sub(s.start)
	return s.t, s.address
}
