package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

// Answer is what the model said.
type Answer struct {
	Text  string // without spaces at its ends; "" where it said nothing
	Calls []Call
	// Cut says that the text stops before its end: at the model's limit, at ours, or at a
	// filter. It then ends with an ellipsis.
	Cut bool
	// Filtered says that a content filter stopped the model.
	Filtered bool
}

// ErrCut is a stream that ended before the model had.
var ErrCut = errors.New("the model's answer broke off")

// Error is a failure that the server reports in place of an answer.
type Error struct {
	Code string // its code or type, "" where it gives none that may be shown
}

// Error implements error.
func (e *Error) Error() string { return "the model's server reports an error: " + e.Code }

// Bounds of an answer.
const (
	maxCalls = 16
	maxLine  = 1 << 20
	ellipsis = " …"
	maxText  = conversation.MaxText - 2 // characters; the ellipsis fits in
)

type wireChunk struct {
	Choices []wireChoice    `json:"choices"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	Index        int         `json:"index"`
	Delta        wireContent `json:"delta"`
	Message      wireContent `json:"message"`
	FinishReason string      `json:"finish_reason"`
}

type wireContent struct {
	Content   string     `json:"content"`
	Refusal   string     `json:"refusal"`
	ToolCalls []wireCall `json:"tool_calls"`
}

type wireCall struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Stream reads a streamed answer.
type Stream struct {
	delta   func(string)
	events  *sse.Reader
	text    strings.Builder
	chars   int
	full    bool // no more text is taken
	calls   []Call
	finish  string
	done    bool
	failure error
}

// NewStream makes a Stream. Pieces of the text go to delta as they come; nil for nobody.
func NewStream(delta func(string)) *Stream {
	if delta == nil {
		delta = func(string) {}
	}
	return &Stream{delta: delta, events: sse.NewReader(sse.Limits{Line: maxLine, Event: maxLine})}
}

// Write takes the next bytes. An error is final: of the stream's form, or an [Error].
func (s *Stream) Write(p []byte) error {
	if s.failure == nil {
		s.failure = s.events.Feed(p, s.event)
	}
	return s.failure
}

// Done reports that the model has ended its answer, so that nothing more need be read.
func (s *Stream) Done() bool { return s.done }

// Close returns the answer. A stream that stopped before the model had ended is ErrCut.
func (s *Stream) Close() (Answer, error) {
	switch {
	case s.failure != nil:
		return Answer{}, s.failure
	case !s.done && s.finish == "": // some servers leave the [DONE] out
		return Answer{}, ErrCut
	}
	return s.answer(), nil
}

func (s *Stream) event(e sse.Event) error {
	if s.done {
		return nil
	}
	if string(e.Data) == "[DONE]" {
		s.done = true
		return nil
	}
	var c wireChunk
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return errors.New("a piece of the model's answer is no JSON object")
	}
	if e.Name == "error" && c.Error == nil {
		return &Error{}
	}
	return s.chunk(c, func(c wireChoice) wireContent { return c.Delta })
}

func (s *Stream) chunk(c wireChunk, content func(wireChoice) wireContent) error {
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return parseError(c.Error)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		said := content(choice)
		s.say(said.Content)
		s.say(said.Refusal)
		for _, call := range said.ToolCalls {
			s.call(call)
		}
		if choice.FinishReason != "" {
			s.finish = choice.FinishReason
		}
	}
	return nil
}

// say takes a piece of text, as far as a message has room for it.
func (s *Stream) say(piece string) {
	if piece == "" || s.full {
		return
	}
	if n := utf8.RuneCountInString(piece); s.chars+n > maxText {
		piece, s.full = string([]rune(piece)[:maxText-s.chars]), true
	}
	s.chars += utf8.RuneCountInString(piece)
	s.text.WriteString(piece)
	if piece != "" {
		s.delta(piece)
	}
}

// call takes a piece of a tool's call. The pieces of one call share an index; servers
// that send calls whole may leave it out.
func (s *Stream) call(w wireCall) {
	at := len(s.calls)
	if w.Index != nil {
		at = *w.Index
	} else if w.ID == "" && w.Function.Name == "" {
		at-- // goes on with the one before
	}
	if at < 0 || at > len(s.calls) || at >= maxCalls {
		return
	}
	if at == len(s.calls) {
		s.calls = append(s.calls, Call{})
	}
	c := &s.calls[at]
	if c.Name == "" { // some servers repeat it with every piece
		c.Name = w.Function.Name
	}
	if len(c.Arguments)+len(w.Function.Arguments) <= maxArguments {
		c.Arguments += w.Function.Arguments
	}
}

func (s *Stream) answer() Answer {
	a := Answer{Text: strings.TrimSpace(s.text.String()), Filtered: s.finish == "content_filter"}
	for _, c := range s.calls {
		if c.Name != "" {
			a.Calls = append(a.Calls, c)
		}
	}
	if a.Cut = s.full || a.Filtered || s.finish == "length"; a.Cut && a.Text != "" {
		a.Text += ellipsis
	}
	return a
}

// ParseAnswer reads an answer that came whole, from a server that doesn't stream.
func ParseAnswer(body []byte) (Answer, error) {
	var c wireChunk
	if err := json.Unmarshal(body, &c); err != nil {
		return Answer{}, errors.New("the model's answer is no JSON object")
	}
	s := NewStream(nil)
	if err := s.chunk(c, func(c wireChoice) wireContent { return c.Message }); err != nil {
		return Answer{}, err
	}
	if len(c.Choices) == 0 {
		return Answer{}, errors.New("the model's answer has no choices")
	}
	return s.answer(), nil
}

// ErrorCode returns the code or type of the error in the body of a status that is no
// success, "" where there is none that may be shown.
func ErrorCode(body []byte) string {
	var w struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &w) != nil {
		return ""
	}
	return parseError(w.Error).Code
}

func parseError(raw json.RawMessage) *Error {
	var w struct {
		Code any    `json:"code"` // a number at some servers
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &w) != nil {
		return &Error{}
	}
	if code, _ := w.Code.(string); plain(code) {
		return &Error{Code: code}
	}
	if plain(w.Type) {
		return &Error{Code: w.Type}
	}
	return &Error{}
}

// plain reports a code that may be shown as it is.
func plain(code string) bool {
	return code != "" && len(code) <= 60 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}
