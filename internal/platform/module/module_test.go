package module_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/module"
)

// recorder makes modules that write down what happens to them.
type recorder struct{ events []string }

func (r *recorder) module(name string, fails ...error) module.Module {
	var startErr, stopErr error
	if len(fails) > 0 {
		startErr = fails[0]
	}
	if len(fails) > 1 {
		stopErr = fails[1]
	}
	return module.Module{
		Name:  name,
		Start: func(context.Context) error { r.events = append(r.events, "start "+name); return startErr },
		Stop:  func(context.Context) error { r.events = append(r.events, "stop "+name); return stopErr },
	}
}

func TestStart_InOrderAndStopInReverse(t *testing.T) {
	var r recorder
	g := module.NewGroup(nil, r.module("db"), r.module("bus"), module.Module{Name: "nothing"}, r.module("web"))
	require.NoError(t, g.Start(t.Context()))
	require.NoError(t, g.Ready(t.Context()))
	require.NoError(t, g.Stop(t.Context()))
	require.NoError(t, g.Stop(t.Context())) // twice is once
	require.Equal(t, []string{"start db", "start bus", "start web", "stop web", "stop bus", "stop db"}, r.events)
}

func TestStart_FailureStopsWhatWasStarted(t *testing.T) {
	var r recorder
	broken := errors.New("no route to host")
	g := module.NewGroup(nil, r.module("db"), r.module("bus"), r.module("web", broken), r.module("never"))
	err := g.Start(t.Context())
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "starting web: no route to host")
	require.Equal(t, []string{"start db", "start bus", "start web", "stop bus", "stop db"}, r.events)
	require.ErrorIs(t, g.Ready(t.Context()), module.ErrNotRunning)
}

func TestStart_StopsWhatWasStartedWithALivingContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stopped error
	g := module.NewGroup(nil,
		module.Module{Name: "db", Stop: func(ctx context.Context) error { stopped = ctx.Err(); return nil }},
		module.Module{Name: "bus", Start: func(context.Context) error { cancel(); return nil }},
		module.Module{Name: "web", Start: func(context.Context) error { return errors.New("must not be started") }})
	require.ErrorIs(t, g.Start(ctx), context.Canceled)
	require.NoError(t, stopped)
}

func TestStop_GoesOnAfterAFailure(t *testing.T) {
	var r recorder
	g := module.NewGroup(nil, r.module("db", nil, errors.New("stuck")), r.module("bus", nil, errors.New("also stuck")))
	require.NoError(t, g.Start(t.Context()))
	require.EqualError(t, g.Stop(t.Context()), "stopping bus: also stuck\nstopping db: stuck")
	require.Equal(t, []string{"start db", "start bus", "stop bus", "stop db"}, r.events)
}

func get(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

func TestSH03_LivenessAsksNobody(t *testing.T) {
	var broken error
	g := module.NewGroup(nil,
		module.Module{Name: "db", Ready: func(context.Context) error { return broken }},
		module.Module{Name: "bus", Ready: func(context.Context) error { return nil }})
	require.Equal(t, http.StatusOK, get(g.LivezHandler()).Code)
	require.Equal(t, http.StatusServiceUnavailable, get(g.ReadyzHandler()).Code)
	require.NoError(t, g.Start(t.Context()))
	require.Equal(t, http.StatusOK, get(g.ReadyzHandler()).Code)

	broken = errors.New("dial tcp 10.0.0.1: password refused")
	require.Equal(t, http.StatusOK, get(g.LivezHandler()).Code)
	w := get(g.ReadyzHandler())
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "db is not ready\n", w.Body.String()) // the cause is for the log
	require.ErrorContains(t, g.Ready(t.Context()), "password refused")

	broken = nil // and without a restart
	require.Equal(t, http.StatusOK, get(g.ReadyzHandler()).Code)
}

func TestSH01_ReadinessIsFalseAtOnceWhenDraining(t *testing.T) {
	g := module.NewGroup(nil, module.Module{Name: "web"})
	require.NoError(t, g.Start(t.Context()))
	require.Equal(t, http.StatusOK, get(g.ReadyzHandler()).Code)
	g.BeginDrain()
	w := get(g.ReadyzHandler())
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "draining\n", w.Body.String())
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, http.StatusOK, get(g.LivezHandler()).Code)
}
