package egress

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Limits of Fetch and Post.
const (
	DefaultFetchBytes = 64 << 10
	MaxFetchBytes     = 1 << 20
	DefaultFetchTime  = 5 * time.Second
	MaxTime           = 5 * time.Minute
)

// Request is a GET.
type Request struct {
	URL      string
	MaxBytes int64         // of the answer's body; zero means 64 KiB, more than 1 MiB is cut to 1 MiB
	Timeout  time.Duration // of everything from look-up to last byte; zero means 5 s, at most 5 min
	Accept   string        // "" means application/json
}

// Fetch sends a GET. Any answer is a Response, redirects and errors of the server
// included; the body of one that is not 2xx may be missing. Without an answer, or
// when the body of a 2xx breaks the limits, the error is an [Error].
func (c *Client) Fetch(ctx context.Context, r Request) (Response, error) {
	accept := r.Accept
	if accept == "" {
		accept = "application/json"
	}
	return c.do(ctx, exchange{
		method:  http.MethodGet,
		url:     r.URL,
		header:  http.Header{"Accept": {accept}},
		cap:     clamp(r.MaxBytes, DefaultFetchBytes, MaxFetchBytes),
		timeout: clamp(r.Timeout, DefaultFetchTime, MaxTime),
	})
}

// FetchFollowing is Fetch, except that it follows up to hops redirects. Every hop
// has to pass [Guard.CheckURL], so a redirect to http or to the inside ends the
// chain with an error; the timeout is one for all hops together.
func (c *Client) FetchFollowing(ctx context.Context, r Request, hops int) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, clamp(r.Timeout, DefaultFetchTime, MaxTime))
	defer cancel()
	seen := make(map[string]bool, hops+1)
	for {
		resp, err := c.Fetch(ctx, r)
		if err != nil {
			return resp, err
		}
		if !isRedirect(resp.Status) {
			return resp, nil
		}
		seen[resp.URL] = true
		next := resp.location()
		if next == "" {
			return resp, newError(Redirect, "the server answered with a redirect without a usable Location", nil)
		}
		u, err := c.guard.CheckURL(next)
		if err != nil {
			return resp, newError(Redirect, "the redirect leads to a URL that is not followed: "+DetailOf(err), err)
		}
		if seen[u.String()] {
			return resp, newError(Redirect, "the redirects go round in a loop", nil)
		}
		if len(seen) > hops {
			return resp, newError(Redirect, "more than "+strconv.Itoa(hops)+" redirects", nil)
		}
		r.URL = next
	}
}

func statusText(status int) string { return strconv.Itoa(status) }

// clamp returns def for zero or less, and at most limit.
func clamp[T int64 | time.Duration](v, def, limit T) T {
	if v <= 0 {
		return def
	}
	return min(v, limit)
}
