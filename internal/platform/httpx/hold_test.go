package httpx_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
)

// script is a held answer whose turns are a test's.
type script struct {
	httpx.Held
	turn func(h *httpx.Held) bool
	over atomic.Int32
}

func (s *script) Turn(_ context.Context, h *httpx.Held) bool { return s.turn(h) }
func (s *script) Over()                                      { s.over.Add(1) }

// holding serves answers that make makes, and returns the server and what was held.
func holding(t *testing.T, cfg httpx.Config, log *slog.Logger, turn func(h *httpx.Held) bool) (server *httpx.Server, addr string, held <-chan *script) {
	t.Helper()
	all := make(chan *script, 1024)
	cfg.Handler = httpx.Standard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &script{turn: turn}
		all <- s
		s.Hold(w, r, s)
	}), httpx.Options{Name: "t", Log: log})
	cfg.Log = log
	server, addr, _ = serve(t, cfg)
	return server, addr, all
}

func whole(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { httpx.WriteJSON(w, http.StatusOK, []byte(body)) }
}

func dial(t *testing.T, addr, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	return conn, bufio.NewReader(conn)
}

const get = "GET / HTTP/1.1\r\nHost: t\r\n\r\n"

func next(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res, string(body)
}

func received(t *testing.T, ch <-chan *script) *script {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(patience):
		require.FailNow(t, "nothing was held")
		return nil
	}
}

func TestHold_AnswersOneAfterTheOtherOnOneConnection(t *testing.T) {
	var ready atomic.Bool
	_, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		if !ready.CompareAndSwap(true, false) {
			return true
		}
		h.Answer(whole(`{"n":1}`))
		return false
	})
	conn, in := dial(t, addr, get)
	for i := range 4 {
		s := received(t, held)
		ready.Store(true)
		s.Wake()
		res, body := next(t, in)
		require.JSONEq(t, `{"n":1}`, body)
		require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
		require.NotEmpty(t, res.Header.Get("X-Request-Id"))
		require.NotEmpty(t, res.Header.Get("Date"))
		require.False(t, res.Close)
		require.Eventually(t, func() bool { return s.over.Load() == 1 }, patience, time.Millisecond)
		if i < 3 {
			_, err := io.WriteString(conn, get)
			require.NoError(t, err)
		}
	}
}

func TestHold_RequestsThatCameEarlyAreAnsweredInOrder(t *testing.T) {
	var n atomic.Int32
	_, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		if n.Add(1)%2 == 1 {
			return true
		}
		h.Answer(whole(`{}`))
		return false
	})
	conn, in := dial(t, addr, get+get)
	first := received(t, held)
	_, err := io.WriteString(conn, get)
	require.NoError(t, err)
	first.Wake()
	next(t, in)
	received(t, held).Wake()
	next(t, in)
	received(t, held).Wake()
	next(t, in)
}

func TestHold_ClosesWhereTheClientWantsNoMore(t *testing.T) {
	_, addr, _ := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		h.Answer(whole(`{}`))
		return false
	})
	for _, request := range []string{"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"} {
		_, in := dial(t, addr, request)
		res, body := next(t, in)
		require.True(t, res.Close)
		require.Equal(t, `{}`, body)
		_, err := in.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestHold_StreamsOfUnknownLength(t *testing.T) {
	turn := func(h *httpx.Held) bool {
		_ = h.Begin(http.StatusOK) // what fails is missing in the answer
		_ = h.Write([]byte("one "))
		_ = h.Write([]byte(strings.Repeat("x", 100_000)))
		return false
	}
	_, addr, _ := holding(t, httpx.Config{}, nil, turn)
	for request, chunked := range map[string]bool{get: true, "GET / HTTP/1.0\r\n\r\n": false} {
		_, in := dial(t, addr, request)
		res, body := next(t, in)
		require.Equal(t, "one "+strings.Repeat("x", 100_000), body)
		require.Equal(t, chunked, len(res.TransferEncoding) == 1, "chunks are for who knows them")
		require.True(t, res.Close)
	}
}

func TestHold_NoticesThatTheClientHasGone(t *testing.T) {
	gone := make(chan struct{})
	_, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		if h.Gone() {
			close(gone)
			return false
		}
		return true
	})
	conn, _ := dial(t, addr, get)
	s := received(t, held)
	require.NoError(t, conn.Close())
	await(t, gone)
	require.Eventually(t, func() bool { return s.over.Load() == 1 }, patience, time.Millisecond)
}

