package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode"
)

// A Step is one thing the agent did or checked, with the section of the protocol it belongs to.
type Step struct {
	Number   int       `json:"step"`
	Section  string    `json:"section"`
	Title    string    `json:"title"`
	OK       bool      `json:"ok"`
	Detail   string    `json:"detail,omitempty"`
	Exchange *Exchange `json:"exchange,omitempty"`
	Message  *Message  `json:"message,omitempty"`
	Link     string    `json:"link,omitempty"` // for the User's browser
}

// An Exchange is one HTTP request with its response, as sent and received. Tokens,
// proofs and assertions are replaced unless the agent was told to show secrets.
type Exchange struct {
	Request  RequestView   `json:"request"`
	Response *ResponseView `json:"response,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// RequestView is what went out.
type RequestView struct {
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Headers http.Header `json:"headers,omitempty"`
	Body    string      `json:"body,omitempty"`
}

// ResponseView is what came back; FromCache says that no request was made for it.
type ResponseView struct {
	Status    int         `json:"status"`
	Headers   http.Header `json:"headers,omitempty"`
	Body      string      `json:"body,omitempty"`
	FromCache bool        `json:"from_cache,omitempty"`
}

// A Reporter is told each step when it is over. Calls come from one goroutine at a time.
type Reporter interface {
	Report(step Step)
}

// A PieceReporter is a Reporter that also shows messages while they are being written
// (7.6). What it showed of one is replaced by the message that is reported later.
type PieceReporter interface {
	Reporter
	// Piece is the next piece of the company's message id.
	Piece(company, id, text string)
	// Drop says that the pieces so far belong to no message that will come in full.
	Drop()
}

// Discard is the Reporter that drops every step.
type Discard struct{}

// Report does nothing.
func (Discard) Report(Step) {}

// JSONReporter writes one JSON object a line.
type JSONReporter struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewJSONReporter writes to w; errors of w end the output quietly, as a closed pipe does.
func NewJSONReporter(w io.Writer) *JSONReporter {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &JSONReporter{enc: enc}
}

// Report writes step as one line.
func (r *JSONReporter) Report(step Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.enc.Encode(step)
	}
}

// TextReporter writes steps for people; with quiet set, only what the Company said. It
// shows messages while they are being written.
type TextReporter struct {
	mu    sync.Mutex
	w     io.Writer
	quiet bool

	writing string // the message whose pieces end the output, "" for none
	shown   string // of it
}

// NewTextReporter writes to w.
func NewTextReporter(w io.Writer, quiet bool) *TextReporter {
	return &TextReporter{w: w, quiet: quiet}
}

// Report writes step as one line, or the Company's message as a paragraph.
func (r *TextReporter) Report(step Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step.Message != nil {
		r.message(step)
		return
	}
	if r.quiet {
		return
	}
	r.breakOff()
	mark := "ok  "
	if !step.OK {
		mark = "FAIL"
	}
	line := fmt.Sprintf("%s  %-5s %s", mark, "§"+step.Section, step.Title)
	if step.Detail != "" {
		line += ": " + step.Detail
	}
	_, _ = fmt.Fprintln(r.w, printable(line))
}

// Piece shows the next piece of a message that is being written.
func (r *TextReporter) Piece(company, id, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing != id {
		r.breakOff()
		r.writing = id
		if !r.quiet {
			// Only the Company's agent is shown while it writes (7.6).
			_, _ = fmt.Fprintf(r.w, "\n%s (agent): ", printable(company))
		}
	}
	text = printable(text)
	r.shown += text
	_, _ = io.WriteString(r.w, text)
}

// Drop ends the line of a message that won't come in full.
func (r *TextReporter) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breakOff()
}

// breakOff lets something else than the rest of the message follow its pieces.
func (r *TextReporter) breakOff() {
	if r.writing != "" {
		_, _ = fmt.Fprintln(r.w, " […]")
	}
	r.writing, r.shown = "", ""
}

// finish writes what the pieces lack of their message, and reports whether they were
// the beginning of it: else it has to be shown as a whole.
func (r *TextReporter) finish(m *Message) bool {
	rest, ok := strings.CutPrefix(printable(m.Text), r.shown)
	if r.writing == "" || r.writing != m.ID || !ok || m.Sender != senderAgent {
		return false
	}
	_, _ = fmt.Fprintln(r.w, rest)
	r.writing, r.shown = "", ""
	return true
}

func (r *TextReporter) message(step Step) {
	m := step.Message
	if m.Role == roleCompany && r.finish(m) {
		r.data(m)
		return
	}
	if m.Role == roleCompany || !r.quiet {
		r.breakOff()
	}
	if m.Role != roleCompany {
		if !r.quiet {
			_, _ = fmt.Fprintf(r.w, "\nYou (%s): %s\n", printable(m.Sender), printable(m.Text))
		}
		return
	}
	if r.quiet {
		_, _ = fmt.Fprintln(r.w, printable(m.Text))
		return
	}
	_, _ = fmt.Fprintf(r.w, "\n%s (%s): %s\n", printable(step.Detail), printable(m.Sender), printable(m.Text))
	r.data(m)
}

func (r *TextReporter) data(m *Message) {
	if len(m.Data) > 0 && !r.quiet {
		_, _ = fmt.Fprintf(r.w, "  data: %s\n", printable(string(m.Data)))
	}
}

// printable drops what could steer a terminal: everything here may hold text that
// a Company chose, and an escape sequence in it could hide or forge other lines.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case unicode.IsControl(c):
			return -1
		case c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069:
			return -1
		default:
			return c
		}
	}, s)
}
