package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

var errAnswer = errors.New("the agent's answer is no JSON-RPC response of A2A")

// Answer is what an agent has said so far, by one response or a stream of them.
type Answer struct {
	State State
	// Task is the task that goes on where State is Open; "" where a message was all.
	Task string

	message   *wireMessage
	status    *wireMessage
	history   []wireMessage
	artifacts []artifact
	delta     func(string)
}

// artifact is an output of a task. Chunks that were appended make one text.
type artifact struct {
	id    string
	parts []wirePart
}

// NewAnswer makes an Answer of nothing yet. Pieces of the first artifact's text go to
// delta as they come; nil for nobody.
func NewAnswer(delta func(string)) *Answer {
	if delta == nil {
		delta = func(string) {}
	}
	return &Answer{delta: delta}
}

// Take adds a JSON-RPC response. It returns an [Error] for one that reports an error.
func (a *Answer) Take(body []byte) error {
	r, err := parseResponse(body)
	if err != nil {
		return err
	}
	switch {
	case r.Message != nil:
		a.message, a.State = r.Message, Completed
	case r.Task != nil:
		a.task(*r.Task)
	case r.StatusUpdate != nil:
		a.identify(r.StatusUpdate.TaskID)
		a.progress(r.StatusUpdate.Status)
	case r.ArtifactUpdate != nil:
		a.identify(r.ArtifactUpdate.TaskID)
		a.output(r.ArtifactUpdate.Artifact, r.ArtifactUpdate.Append)
	default:
		return errAnswer
	}
	return nil
}

// task takes a task as it is now, which holds all that came before.
func (a *Answer) task(t wireTask) {
	a.identify(t.ID)
	a.history = t.History
	for _, one := range t.Artifacts {
		a.output(one, false)
	}
	a.progress(t.Status)
}

func (a *Answer) identify(task string) {
	if task != "" {
		a.Task = task
	}
}

func (a *Answer) progress(s wireStatus) {
	// What an agent says of its progress is not its answer; what it says at the end is.
	a.State, a.status = parseState(s.State), s.Message
}

const maxArtifacts = 50

func (a *Answer) output(w wireArtifact, more bool) {
	at := -1
	for i, one := range a.artifacts {
		if one.id == w.ArtifactID {
			at = i
		}
	}
	if at < 0 {
		if len(a.artifacts) == maxArtifacts {
			return
		}
		a.artifacts = append(a.artifacts, artifact{id: w.ArtifactID})
		at = len(a.artifacts) - 1
	}
	one := &a.artifacts[at]
	piece, grown := text(w.Parts, ""), true
	if !more && len(one.parts) > 0 {
		piece, grown = strings.CutPrefix(piece, one.text())
		one.parts = nil
	}
	one.parts = append(one.parts, w.Parts...)
	// Of a text that is replaced by another no pieces can be told; the message will have it.
	if at == 0 && grown && piece != "" {
		a.delta(piece)
	}
}

func (a artifact) text() string { return text(a.parts, "") }

// Over reports that the agent says nothing more of its own.
func (a *Answer) Over() bool { return a.State != Open }

// Messages returns what the agent said: its artifacts in their order, then what it says
// of the end. data of several parts is a list under "items".
func (a *Answer) Messages() ([]conversation.CompanyMessage, error) {
	var out []conversation.CompanyMessage
	said := map[string]bool{}
	add := func(parts []wirePart, between string) error {
		m, ok, err := message(parts, between)
		if err != nil || !ok {
			return err
		}
		// Many agents repeat an artifact as the status at the end.
		if key := m.Text() + "\x00" + string(m.Data()); !said[key] {
			said[key] = true
			out = append(out, m)
		}
		return nil
	}
	for _, one := range a.artifacts {
		if err := add(one.parts, ""); err != nil {
			return nil, err
		}
	}
	for _, m := range []*wireMessage{a.message, a.status} {
		if m == nil {
			continue
		}
		if err := add(m.Parts, "\n"); err != nil {
			return nil, err
		}
	}
	if len(out) > 0 || len(a.history) == 0 {
		return out, nil
	}
	// Some agents answer in the history alone.
	if last := a.history[len(a.history)-1]; last.byAgent() {
		return out, add(last.Parts, "\n")
	}
	return out, nil
}

func text(parts []wirePart, between string) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Text == nil || *p.Text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(between)
		}
		b.WriteString(*p.Text)
	}
	return b.String()
}

// message makes one message of parts; false where they hold nothing.
func message(parts []wirePart, between string) (conversation.CompanyMessage, bool, error) {
	words := strings.TrimSpace(text(parts, between))
	data, err := dataOf(parts)
	if err != nil || words == "" && data == nil {
		return conversation.CompanyMessage{}, false, err
	}
	m, err := conversation.ParseCompanyMessage("", words, data)
	return m, err == nil, err
}

type fileLink struct {
	URL       string `json:"url"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type,omitempty"`
}

// dataOf returns the one data object of parts, and otherwise an object that lists them.
// Files are told by their addresses; one sent whole is left out.
func dataOf(parts []wirePart) ([]byte, error) {
	var items []json.RawMessage
	var files []fileLink
	for _, p := range parts {
		switch {
		case len(p.Data) > 0 && string(p.Data) != "null":
			items = append(items, p.Data)
		case p.URL != "":
			files = append(files, fileLink{URL: p.URL, Name: p.Filename, MediaType: p.MediaType})
		case p.File != nil && p.File.URI != "":
			files = append(files, fileLink{URL: p.File.URI, Name: p.File.Name, MediaType: p.File.MimeType})
		}
	}
	if len(files) == 0 && len(items) == 0 {
		return nil, nil
	}
	if len(files) == 0 && len(items) == 1 && bytes.HasPrefix(bytes.TrimSpace(items[0]), []byte("{")) {
		return items[0], nil
	}
	return json.Marshal(struct {
		Items []json.RawMessage `json:"items,omitempty"`
		Files []fileLink        `json:"files,omitempty"`
	}{items, files})
}

// Stream reads a streamed answer.
type Stream struct {
	answer  *Answer
	events  *sse.Reader
	failure error
}

// NewStream makes a Stream that adds to a.
func NewStream(a *Answer) *Stream {
	return &Stream{answer: a, events: sse.NewReader(sse.Limits{Line: 1 << 20, Event: 1 << 20})}
}

// Write takes the next bytes. An error is final.
func (s *Stream) Write(p []byte) error {
	if s.failure == nil {
		s.failure = s.events.Feed(p, func(e sse.Event) error {
			if s.answer.Over() {
				return nil
			}
			return s.answer.Take(e.Data)
		})
	}
	return s.failure
}

// Done reports that the agent says nothing more of its own, so that nothing more need be read.
func (s *Stream) Done() bool { return s.answer.Over() }
