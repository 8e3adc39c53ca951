package desk

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	maxAnswer = 4 << 20
	callTime  = 20 * time.Second
	tries     = 4
)

// client calls the admin REST API with one key.
type client struct {
	origin string
	key    string
	http   *http.Client
	pause  time.Duration // before the second try; longer before each further one
}

// apiError is an error answer: problem+json.
type apiError struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`
}

func (e *apiError) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return strings.TrimSpace(fmt.Sprintf("the API answered %d %s", e.Status, e.Title))
}

// again reports whether the same request may succeed in a moment.
func again(err error) bool {
	var e *apiError
	if errors.As(err, &e) {
		return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests
	}
	return true
}

func newClient(origin, key string, roots *x509.CertPool) *client {
	return &client{origin: strings.TrimSuffix(origin, "/"), key: key, pause: 300 * time.Millisecond, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		},
	}}
}

// post writes. All tries carry one request_id, so that a lost answer never does it twice.
func (c *client) post(ctx context.Context, path string, in map[string]any) error {
	in["request_id"] = uuid.NewString()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, body, nil)
}

func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, http.MethodGet, path, nil, out)
}

func (c *client) call(ctx context.Context, method, path string, body []byte, out any) error {
	var failure error
	for try := range tries {
		if try > 0 {
			if err := clock.Wait(ctx, time.Duration(try)*c.pause); err != nil {
				return errors.Join(failure, err)
			}
		}
		if failure = c.once(ctx, method, path, body, out); failure == nil || !again(failure) {
			return failure
		}
	}
	return failure
}

func (c *client) once(ctx context.Context, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	res, err := c.do(ctx, method, path, body, "application/json", "")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// do makes a request; an answer other than 200 is an error.
func (c *client) do(ctx context.Context, method, path string, body []byte, accept, lastEventID string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.origin+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	e := &apiError{Status: res.StatusCode, Title: http.StatusText(res.StatusCode)}
	if raw, err := io.ReadAll(io.LimitReader(res.Body, 64<<10)); err == nil {
		_ = json.Unmarshal(raw, e) // what is no problem document says nothing more
	}
	e.Status = res.StatusCode
	return nil, e
}
