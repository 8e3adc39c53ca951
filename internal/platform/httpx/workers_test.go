package httpx

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Turns may wait for each other: each is under way whatever the others do.
func TestWorkers_EveryTurnIsRunAtOnce(*testing.T) {
	done := make(chan struct{})
	w := newWorkers(done)
	const turns = 4 * maxIdleWorkers
	for range 3 {
		var all, over sync.WaitGroup
		all.Add(turns)
		over.Add(turns)
		for range turns {
			w.run(func() {
				defer over.Done()
				all.Done()
				all.Wait()
			})
		}
		over.Wait()
	}
	close(done)
	var last sync.WaitGroup
	last.Add(1)
	w.run(last.Done)
	last.Wait()
}

// Who has nothing to do goes: the test ends only when every goroutine has.
func TestWorkers_LeaveWhenThereIsNothingToDo(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		w := newWorkers(make(chan struct{}))
		for range 2 * maxIdleWorkers {
			w.run(func() {})
		}
		time.Sleep(idleWorker) // the bubble's time
	})
}
