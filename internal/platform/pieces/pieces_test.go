package pieces

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// heard keeps what a Joiner passed on, from whatever goroutine.
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

func TestJoiner_FirstAtOnceThenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := New(h.add)
		for _, s := range []string{"a", "b", "", "c"} {
			p.Add(s)
		}
		require.Equal(t, []string{"a"}, h.all())
		time.Sleep(wait - 1)
		require.Equal(t, []string{"a"}, h.all())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []string{"a", "bc"}, h.all())
		p.Add("d")
		p.Add(strings.Repeat("x", enough))
		require.Equal(t, []string{"a", "bc", "d" + strings.Repeat("x", enough)}, h.all(), "enough of it waits for nothing")
		time.Sleep(time.Second)
		require.Len(t, h.all(), 3)
		p.Add("e")
		p.Stop(true)
		require.Equal(t, "e", h.all()[3])
		p.Add("f")
		time.Sleep(time.Second)
		require.Len(t, h.all(), 4, "nothing comes after the end")
	})
}

func TestJoiner_ALetterHasNoMessageOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := New(h.add)
		for range 1 + 500 {
			p.Add("a")
		}
		time.Sleep(wait)
		synctest.Wait()
		got := h.all()
		require.Equal(t, "a", got[0])
		require.LessOrEqual(t, len(got), 1+500/enough+1, "a piece of one letter has no message of its own")
		require.Len(t, strings.Join(got, ""), 501)
		p.Add("the end")
		p.Stop(true)
		p.Add("too late")
		time.Sleep(time.Second)
		require.Equal(t, append(got, "the end"), h.all())
	})
}

func TestJoiner_WhatWaitsIsDroppedWithAFailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		p := New(h.add)
		p.Add("a")
		p.Add("b")
		p.Stop(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"a"}, h.all())
		New(nil).Add("a") // nobody listens
	})
}
