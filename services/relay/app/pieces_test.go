package app

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
		for _, s := range []string{"a", "b", "", "c"} {
			p.add(s)
		}
		require.Equal(t, []string{"a"}, h.all())
		time.Sleep(pieceWait - 1)
		require.Equal(t, []string{"a"}, h.all())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []string{"a", "bc"}, h.all())
		p.add("d")
		p.add(strings.Repeat("x", pieceBytes))
		require.Equal(t, []string{"a", "bc", "d" + strings.Repeat("x", pieceBytes)}, h.all(), "enough of it waits for nothing")
		time.Sleep(time.Second)
		require.Len(t, h.all(), 3)
		p.add("e")
		p.stop(true)
		require.Equal(t, "e", h.all()[3])
		p.add("f")
		time.Sleep(time.Second)
		require.Len(t, h.all(), 4, "nothing comes after the end")
	})
}

func TestPieces_WhatWaitsIsDroppedWithAFailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := newPieces(h.add)
		p.add("a")
		p.add("b")
		p.stop(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"a"}, h.all())
		newPieces(nil).add("a") // nobody listens
	})
}
