package webhook

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

// MaxStream caps a streamed answer, in bytes. It is more than MaxAnswer since each word
// may come in an event of its own, and once more in the whole message.
const MaxStream = 8 * MaxAnswer

// The events of a streamed answer; others are ignored. One without a name is a message.
const (
	streamDelta   = "text-delta" // {"text"}: a piece of the message that comes next
	streamMessage = "message"    // a whole message: replaces its pieces
	streamAnswer  = "answer"     // what a JSON answer holds
	streamDone    = "done"       // the end, at which pieces are a whole message
	streamError   = "error"      // the backend can't go on
)

// StreamAnswer reads an answer that comes as server-sent events, in pieces of any
// size. It trusts no text that the stream doesn't end soundly: half a message must
// never pass for a whole one.
type StreamAnswer struct {
	delta    func(text string)
	reader   *sse.Reader
	err      error
	answer   Answer
	pieces   strings.Builder // of the message that comes next
	length   int             // of pieces, in characters
	answered bool
	done     bool
	closed   bool
}

// NewStreamAnswer makes a StreamAnswer that passes on each piece of the first message's
// text as it comes, to be shown and not to be acted on. delta may be nil.
func NewStreamAnswer(delta func(text string)) *StreamAnswer {
	if delta == nil {
		delta = func(string) {}
	}
	return &StreamAnswer{delta: delta, reader: sse.NewReader(sse.Limits{
		Line: MaxAnswer + len("data: "), Event: MaxAnswer + 1, Total: MaxStream, // the data and a line's end
	})}
}

// errDone ends the reading; it is no failure.
var errDone = errors.New("done")

// Write takes the next bytes. Its error, a problem with InvalidAnswer, is final. What
// follows the end of the answer is ignored.
func (s *StreamAnswer) Write(p []byte) error {
	if s.done || s.err != nil {
		return s.err
	}
	err := s.reader.Feed(p, s.take)
	var known *problem.Error
	switch {
	case err == nil:
	case errors.Is(err, errDone):
		s.done = true
	case errors.As(err, &known):
		s.err = known
	default:
		s.err = problem.New(problem.TooLarge, InvalidAnswer, "", "the answer breaks a limit: %s", limitOf(err))
	}
	return s.err
}

func limitOf(err error) string {
	switch {
	case errors.Is(err, sse.ErrTotal):
		return "the stream is too long"
	case errors.Is(err, sse.ErrLine):
		return "a line is too long"
	}
	return "an event is too large"
}

// Done reports whether the backend has ended its answer, so that no more has to be read.
func (s *StreamAnswer) Done() bool { return s.done }

// Close returns the whole answer, once the stream has ended or Done is true. Each call
// returns the same.
func (s *StreamAnswer) Close() (Answer, error) {
	if !s.closed && s.err == nil {
		s.err = s.end()
	}
	s.closed = true
	if s.err != nil {
		return Answer{}, s.err
	}
	return s.answer, nil
}

func (s *StreamAnswer) end() error {
	whole := s.answered || len(s.answer.Messages) > 0
	if !s.done && (s.reader.Unfinished() || s.pieces.Len() > 0 || !whole) {
		return badAnswer("the stream ends in the middle of the answer")
	}
	if err := s.join(); err != nil {
		return err
	}
	return s.answer.check()
}

func (s *StreamAnswer) take(e sse.Event) error {
	switch e.Name {
	case streamDelta:
		return s.takePiece(e.Data)
	case streamMessage:
		m, err := parseObject("a message event", e.Data)
		if err != nil {
			return err
		}
		s.drop()
		return s.answer.addMessage(parseMessage(m))
	case streamAnswer:
		return s.takeAnswer(e.Data)
	case streamDone:
		return errDone
	case streamError:
		return badAnswer("the stream says that the answer failed")
	}
	return nil
}

func (s *StreamAnswer) takePiece(raw []byte) error {
	m, err := parseObject("a text-delta event", raw)
	if err != nil {
		return err
	}
	if m["text"].Kind() != jsonx.String {
		return badAnswer("a text-delta event has no text")
	}
	text := m["text"].Text()
	if s.length += utf8.RuneCountInString(text); s.length > conversation.MaxText {
		return problem.New(problem.TooLarge, InvalidAnswer, "", "the pieces have more than %d characters", conversation.MaxText)
	}
	s.pieces.WriteString(text)
	if text != "" && len(s.answer.Messages) == 0 && !s.answered {
		s.delta(text)
	}
	return nil
}

func (s *StreamAnswer) takeAnswer(raw []byte) error {
	m, err := parseObject("the answer event", raw)
	if err != nil {
		return err
	}
	if s.answered {
		return badAnswer("there is more than one answer event")
	}
	s.answered = true
	if isThere(m["messages"]) {
		s.drop()
	} else if err := s.join(); err != nil { // the answer does, and what it says was in pieces
		return err
	}
	return s.answer.add(m)
}

// join makes a message of the pieces, if there are any.
func (s *StreamAnswer) join() error {
	if s.pieces.Len() == 0 {
		return nil
	}
	text := s.pieces.String()
	s.drop()
	return s.answer.addMessage(conversation.ParseCompanyMessage("", text, nil))
}

func (s *StreamAnswer) drop() {
	s.pieces.Reset()
	s.length = 0
}
