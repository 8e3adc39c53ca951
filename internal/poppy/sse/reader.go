package sse

import (
	"bytes"
	"errors"
)

// DefaultName is the name of an event whose stream gives it none.
const DefaultName = "message"

// What makes a stream unreadable. Each is final.
var (
	ErrLine  = errors.New("a line of the event stream is too long")
	ErrEvent = errors.New("an event of the event stream is too large")
	ErrTotal = errors.New("the event stream is too long")
)

// Event is a dispatched event. It always has data, be it empty. Bytes that are no
// UTF-8 are left as they came: who reads the data judges it.
type Event struct {
	Name string // DefaultName where the stream gives none
	Data []byte // the data lines, joined by "\n"; the receiver's to keep
	ID   string // the last id seen in the stream so far
}

// Limits bound a stream, in bytes; 0 takes the default.
type Limits struct {
	Line  int // one line; 256 KiB
	Event int // the data of one event; 256 KiB
	Total int // everything, comments included; unlimited
}

// A Reader turns the bytes of a stream into events. Its zero value is not usable;
// NewReader makes one. It must not be used from two goroutines at once.
type Reader struct {
	limits  Limits
	total   int
	err     error
	line    []byte // of the line that has not ended yet
	over    bool   // there was more than Total allows
	started bool   // something was read: a byte order mark can't come any more
	cr      bool   // the last byte was a CR: a LF that follows belongs to it
	name    string
	data    []byte
	hasData bool
	id      string
}

// NewReader makes a Reader that holds no more than the limits allow.
func NewReader(l Limits) *Reader {
	if l.Line <= 0 {
		l.Line = 256 << 10
	}
	if l.Event <= 0 {
		l.Event = 256 << 10
	}
	return &Reader{limits: l}
}

// Feed takes the next bytes of the stream and calls each for every event that they
// complete, in order. An error, its own or of each, ends the stream: every later
// call returns it again. What follows the last empty line when the stream ends is
// no event, so there is nothing to close.
func (r *Reader) Feed(p []byte, each func(Event) error) error {
	if r.err == nil && r.limits.Total > 0 && len(p) > r.limits.Total-r.total {
		// What fits is still read: where a stream breaks must not depend on how it was cut.
		p, r.over = p[:r.limits.Total-r.total], true
	}
	r.total += len(p)
	for r.err == nil && len(p) > 0 {
		if r.cr {
			r.cr = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			r.err = r.grow(p)
			break
		}
		if r.err = r.grow(p[:end]); r.err != nil {
			break
		}
		r.cr = p[end] == '\r'
		p = p[end+1:]
		r.err = r.endLine(each)
	}
	if r.err == nil && r.over {
		r.err = ErrTotal
	}
	return r.err
}

// Unfinished reports whether the stream stands inside of an event: should it end here,
// the event is lost.
func (r *Reader) Unfinished() bool { return len(r.line) > 0 || r.hasData || r.name != "" }

func (r *Reader) grow(p []byte) error {
	if len(r.line)+len(p) > r.limits.Line {
		return ErrLine
	}
	r.line = append(r.line, p...)
	return nil
}

func (r *Reader) endLine(each func(Event) error) error {
	line := r.line
	r.line = r.line[:0]
	if !r.started {
		r.started = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return r.dispatch(each)
	}
	field, value, _ := bytes.Cut(line, []byte(":")) // a comment is a field without a name
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		r.name = string(value)
	case "data":
		if len(r.data)+len(value)+1 > r.limits.Event {
			return ErrEvent
		}
		if r.hasData {
			r.data = append(r.data, '\n')
		}
		r.data, r.hasData = append(r.data, value...), true
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	}
	return nil
}

// dispatch ends an event. One without a data line is none (WHATWG HTML 9.2.6).
func (r *Reader) dispatch(each func(Event) error) error {
	e := Event{Name: r.name, Data: append([]byte{}, r.data...), ID: r.id}
	has := r.hasData
	r.name, r.data, r.hasData = "", r.data[:0], false
	if !has {
		return nil
	}
	if e.Name == "" {
		e.Name = DefaultName
	}
	return each(e)
}