func TestHold_WakesAreNotLost(t *testing.T) {
	var asked, done atomic.Int64
	_, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		done.Store(asked.Load())
		return !h.Gone()
	})
	dial(t, addr, get)
	s := received(t, held)
	for range 2_000 {
		asked.Add(1)
		s.Wake()
		runtime.Gosched()
	}
	require.Eventually(t, func() bool { return done.Load() == 2_000 }, patience, time.Millisecond)
	// From many at once, and with one turn at a time.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				asked.Add(1)
				s.Wake()
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return done.Load() == 6_000 }, patience, time.Millisecond)
}

func TestSS05_WhoReadsTooSlowlyIsCut(t *testing.T) {
	cut := make(chan error, 1)
	_, addr, _ := holding(t, httpx.Config{Stall: 100 * time.Millisecond}, nil, func(h *httpx.Held) bool {
		err := h.Begin(http.StatusOK)
		for err == nil {
			err = h.Write(make([]byte, 1<<20))
		}
		cut <- err
		return false
	})
	dial(t, addr, get)
	select {
	case err := <-cut:
		require.Error(t, err)
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
}

func TestHold_PanicEndsTheConnectionAlone(t *testing.T) {
	var log bytes.Buffer
	_, addr, held := holding(t, httpx.Config{}, slog.New(slog.NewTextHandler(&log, nil)), func(*httpx.Held) bool {
		panic("secret")
	})
	_, in := dial(t, addr, get)
	_, err := in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	s := received(t, held)
	require.Eventually(t, func() bool { return s.over.Load() == 1 }, patience, time.Millisecond)
	require.Contains(t, log.String(), "held answer panicked")
	require.NotContains(t, log.String(), "secret")
}

func TestLP02_HeldAnswersEndWithTheDrain(t *testing.T) {
	server, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		if !h.Draining() {
			return true
		}
		h.Answer(whole(`{}`))
		return false
	})
	before := runtime.NumGoroutine()
	const n = 50
	var ins []*bufio.Reader
	for range n {
		_, in := dial(t, addr, get)
		ins = append(ins, in)
		received(t, held)
	}
	require.NoError(t, server.Shutdown(t.Context()))
	for _, in := range ins {
		res, body := next(t, in)
		require.Equal(t, `{}`, body)
		require.True(t, res.Close)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, patience, time.Millisecond)
}

func TestShutdown_DoesNotWaitForAnsweredConnections(t *testing.T) {
	server, addr, _ := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		h.Answer(whole(`{}`))
		return false
	})
	_, in := dial(t, addr, get)
	next(t, in)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, server.Shutdown(ctx))
	_, err := in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// The connection was looked at between its answer and its wait for the next request.
func TestShutdown_DoesNotWaitForConnectionsThatAreBeingAnswered(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begin, ended := make(chan struct{}), make(chan error, 1)
	server, addr, _ := serve(t, httpx.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		s := &lateOver{over: func() {
			close(begin)
			for { // until nobody new is accepted, which is after the look
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}}
		s.Hold(w, r, s)
	})})
	_, in := dial(t, addr, get)
	await(t, begin)
	go func() { ended <- server.Shutdown(ctx) }()
	next(t, in)
	_, err := in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-ended)
}

// lateOver answers at once, and takes its time afterwards.
type lateOver struct {
	httpx.Held
	over func()
}

func (l *lateOver) Turn(_ context.Context, h *httpx.Held) bool { h.Answer(whole(`{}`)); return false }
func (l *lateOver) Over()                                      { l.over() }

func TestShutdown_CutsHeldAnswersAtTheEnd(t *testing.T) {
	over := make(chan struct{})
	server, addr, held := holding(t, httpx.Config{}, nil, func(h *httpx.Held) bool {
		if h.Gone() {
			close(over)
			return false
		}
		return true // whatever the drain says
	})
	_, in := dial(t, addr, get)
	received(t, held)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, server.Shutdown(ctx), context.DeadlineExceeded)
	await(t, over)
	_, err := in.ReadByte()
	require.Error(t, err)
}
