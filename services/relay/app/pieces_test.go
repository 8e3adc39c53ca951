package app

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPieces_FirstAtOnceThenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := newPieces(func(s string) { got = append(got, s) })
		for _, s := range []string{"a", "b", "", "c"} {
			p.add(s)
		}
		require.Equal(t, []string{"a"}, got)
		time.Sleep(pieceWait - 1)
		require.Equal(t, []string{"a"}, got)
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []string{"a", "bc"}, got)
		p.add("d")
		p.add(strings.Repeat("x", pieceBytes))
		require.Equal(t, []string{"a", "bc", "d" + strings.Repeat("x", pieceBytes)}, got, "enough of it waits for nothing")
		time.Sleep(time.Second)
		require.Len(t, got, 3)
		p.add("e")
		p.stop(true)
		require.Equal(t, "e", got[3])
		p.add("f")
		time.Sleep(time.Second)
		require.Len(t, got, 4, "nothing comes after the end")
	})
}

func TestPieces_WhatWaitsIsDroppedWithAFailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := newPieces(func(s string) { got = append(got, s) })
		p.add("a")
		p.add("b")
		p.stop(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"a"}, got)
		newPieces(nil).add("a") // nobody listens
	})
}
