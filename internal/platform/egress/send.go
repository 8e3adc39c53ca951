package egress

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"
)

// SendRequest is a GET or a POST of a client at a foreign server, such as an OAuth
// client. Of headers it sends those of Header, and the ones that every request has.
type SendRequest struct {
	Method   string // GET or POST
	URL      string
	Header   http.Header   // as of PostRequest
	Body     []byte        // of a POST
	MaxBytes int64         // of the answer's body; zero means 64 KiB, more than 1 MiB is cut to 1 MiB
	Timeout  time.Duration // of everything; zero means 5 s, at most 5 min
	// Certificate is shown to a server that asks for one; nil for none.
	Certificate *tls.Certificate
}

// Send sends a request and returns the answer as [Client.Fetch] does, except that it
// adds no header. It sends once: when an error comes back the server may or may not
// have got the request.
func (c *Client) Send(ctx context.Context, r SendRequest) (Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return Response{}, invalid("the method is neither GET nor POST")
	}
	var body []byte
	if r.Method == http.MethodPost {
		// Not nil: a POST without a body has a length, 0.
		body = append([]byte{}, r.Body...)
	}
	return c.do(ctx, exchange{
		method:  r.Method,
		url:     r.URL,
		header:  sendable(r.Header),
		body:    body,
		cap:     clamp(r.MaxBytes, DefaultFetchBytes, MaxFetchBytes),
		timeout: clamp(r.Timeout, DefaultFetchTime, MaxTime),
		shown:   r.Certificate,
	})
}
