package egress

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"
)

// Defaults of Post.
const (
	DefaultPostBytes = 256 << 10
	DefaultPostTime  = 15 * time.Second
)

// PostRequest is a POST.
type PostRequest struct {
	URL         string
	Header      http.Header // Host, Content-Length and hop-by-hop headers have no effect
	ContentType string      // "" means application/json
	Body        []byte
	MaxBytes    int64         // of the answer's body; zero means 256 KiB, more than 1 MiB is cut to 1 MiB
	Timeout     time.Duration // of everything; zero means 15 s, at most 5 min
	// Traced tells the receiver the trace (header traceparent), for one that belongs to
	// the same piece of work. Otherwise nobody outside learns of traces.
	Traced bool
	// Certificate is shown to a server that asks for one; nil for none.
	Certificate *tls.Certificate
}

// Post sends a POST and returns the answer as [Client.Fetch] does. It sends once:
// when an error comes back the server may or may not have got the request.
func (c *Client) Post(ctx context.Context, r PostRequest) (Response, error) {
	return c.do(ctx, r.exchange())
}

func (r PostRequest) exchange() exchange {
	h := sendable(r.Header)
	h.Set("Content-Type", "application/json")
	if r.ContentType != "" {
		h.Set("Content-Type", r.ContentType)
	}
	if h.Get("Accept") == "" {
		h.Set("Accept", "application/json")
	}
	body := r.Body
	if body == nil {
		body = []byte{}
	}
	return exchange{
		method:  http.MethodPost,
		url:     r.URL,
		header:  h,
		body:    body,
		cap:     clamp(r.MaxBytes, DefaultPostBytes, MaxFetchBytes),
		timeout: clamp(r.Timeout, DefaultPostTime, MaxTime),
		traced:  r.Traced,
		shown:   r.Certificate,
	}
}

// sendable returns h without what only the connection itself may say.
func sendable(h http.Header) http.Header {
	out := make(http.Header, len(h)+2)
	for name, values := range h {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Te", "Expect":
		default:
			out[name] = values
		}
	}
	return out
}
