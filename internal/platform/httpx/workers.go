package httpx

import "time"

const (
	// maxIdleWorkers is how many goroutines wait for the next turn, and idleWorker how long.
	maxIdleWorkers = 64
	idleWorker     = 5 * time.Second
)

// workers run turns. There is no bound to how many at once, since a turn may wait for
// others; but a goroutine that has run one goes on for the next, with a stack that has
// grown already.
type workers struct {
	turns chan func()
	idle  chan struct{} // has a value for each that waits
	done  <-chan struct{}
}

func newWorkers(done <-chan struct{}) *workers {
	return &workers{turns: make(chan func()), idle: make(chan struct{}, maxIdleWorkers), done: done}
}

// run has turn run by another goroutine. It never blocks.
func (w *workers) run(turn func()) {
	select {
	case w.turns <- turn:
	default:
		go w.work(turn)
	}
}

func (w *workers) work(turn func()) {
	patience := time.NewTimer(idleWorker)
	defer patience.Stop()
	for {
		turn()
		select {
		case w.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		patience.Reset(idleWorker)
		select {
		case turn = <-w.turns:
			<-w.idle
		case <-patience.C:
			<-w.idle
			return
		case <-w.done:
			return
		}
	}
}
