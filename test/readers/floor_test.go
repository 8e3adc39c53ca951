package readers_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
)

// serveFloor is the least that net/http can do: streams of which each is a handler that waits.
func serveFloor() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(l.Addr().String()); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": \n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
}
