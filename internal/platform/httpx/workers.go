package httpx

// maxIdleWorkers is how many goroutines wait for the next turn.
const maxIdleWorkers = 64

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
	for {
		turn()
		select {
		case w.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		select {
		case turn = <-w.turns:
			<-w.idle
		case <-w.done:
			return
		}
	}
}
