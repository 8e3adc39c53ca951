package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"

	documentLimit = 256 << 10 // poppy.json, metadata, token answers
	eventsLimit   = 32 << 20  // a page of 100 events of the largest messages

	requestTimeout = 20 * time.Second
	waitSeconds    = 20 // asked of the Company on each read; it may cap it
	shownLimit     = 256 << 10

	maxTries = 4
)

// outgoing is one HTTP request; known lists the credentials in it, for the redaction.
type outgoing struct {
	method, url string
	header      http.Header
	body        string
	limit       int64
	timeout     time.Duration
	known       []string
	repeatable  bool     // safe to send again when the connection broke
	expected    []string // error codes that are answers like any other
	credentials *credentials
	stream      bool   // the answer may be a stream of events (7.6)
	lastEventID string // where an earlier stream stopped
}

type incoming struct {
	status int
	header http.Header
	body   []byte
	stream *eventStream // instead of a body; to be closed
}

// newHTTPClient makes the client of a Personal Agent. It runs on the User's own
// machine, so any address may be dialled; it never follows a redirect by itself,
// since a redirect is only ever right for poppy.json, and each hop is to be checked.
func newHTTPClient(roots *x509.CertPool, resolve map[string]string) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, dialAddress(addr, resolve))
		},
		Proxy: func(r *http.Request) (*url.URL, error) {
			if _, ours := resolve[strings.ToLower(r.URL.Hostname())]; ours || isLocalhost(r.URL.Hostname()) {
				return nil, nil // no proxy
			}
			return http.ProxyFromEnvironment(r)
		},
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 45 * time.Second,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   4,
		ForceAttemptHTTP2:     true,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialAddress applies --resolve, and RFC 6761 section 6.3: every name below
// localhost is this machine, whatever a resolver would say.
func dialAddress(addr string, resolve map[string]string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if to, ok := resolve[host]; ok {
		if _, _, err := net.SplitHostPort(to); err == nil {
			return to
		}
		return net.JoinHostPort(strings.Trim(to, "[]"), port)
	}
	if isLocalhost(host) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// httpsURL parses s and refuses anything an agent would not send credentials to.
func httpsURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%.200q is not a URL", s)
	case u.Scheme != "https":
		return nil, fmt.Errorf("%.200q is not an https URL", s)
	case u.Hostname() == "" || u.Opaque != "":
		return nil, fmt.Errorf("%.200q has no host", s)
	case u.User != nil:
		return nil, fmt.Errorf("the URL of %q holds a user name", u.Hostname())
	}
	return u, nil
}

// exchange sends one request and reports it as a step.
func (a *Agent) exchange(ctx context.Context, section, title string, out outgoing) (incoming, error) {
	shown := &Exchange{Request: RequestView{
		Method:  out.method,
		URL:     out.credentials.hide(out.url),
		Headers: a.redact.headers(out.header),
		Body:    a.redact.body(out.header.Get("Content-Type"), out.credentials.hide(out.body), out.known),
	}}
	in, err := a.roundTrip(ctx, out)
	step := Step{Section: section, Title: title, Exchange: shown}
	if err != nil {
		shown.Error = err.Error()
		step.Detail = fmt.Sprintf("%s %s: %s", out.method, shown.Request.URL, err)
		a.report(step)
		return incoming{}, err
	}
	body := string(in.body)
	if len(body) > shownLimit {
		body = body[:shownLimit] + "…"
	}
	shown.Response = &ResponseView{
		Status:  in.status,
		Headers: out.credentials.hideHeaders(a.redact.headers(in.header)),
		Body:    a.redact.body(in.header.Get("Content-Type"), out.credentials.hide(body), out.known),
	}
	code := errorCode(in)
	step.OK = in.status < http.StatusBadRequest || slices.Contains(out.expected, code)
	step.Detail = fmt.Sprintf("%s %s → %d", out.method, shown.Request.URL, in.status)
	if code != "" {
		step.Detail += " " + out.credentials.hide(code)
	}
	a.report(step)
	return in, nil
}

