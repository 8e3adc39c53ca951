// Package pieces joins pieces of a text that is being written. A model's piece is a few
// letters. Each that went on alone would cost a frame, a message on the bus and a write
// to every reader, so later ones wait for company.
package pieces

import (
	"strings"
	"sync"
	"time"
)

const (
	// wait is the longest that a piece waits for others.
	wait = 30 * time.Millisecond
	// enough is how many bytes wait for no more.
	enough = 64
)

// Joiner joins pieces of text that come close together, by 30 ms or 64 bytes. The first
// goes on at once.
type Joiner struct {
	out func(string)

	mu      sync.Mutex
	begun   bool
	stopped bool
	waiting strings.Builder
	timer   *time.Timer
}

// New makes a Joiner that passes on to out, one call at a time; nil for nobody.
func New(out func(string)) *Joiner { return &Joiner{out: out} }

// Wanted reports that somebody gets the pieces.
func (j *Joiner) Wanted() bool { return j.out != nil }

// Add takes a piece.
func (j *Joiner) Add(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out == nil || j.stopped || text == "" {
		return
	}
	j.waiting.WriteString(text)
	if !j.begun || j.waiting.Len() >= enough {
		j.begun = true
		j.send()
		return
	}
	if j.timer == nil {
		j.timer = time.AfterFunc(wait, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.send()
		})
	}
}

// send passes on what waits. It holds the lock meanwhile, which keeps calls in order.
func (j *Joiner) send() {
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	if j.stopped || j.waiting.Len() == 0 {
		return
	}
	text := j.waiting.String()
	j.waiting.Reset()
	j.out(text)
}

// Stop passes on what waits if whole, and makes sure that nothing goes on later.
func (j *Joiner) Stop(whole bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if whole {
		j.send()
	}
	j.stopped = true
	if j.timer != nil {
		j.timer.Stop()
	}
}
