package doorbell

import (
	"context"
	"encoding/json"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Piece is a part of the text of a message that is being written. Pieces of a message
// are numbered from 0, so that who missed one can tell.
type Piece struct {
	MessageID string `json:"m"`
	Number    int    `json:"n"`
	Text      string `json:"t"`
	// After is the sequence number of the message that is being answered: who has not
	// read that far may not be the one any more who may read on.
	After int64 `json:"a"`
}

const (
	// maxPiece is the most bytes of text of one piece; a longer one is sent as several.
	maxPiece = 16 << 10
	// maxWritten is the most messages whose pieces are numbered at once; those of further ones are lost.
	maxWritten = 1 << 16
	// writtenFor is how long a message without a new piece is still known. No attempt at an answer takes longer.
	writtenFor = 5 * time.Minute
)

// Delta shows the next piece of a message's text to those who read the conversation
// as a stream, in every process. It never blocks; a piece that can't be passed on is
// lost, and with it those after it. A message has one writer, which calls Delta for
// one piece after the other and gives another attempt another message id. after is the
// sequence number of the message that it answers.
func (b *Bells) Delta(ctx context.Context, scope tenancy.Scope, conversationID, messageID string, after int64, text string) {
	subject, err := bus.DeltaSubject(scope.CompanyID(), conversationID)
	if err != nil { // both ids are ours
		return
	}
	key := keyOf(subject)
	for len(text) > 0 {
		n := cut(text)
		p := Piece{MessageID: messageID, Text: text[:n], After: after}
		text = text[n:]
		var ok bool
		if p.Number, ok = b.written.next(key + "." + messageID); !ok {
			return
		}
		b.conversations.pass(key, p)
		raw, err := json.Marshal(p)
		if err != nil { // strings and a number always encode
			return
		}
		b.bus.PublishLossy(ctx, subject, raw)
	}
}

// cut returns how many bytes of text make a piece: whole characters.
func cut(text string) int {
	if len(text) <= maxPiece {
		return len(text)
	}
	n := maxPiece
	for n > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// received passes on a piece of any process; one of our own comes twice, which its number tells.
func (b *Bells) received(key string, data []byte) {
	var p Piece
	if err := json.Unmarshal(data, &p); err != nil || p.MessageID == "" || p.Number < 0 {
		return
	}
	b.conversations.pass(key, p)
}

// written counts the pieces of the messages that this process has written.
type written struct {
	mu       sync.Mutex
	messages map[string]progress
}

type progress struct {
	next int
	at   time.Time
}

func newWritten() *written { return &written{messages: map[string]progress{}} }

// next numbers a piece; false where too many messages are being written.
func (w *written) next(message string) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, known := w.messages[message]
	if !known && len(w.messages) >= maxWritten {
		return 0, false
	}
	w.messages[message] = progress{p.next + 1, clock.System()}
	return p.next, true
}

// forget drops what is not being written any more.
func (w *written) forget() {
	old := clock.System().Add(-writtenFor)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.messages) < maxWritten/64 { // little to win
		return
	}
	for m, p := range w.messages {
		if p.at.Before(old) {
			delete(w.messages, m)
		}
	}
}
