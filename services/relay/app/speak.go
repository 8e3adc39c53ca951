package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/pieces"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// Kinds of Endpoint: what is spoken there.
const (
	KindWebhook    = "webhook"
	KindOpenAIChat = "openai_chat"
	KindA2A        = "a2a"
)

// Question is what an endpoint is told or asked, once.
type Question struct {
	Endpoint Endpoint
	// Header goes along: signature, headers of the Company's own, Authorization where there is an API key.
	Header      http.Header
	Certificate *tls.Certificate // shown to an endpoint that asks for one; nil for none
	// ID is the webhook-id, the same at every attempt.
	ID             string
	ConversationID string
	Body           []byte
	History        []Turn // the message last; for kinds that keep no context of their own

	// begun is called with the status of each request's answer, before its body; nil where nobody waits for it.
	begun func(status int)
}

// Turn is a message of a conversation, as a chat model gets it.
type Turn struct {
	Role   string // "user" or "company"
	Sender string // "agent" or "human"
	Text   string
	Data   json.RawMessage // JSON object, nil for none
}

// Spoken is what came of a Question.
type Spoken struct {
	// Response says how the exchange went, also where it failed. Body is the beginning
	// of the answer, for the log.
	Response egress.Response
	Answer   webhook.Answer
	// Err is of the egress, or a *problem.Error for an answer that breaks the contract.
	// A status that is no success is not an error.
	Err error
	// Reason says more than status and Err do where it is not empty: in words of ours,
	// stable and safe to show to the Company.
	Reason string
}

const (
	// maxEvidence is how much of an answer is kept for the log, in bytes.
	maxEvidence = 4 << 10
	// maxRefusal is how much of an answer other than 2xx is read, so that the connection can be used again.
	maxRefusal = 64 << 10
	// maxSilence is how long a stream may pause between two pieces.
	maxSilence = time.Minute

	jsonType   = "application/json"
	streamType = "text/event-stream"
)

// speak asks once. Pieces of the first message's text go to delta as they come,
// never after it has returned; delta is nil where nobody wants them.
func (a *App) speak(ctx context.Context, q Question, delta func(text string)) Spoken {
	p := pieces.New(delta)
	var out Spoken
	switch q.Endpoint.Kind {
	case KindOpenAIChat:
		out = a.translated(ctx, q, p, a.speakChat)
	case KindA2A:
		out = a.translated(ctx, q, p, a.speakA2A)
	default:
		out = a.speakWebhook(ctx, q, p)
	}
	p.Stop(out.Err == nil)
	return out
}

// translated has speak say a message in a protocol other than ours, unless there is
// nothing in it to say there.
func (a *App) translated(ctx context.Context, q Question, p *pieces.Joiner, speak func(context.Context, Question, told, *pieces.Joiner) Spoken) Spoken {
	t, err := readBody(q.Body)
	if err != nil {
		return Spoken{Err: err}
	}
	if t.empty() {
		return nothingAsked()
	}
	ctx, cancel := context.WithTimeout(ctx, q.Endpoint.Whole())
	defer cancel()
	return speak(ctx, q, t, p)
}

// nothingAsked is the outcome of a message that only updates the context.
func nothingAsked() Spoken {
	return Spoken{Response: egress.Response{Status: http.StatusNoContent}, Reason: "nothing to ask"}
}

func (a *App) speakWebhook(ctx context.Context, q Question, p *pieces.Joiner) Spoken {
	accept := jsonType
	if p.Wanted() {
		accept += ", " + streamType
	}
	res, err := a.ask(ctx, q, request{url: q.Endpoint.URL, header: q.Header, body: q.Body, accept: accept})
	if err != nil {
		return Spoken{Response: res.Answer(nil), Err: err}
	}
	defer res.Body.Close()
	if !success(res.Status) {
		return refused(res)
	}
	if res.Status == http.StatusOK && res.ContentType == streamType {
		stream := webhook.NewStreamAnswer(p.Add)
		seen, err := follow(res, stream)
		out := Spoken{Response: res.Answer(seen), Err: err}
		if err == nil {
			out.Answer, out.Err = stream.Close()
		}
		return out
	}
	body, err := readWhole(res)
	out := Spoken{Response: res.Answer(evidence(body)), Err: err}
	if err == nil {
		out.Answer, out.Err = webhook.ParseAnswer(res.Status, res.ContentType, body)
	}
	return out
}

// request is one of the requests that a Question needs.
type request struct {
	url    string
	header http.Header
	body   []byte
	accept string
}

// ask posts r and returns when the answer begins.
func (a *App) ask(ctx context.Context, q Question, r request) (*egress.StreamResponse, error) {
	header := r.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Accept", r.accept)
	res, err := a.out.Stream(ctx, egress.StreamRequest{
		URL: r.url, Header: header, Body: r.body, MaxBytes: egress.MaxStreamBytes, AckTimeout: q.Endpoint.Ack(), IdleTimeout: maxSilence,
		Timeout: q.Endpoint.Whole(), Traced: true, Certificate: q.Certificate,
	})
	if err == nil && q.begun != nil {
		q.begun(res.Status)
	}
	return res, err
}

// unsigned returns h without what only takers of webhooks want. Names are compared in
// lower case, as the headers of webhooks are written.
func unsigned(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		switch strings.ToLower(name) {
		case webhook.HeaderID, webhook.HeaderTimestamp, webhook.HeaderSignature:
		default:
			out[name] = values
		}
	}
	return out
}

func success(status int) bool { return status >= 200 && status <= 299 }

// refused reads what stands beside a status that is no success.
func refused(res *egress.StreamResponse) Spoken {
	// The status says all there is to say; a text that can't be read must not hide it.
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	return Spoken{Response: res.Answer(evidence(body))}
}

// readWhole reads an answer that is one document.
func readWhole(res *egress.StreamResponse) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, webhook.MaxAnswer+1))
	if err == nil && len(body) > webhook.MaxAnswer {
		err = &egress.Error{Kind: egress.TooLarge, Detail: "the answer is larger than allowed"}
	}
	return body, err
}

// reader reads a streamed answer. What it refuses is final.
type reader interface {
	Write(p []byte) error
	Done() bool // the rest doesn't matter
}

// follow gives a streamed answer to its reader as it comes, and returns the beginning
// for the log.
func follow(res *egress.StreamResponse, to reader) ([]byte, error) {
	seen := make([]byte, 0, maxEvidence)
	buf := make([]byte, 8<<10)
	for !to.Done() {
		n, err := res.Body.Read(buf)
		seen = append(seen, buf[:min(n, maxEvidence-len(seen))]...)
		if err := to.Write(buf[:n]); err != nil {
			return seen, err
		}
		if err == io.EOF {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func evidence(body []byte) []byte { return body[:min(len(body), maxEvidence)] }
