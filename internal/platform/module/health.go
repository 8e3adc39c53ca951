package module

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// readyTimeout is below what probes are usually given.
const readyTimeout = 2 * time.Second

// LivezHandler answers 200 for as long as the process can answer at all. It asks
// no module: a database that is away is no reason to restart.
func (g *Group) LivezHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
}

// ReadyzHandler answers 200 when the group is ready and 503 with the name of what
// is not otherwise, at once when a drain has begun. The log gets what changes, not
// every probe.
func (g *Group) ReadyzHandler() http.Handler {
	var said lastSaid
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		err := g.Ready(ctx)
		var notReady *NotReadyError
		switch {
		case err == nil:
			said.changed("")
			answer(w, http.StatusOK, "ok")
		case errors.As(err, &notReady):
			if said.changed(notReady.Module) {
				g.log.WarnContext(ctx, "not ready", "module", notReady.Module, "error", notReady.cause)
			}
			answer(w, http.StatusServiceUnavailable, notReady.Module+" is not ready")
		default:
			answer(w, http.StatusServiceUnavailable, err.Error())
		}
	})
}

// lastSaid is the module that was last said not to be ready.
type lastSaid struct {
	mu     sync.Mutex
	module string
}

func (l *lastSaid) changed(module string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.module
	l.module = module
	return old != module
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// The prober has gone if this fails.
	_, _ = w.Write([]byte(text + "\n"))
}
