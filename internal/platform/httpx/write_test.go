package httpx_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
)

// limited notes which deadline each write has.
type limited struct {
	*httptest.ResponseRecorder
	deadline time.Time
	writes   []int
	failAt   int // the number of writes that work; 0: all
	open     int // writes without a deadline
}

func (l *limited) SetWriteDeadline(t time.Time) error {
	l.deadline = t
	return nil
}

func (l *limited) Write(p []byte) (int, error) {
	if l.deadline.IsZero() {
		l.open++
	}
	if l.failAt > 0 && len(l.writes) == l.failAt {
		return 0, errors.New("too slow")
	}
	l.writes = append(l.writes, len(p))
	return l.ResponseRecorder.Write(p)
}

func TestWriteJSON_GivesEachPartItsTime(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 100<<10)
	w := &limited{ResponseRecorder: httptest.NewRecorder()}
	httpx.WriteJSON(w, http.StatusOK, body)
	require.Equal(t, body, w.Body.Bytes())
	require.Zero(t, w.open, "no part is written without a deadline")
	for _, n := range w.writes {
		require.LessOrEqual(t, n, 32<<10)
	}
	require.True(t, w.Flushed, "all is out before the deadline goes")
	require.True(t, w.deadline.IsZero(), "the next answer on the connection has none")

	slow := &limited{ResponseRecorder: httptest.NewRecorder(), failAt: 1}
	httpx.WriteJSON(slow, http.StatusOK, body)
	require.Len(t, slow.writes, 1, "who stalls gets no more")
	require.False(t, slow.deadline.IsZero())
}
