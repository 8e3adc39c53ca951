package dispatch

import (
	"strings"
	"sync"
	"time"
)

const (
	// maxPieces bounds the text of the pieces of one attempt, in bytes: no message is longer.
	maxPieces = 256 << 10
	// A model's piece is a few letters. Each that went on alone would cost a message on
	// the bus and a write to every reader, so later ones wait for company.
	pieceWait  = 30 * time.Millisecond
	pieceBytes = 64
)

// upTo passes pieces on as long as all of them have at most n bytes. The first one that
// doesn't fit is the last: a text with a gap is no beginning of the message.
func upTo(n int, out func(string)) func(string) {
	return func(text string) {
		if len(text) > n {
			n = 0
			return
		}
		n -= len(text)
		out(text)
	}
}

// pieces joins pieces of text that come close together. The first goes on at once.
type pieces struct {
	out func(string)

	mu      sync.Mutex
	begun   bool
	stopped bool
	waiting strings.Builder
	timer   *time.Timer
}

// newPieces makes pieces that go to out, one call at a time.
func newPieces(out func(string)) *pieces { return &pieces{out: out} }

func (p *pieces) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || text == "" {
		return
	}
	p.waiting.WriteString(text)
	if !p.begun || p.waiting.Len() >= pieceBytes {
		p.begun = true
		p.send()
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(pieceWait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.send()
		})
	}
}

// send passes on what waits. It holds the lock meanwhile, which keeps calls in order.
func (p *pieces) send() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.stopped || p.waiting.Len() == 0 {
		return
	}
	text := p.waiting.String()
	p.waiting.Reset()
	p.out(text)
}

// stop passes on what waits if whole, and makes sure that nothing goes on later.
func (p *pieces) stop(whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if whole {
		p.send()
	}
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