func (a *Agent) roundTrip(ctx context.Context, out outgoing) (incoming, error) {
	timeout := out.timeout
	if timeout == 0 {
		timeout = requestTimeout
	}
	if _, err := httpsURL(out.url); err != nil {
		return incoming{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	limit := time.AfterFunc(timeout, cancel)
	streaming := false
	defer func() {
		limit.Stop()
		if !streaming {
			cancel()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, out.method, out.url, bytes.NewBufferString(out.body))
	if err != nil {
		return incoming{}, fmt.Errorf("building the request: %w", err)
	}
	req.Header = out.header.Clone()
	req.Header.Set("User-Agent", "poppyfield-agent/0.1")
	res, err := a.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the method and URL are in the step already
		}
		if !limit.Stop() {
			err = fmt.Errorf("no answer within %s", timeout)
		}
		return incoming{}, err
	}
	if out.stream && isEventStream(res) {
		streaming = true
		return incoming{status: res.StatusCode, header: res.Header, stream: newEventStream(res.Body, cancel)}, nil
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, out.limit+1))
	if err != nil {
		return incoming{}, fmt.Errorf("reading the answer: %w", err)
	}
	if int64(len(body)) > out.limit {
		return incoming{}, fmt.Errorf("the answer is larger than %d bytes", out.limit)
	}
	return incoming{status: res.StatusCode, header: res.Header, body: body}, nil
}

// send repeats a request for the reasons the protocol gives: a wanted nonce, a
// limit with its waiting time, and a connection that broke. sign is called for
// every try, because each carries a proof and assertions of its own.
func (a *Agent) send(ctx context.Context, section, title string, out outgoing, sign func(*outgoing) error) (incoming, error) {
	nonceTried := false
	for try := 1; ; try++ {
		if err := a.awaitHold(ctx, section, holdKey(out)); err != nil {
			return incoming{}, err
		}
		if err := sign(&out); err != nil {
			return incoming{}, err
		}
		in, err := a.exchange(ctx, section, title, out)
		if err != nil {
			var untrusted *tls.CertificateVerificationError
			if out.repeatable && try < maxTries && ctx.Err() == nil && !errors.As(err, &untrusted) &&
				a.clock.Wait(ctx, time.Duration(try)*400*time.Millisecond) == nil {
				continue
			}
			return incoming{}, fail(ExitNetwork, section, "%s", title).because(err)
		}
		nonce := in.header.Get("Dpop-Nonce")
		if nonce != "" && len(nonce) <= 512 {
			a.nonces[originOf(out.url)] = nonce // RFC9449/8.2: the newest one is used from now on
		}
		if limited(in) {
			// poppy-0.1/4.3#47: kept in the agent's directory, so that another run waits as well.
			a.cache.Holds[holdKey(out)] = a.clock.Now().Add(retryAfter(in.header, a.clock.Now()))
			a.saveCache()
			if try < maxTries {
				continue
			}
		}
		if errorCode(in) == "use_dpop_nonce" && nonce != "" && !nonceTried {
			nonceTried = true // poppy-0.1/4.3#25, RFC9449/8: once, with the nonce just given
			continue
		}
		return in, nil
	}
}

func limited(in incoming) bool {
	return in.status == http.StatusTooManyRequests ||
		in.status == http.StatusServiceUnavailable && in.header.Get("Retry-After") != ""
}

// retryAfter reads the header in both of its forms (RFC 9110 section 10.2.3); without one it is a second.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if secs, err := strconv.ParseUint(v, 10, 31); err == nil {
		return max(time.Duration(secs)*time.Second, time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), time.Second)
	}
	return time.Second
}

func holdKey(out outgoing) string {
	u, _, _ := strings.Cut(out.url, "?")
	return out.method + " " + u
}

// awaitHold waits until a limited request may be sent again, or says when that is
// if the command has not that much time.
func (a *Agent) awaitHold(ctx context.Context, section, key string) error {
	until, ok := a.cache.Holds[key]
	if !ok {
		return nil
	}
	left := until.Sub(a.clock.Now())
	if left > 0 {
		if deadline, ok := ctx.Deadline(); ok && deadline.Sub(a.clock.Now()) < left {
			return fail(ExitRefused, section, "the Company limits this request; it may be sent again at %s", until.Format(time.RFC3339))
		}
		a.report(Step{Section: "4.3", Title: "Wait as Retry-After says", OK: true, Detail: left.Round(time.Millisecond).String()})
		if err := a.clock.Wait(ctx, left); err != nil {
			return fail(ExitNetwork, section, "stopped while waiting for the Company's limit").because(err)
		}
	}
	delete(a.cache.Holds, key)
	return nil
}

func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
