package dispatch

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// heard keeps what pieces passed on, from whatever goroutine.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, s)
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.list...)
}

func TestPieces_FirstAtOnceThenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := newPieces(h.add)
		for range 1 + 500 {
			p.add("a")
		}
		time.Sleep(pieceWait)
		synctest.Wait()
		got := h.all()
		require.Equal(t, "a", got[0])
		require.LessOrEqual(t, len(got), 1+500/pieceBytes+1, "a piece of one letter has no message of its own")
		require.Len(t, strings.Join(got, ""), 501)
		p.add("the end")
		p.stop(true)
		p.add("too late")
		time.Sleep(time.Second)
		require.Equal(t, append(got, "the end"), h.all())
	})
}

func TestPieces_WhatWaitsIsDroppedWithAnAnswerThatNeverCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := newPieces(h.add)
		p.add("a")
		p.add("b")
		p.stop(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"a"}, h.all())
	})
}

func TestPieces_NothingFollowsOneThatDoesNotFit(t *testing.T) {
	var h heard
	out := upTo(4, h.add)
	for _, s := range []string{"abc", "de", "f"} {
		out(s)
	}
	require.Equal(t, []string{"abc"}, h.all(), "what is shown is a beginning of the text")
}
