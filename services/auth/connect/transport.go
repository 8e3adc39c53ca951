package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// callTime bounds one request to the Company's identity provider: its User waits.
const callTime = 5 * time.Second

// transport sends requests by the relay, the one way to foreign addresses. The Company
// is the scope of a request's context.
type transport struct{ send relayv1.SignInServiceClient }

// client returns an HTTP client that follows no redirect and keeps no cookies.
func (t transport) client() *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	out := &relayv1.SendRequestRequest{
		Method: req.Method, Url: req.URL.String(), Headers: map[string]string{}, Timeout: durationpb.New(callTime),
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close() // of memory: nothing can be lost
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	for _, name := range []string{"Accept", "Authorization", "Content-Type"} {
		if v := req.Header.Get(name); v != "" {
			out.Headers[name] = v
		}
	}
	got, err := t.send.SendRequest(req.Context(), out)
	if err != nil {
		return nil, err
	}
	if got.GetFailure() != "" {
		return nil, &outsideError{got.GetFailure(), got.GetDetail()}
	}
	header := http.Header{}
	for name, value := range got.GetHeaders() {
		header.Set(name, value)
	}
	if got.GetContentType() != "" {
		header.Set("Content-Type", got.GetContentType())
	}
	status := int(got.GetStatus())
	return &http.Response{
		Status: strconv.Itoa(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: header, ContentLength: int64(len(got.GetBody())), Body: io.NopCloser(bytes.NewReader(got.GetBody())),
	}, nil
}

// get returns the body of a JSON text; what names it in errors, which never quote it.
// authorization may be empty.
func (t transport) get(ctx context.Context, what, url, authorization string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, unavailable(what, "its URL is malformed")
	}
	req.Header.Set("Accept", "application/json")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := t.client().Do(req)
	if err != nil {
		return nil, unreachable(what, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	contentType := res.Header.Get("Content-Type")
	switch {
	case err != nil:
		return nil, unavailable(what, "the answer is not readable")
	case res.StatusCode != http.StatusOK:
		return nil, unavailable(what, "the answer is "+strconv.Itoa(res.StatusCode)+" instead of 200")
	case contentType != "application/json" && !strings.HasSuffix(contentType, "+json"):
		return nil, unavailable(what, "the answer is not application/json")
	}
	return body, nil
}

// outsideError is a request that came to no answer, between us and the foreign server.
type outsideError struct{ failure, detail string }

// Error names the failure.
func (e *outsideError) Error() string { return e.failure + ": " + e.detail }

// unavailable is an ErrUnavailable about one part of the Company's system.
func unavailable(what, detail string) error {
	return fmt.Errorf("%w: %s: %s", ErrUnavailable, what, detail)
}

// unreachable is an ErrUnavailable for what a client of transport failed with. Of other
// errors than its own it keeps no text: libraries quote what was sent and answered.
func unreachable(what string, err error) error {
	var outside *outsideError
	switch {
	case errors.As(err, &outside):
		return unavailable(what, outside.Error())
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, context.Canceled)
	default:
		return unavailable(what, "the request could not be made")
	}
}
