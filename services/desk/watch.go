package desk

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	maxFrame = 64 << 10
	// quietTime is how long a watch may say nothing: it lives by heartbeats every 15 s.
	quietTime = 50 * time.Second
)

// watch rings at every change of the Company's inbox, and after every gap, until ctx
// ends or the key may not watch any more.
func (c *client) watch(ctx context.Context, company string, ring func()) error {
	last := ""
	for ctx.Err() == nil {
		err := c.follow(ctx, company, &last, ring)
		if err != nil && !again(err) {
			return err
		}
		_ = clock.Wait(ctx, c.pause) // the loop sees that ctx ended
	}
	return ctx.Err()
}

// follow reads one stream until it ends. last is where the next one goes on.
func (c *client) follow(ctx context.Context, company string, last *string, ring func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(quietTime, cancel)
	defer quiet.Stop()
	path := company + ":watch?" + url.Values{"topics": {"inbox"}}.Encode()
	res, err := c.do(ctx, http.MethodGet, path, nil, "text/event-stream", *last)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	ring() // what happened before the stream was there is looked for
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxFrame)
	for event := ""; lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			*last = value
		case "":
			quiet.Reset(quietTime)
			if event != "heartbeat" && event != "goodbye" {
				ring()
			}
			event = ""
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
