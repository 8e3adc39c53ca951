package app

import (
	"strings"
	"sync"
	"time"
)

// A model's piece is a few letters. Each that went on alone would cost a frame, a
// message on the bus and a write to every reader, so later ones wait for company.
const (
	pieceWait  = 30 * time.Millisecond
	pieceBytes = 64
)

// pieces joins pieces of text that come close together. The first goes on at once.
type pieces struct {
	out func(string)

	mu      sync.Mutex
	begun   bool
	stopped bool
	waiting strings.Builder
	timer   *time.Timer
}

// newPieces makes pieces that go to out, one call at a time; nil for nobody.
func newPieces(out func(string)) *pieces { return &pieces{out: out} }

// add takes a piece.
func (p *pieces) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil || p.stopped || text == "" {
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
