package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	maxAnswer = 4 << 20
	callTime  = 20 * time.Second
	tries     = 4
)

// adminClient calls the public admin REST API with one key.
type adminClient struct {
	origin string
	key    string
	http   *http.Client
}

// apiError is an error answer: problem+json.
type apiError struct {
	status int
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`
}

func (e *apiError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("admin API answered %d %s %s", e.status, e.Reason, e.Detail))
}

func hasStatus(err error, status int) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == status
}

// newHTTPClient trusts roots beside the system's CAs when it is not nil, and reaches
// the names of hosts at the "ip:port" given there.
func newHTTPClient(roots *x509.CertPool, hosts map[string]string) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Timeout:       callTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if host, _, err := net.SplitHostPort(addr); err == nil {
					if to, ok := hosts[strings.ToLower(host)]; ok {
						addr = to
					}
				}
				return dialer.DialContext(ctx, network, addr)
			},
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 5 * time.Second,
			IdleConnTimeout:     30 * time.Second,
			ForceAttemptHTTP2:   true,
		},
	}
}

// call makes one request and reads the answer into out. A write carries one request_id
// through all tries, so that a lost answer never makes a second resource.
func (c *adminClient) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = raw
	}
	var failure error
	for try := range tries {
		if try > 0 {
			if err := clock.Wait(ctx, time.Duration(try)*300*time.Millisecond); err != nil {
				return errors.Join(failure, err)
			}
		}
		failure = c.once(ctx, method, c.origin+path, query, body, out)
		var e *apiError
		if failure == nil || errors.As(failure, &e) && e.status != http.StatusServiceUnavailable && e.status != http.StatusTooManyRequests {
			break
		}
	}
	if failure != nil {
		return fmt.Errorf("%s %s: %w", method, path, failure)
	}
	return nil
}

func (c *adminClient) once(ctx context.Context, method, at string, query url.Values, body []byte, out any) error {
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body)) //nolint:gosec // origin and path are the demo's own; a visitor's words are in the body alone
	if err != nil {
		return fmt.Errorf("building the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		e := &apiError{status: res.StatusCode}
		_ = json.Unmarshal(raw, e)
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the answer is not the JSON expected: %w", err)
	}
	return nil
}

// requestID is a random UUID, version 4.
func requestID() url.Values {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return url.Values{"request_id": {uuid(b, 4)}}
}

// uuid writes b as a UUID of a version (RFC 9562).
func uuid(b [16]byte, version byte) string {
	b[6], b[8] = b[6]&0x0f|version<<4, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
