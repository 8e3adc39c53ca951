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

// TextReporter writes steps for people; with quiet set, only what the Company said.
type TextReporter struct {
	mu    sync.Mutex
	w     io.Writer
	quiet bool
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

func (r *TextReporter) message(step Step) {
	m := step.Message
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
	if len(m.Data) > 0 {
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
