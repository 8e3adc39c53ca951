package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

const (
	streamType = "text/event-stream"
	deltaEvent = "text-delta"
	// quietTime is how long a Company that says to be idle may take to say something else.
	quietTime = waitSeconds * time.Second

	// silence is how long a stream may say nothing at all, comments included, before
	// it counts as broken.
	silence = 75 * time.Second

	frameLimit   = 2 << 20 // one event of a stream
	piecesLimit  = 256 << 10
	writtenLimit = 16 // messages shown while they are being written, at once
)

// An eventStream is an answer that goes on (7.6).
type eventStream struct {
	body   io.ReadCloser
	cancel context.CancelFunc
	reader *sse.Reader
	buf    []byte
}

func newEventStream(body io.ReadCloser, cancel context.CancelFunc) *eventStream {
	return &eventStream{
		body: body, cancel: cancel, buf: make([]byte, 16<<10),
		reader: sse.NewReader(sse.Limits{Line: frameLimit, Event: frameLimit}),
	}
}

func isEventStream(res *http.Response) bool {
	name, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return res.StatusCode == http.StatusOK && err == nil && name == streamType
}

// A streamEndError is how a stream ended that may be taken up again.
type streamEndError struct{ cause error }

func (e streamEndError) Error() string {
	if e.cause == nil || errors.Is(e.cause, io.EOF) {
		return "the Company ended it"
	}
	return "it broke off"
}

// pull reads what comes next and gives its events to each. It waits for at most limit
// and returns a streamEndError when the stream is over.
func (s *eventStream) pull(limit time.Duration, each func(sse.Event) error) error {
	timer := time.AfterFunc(limit, s.cancel)
	n, err := s.body.Read(s.buf)
	timer.Stop()
	if bad := s.reader.Feed(s.buf[:n], each); bad != nil {
		return bad
	}
	if err != nil {
		return streamEndError{err}
	}
	return nil
}

func (s *eventStream) close() {
	s.cancel()
	_ = s.body.Close()
}

// parseFrame returns the event in a frame. Its id has to be the stream's, or a
// reconnect would go on somewhere else.
func parseFrame(f sse.Event) (json.RawMessage, error) {
	var head struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(f.Data, &head); err != nil {
		return nil, fmt.Errorf("an event of the stream is unreadable: %w", err)
	}
	if head.ID != f.ID {
		return nil, fmt.Errorf("event %.80q has the id %.80q in the stream", head.ID, f.ID)
	}
	return f.Data, nil
}

// written are the messages that are being written: what came of each so far. Nothing
// is done with it but showing it (poppy-0.1/7.6#12).
type written map[string]int

// add takes a text-delta event, and returns the piece to show.
func (w written) add(f sse.Event) (id, text string) {
	var in struct {
		MessageID string `json:"message_id"`
		Text      string `json:"text"`
	}
	if json.Unmarshal(f.Data, &in) != nil || !validID(in.MessageID) || in.Text == "" {
		return "", ""
	}
	before, known := w[in.MessageID]
	if !known && len(w) >= writtenLimit || before+len(in.Text) > piecesLimit {
		return "", ""
	}
	w[in.MessageID] = before + len(in.Text)
	return in.MessageID, in.Text
}
