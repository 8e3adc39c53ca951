package poppy

import (
	"encoding/json"
	"net/http"
)

// Stream writes an answer piece by piece. Only End makes it count: without it the
// message comes again.
type Stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// NewStream begins the answer to a webhook whose Accept field lists text/event-stream.
func NewStream(w http.ResponseWriter) (*Stream, error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	s := &Stream{w, http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	return s, s.c.Flush()
}

// Text sends a piece of the next message.
func (s *Stream) Text(piece string) error {
	return s.event("text-delta", map[string]string{"text": piece})
}

// Message sends a whole message, in place of the pieces before it.
func (s *Stream) Message(m ReplyMessage) error { return s.event("message", m) }

// End ends the answer; r is what else is said and done, and may be the zero Reply.
func (s *Stream) End(r Reply) error {
	if r.Authorization != nil || r.RequestUser != nil || r.HandOff != nil || r.Close || len(r.Messages) > 0 {
		if err := s.event("answer", r); err != nil {
			return err
		}
	}
	return s.event("done", struct{}{})
}

// Fail gives the attempt up: the message comes again.
func (s *Stream) Fail() error { return s.event("error", struct{}{}) }

func (s *Stream) event(name string, data any) error {
	raw, err := json.Marshal(data) // has no line break
	if err != nil {
		return err
	}
	if _, err := s.w.Write([]byte("event: " + name + "\ndata: " + string(raw) + "\n\n")); err != nil {
		return err
	}
	return s.c.Flush()
}
