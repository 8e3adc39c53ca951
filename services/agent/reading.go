package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

const (
	reconnects   = 8 // in a row that may fail
	longestPause = 15 * time.Second
)

// A reading is a conversation's events as they come: from a stream where the Company
// has one (7.6), else from reads that wait (7.5).
type reading struct {
	*visit
	each    func(event)
	over    func(page) bool // asked after every page: is there nothing more to wait for
	ask     bool            // ask for a stream
	missing bool            // a part of the conversation is gone

	stream *eventStream // that is open
	resume string       // the last event of an earlier stream of this reading
	parts  written
	status page      // what the newest events say
	heard  time.Time // when the newest event came, or the stream began
	fruit  bool      // the stream brought something new

	begun    bool // the Company was read from
	failures int  // attempts since then that didn't reach it
}

// run reads on after p until over says so.
func (r *reading) run(ctx context.Context, p page) error {
	defer r.end()
	for !r.over(p) {
		var err error
		if p, err = r.more(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// more returns the next page, or a part of a stream. Its events are handled.
func (r *reading) more(ctx context.Context, before page) (page, error) {
	r.status.Status, r.status.Responder = before.Status, before.Responder
	if r.stream != nil {
		return r.pull(ctx)
	}
	wait := 0
	if !before.HasMore {
		wait = r.waitFor(ctx)
	}
	began := r.agent.clock.Now()
	in, err := r.open(ctx, wait, r.ask && !before.HasMore)
	if err != nil {
		return before, r.again(ctx, err)
	}
	r.begun, r.failures = true, 0
	if in.stream != nil {
		r.stream, r.parts, r.heard, r.fruit = in.stream, written{}, r.agent.clock.Now(), false
		return r.pull(ctx)
	}
	r.resume = ""
	p, err := parsePage(in.body)
	if err != nil {
		return page{}, fail(ExitRefused, "7.5", "the answer to a read").because(err)
	}
	if err := r.handle(p, r.each); err != nil {
		return page{}, err
	}
	p.quiet = len(p.Events) == 0
	// A Company that doesn't hold reads must not be asked in a tight loop.
	if p.quiet && !p.HasMore && wait > 0 && r.agent.clock.Now().Sub(began) < time.Second && !r.over(p) {
		err = r.agent.clock.Wait(ctx, time.Second)
	}
	return p, err
}

// again waits after a request that didn't reach the Company, where an earlier one did:
// it may be starting anew. The error that it returns ends the reading.
func (r *reading) again(ctx context.Context, err error) error {
	var untrusted *tls.CertificateVerificationError
	if !r.begun || r.failures == reconnects || ctx.Err() != nil || ExitCode(err) != ExitNetwork || errors.As(err, &untrusted) {
		return err
	}
	r.failures++
	r.agent.report(Step{Section: "7.6", Title: "Wait for the Company to be there again", OK: true})
	return r.agent.clock.Wait(ctx, min(time.Second<<r.failures, longestPause))
}

// open makes the request of a read. A cursor that the Company has no events for any
// more leads back to the beginning, with missing set.
func (r *reading) open(ctx context.Context, wait int, stream bool) (incoming, error) {
	conv := r.rel.conversation()
	for {
		out := outgoing{
			method: http.MethodGet, limit: eventsLimit, timeout: requestTimeout + time.Duration(wait)*time.Second, repeatable: true,
			stream: stream,
		}
		cursor := conv.Cursor
		if stream && r.resume != "" {
			cursor, out.lastEventID = "", r.resume // poppy-0.1/7.6#8: one in place of the other
		}
		out.url = withQuery(r.conversationURL(conv.ID, "events"), cursor, wait)
		section, title := "7.5", "Read events"
		if stream {
			section, title = "7.6", "Read events as they come"
		}
		in, err := r.call(ctx, section, title, out)
		if err != nil || in.status == http.StatusOK {
			return in, err
		}
		code := errorCode(in)
		if (code != "cursor_expired" && code != "invalid_cursor") || conv.Cursor == "" {
			return incoming{}, r.refused("7.5", "no events", in)
		}
		r.dropCursor(code)
		r.missing, r.resume = true, ""
	}
}

// pull reads the stream until there was an event, or nothing more comes.
func (r *reading) pull(ctx context.Context) (page, error) {
	p := page{streamed: true}
	for len(p.Events) == 0 && r.stream != nil {
		limit := silence
		if r.status.Status == statusIdle {
			limit = min(limit, quietTime-r.silent())
		}
		err := r.stream.pull(limit, func(f sse.Event) error { return r.frame(f, &p) })
		var end streamEndError
		switch {
		case errors.As(err, &end):
			p.quiet = len(p.Events) == 0 && r.status.Status == statusIdle && r.silent() >= quietTime
			p.HasMore, err = r.pause(ctx, end, p.quiet)
			if err != nil {
				return p, err
			}
		case err != nil:
			return p, fail(ExitRefused, "7.6", "the stream of events").because(err)
		}
	}
	p.Status, p.Responder = r.status.Status, r.status.Responder
	return p, nil
}

// silent is for how long there was no event.
func (r *reading) silent() time.Duration { return r.agent.clock.Now().Sub(r.heard) }

// pause ends a stream that is over. Before the next one, where it brought nothing, the
// agent waits and reads: the conversation may be closed.
func (r *reading) pause(ctx context.Context, end streamEndError, quiet bool) (read bool, err error) {
	fruit := r.fruit
	r.end()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case quiet:
		return false, nil
	case r.status.Status == statusClosed:
		return !fruit, nil
	}
	r.agent.report(Step{Section: "7.6", Title: "The stream is over, read on", OK: true, Detail: end.Error()})
	if fruit {
		return false, nil
	}
	return true, r.agent.clock.Wait(ctx, time.Second)
}

// frame takes one event of the stream.
func (r *reading) frame(f sse.Event, p *page) error {
	switch f.Name {
	case deltaEvent:
		if id, text := r.parts.add(f); id != "" {
			r.heard = r.agent.clock.Now()
			r.agent.showPiece(r.company.name, id, text)
		}
		return nil
	case sse.DefaultName:
	default:
		return nil // of a later version
	}
	raw, err := parseFrame(f)
	if err != nil {
		return err
	}
	r.heard = r.agent.clock.Now()
	r.fruit = r.fruit || !r.rel.conversation().seen(f.ID)
	if err := r.handle(page{Events: []json.RawMessage{raw}}, func(ev event) {
		delete(r.parts, ev.Message.ID)
		if ev.Type == "state" {
			r.status.Status, r.status.Responder = ev.Status, ev.Responder
		}
		r.each(ev)
	}); err != nil {
		return err
	}
	r.resume = f.ID
	p.Events = append(p.Events, raw)
	return nil
}

// end closes the stream. Pieces of messages that didn't come in full are dropped
// (poppy-0.1/7.6#13).
func (r *reading) end() {
	if r.stream == nil {
		return
	}
	r.stream.close()
	r.stream = nil
	if len(r.parts) > 0 {
		r.parts = nil
		r.agent.dropPieces()
	}
}

func (a *Agent) showPiece(company, id, text string) {
	if p, ok := a.reporter.(PieceReporter); ok {
		p.Piece(company, id, text)
	}
}

func (a *Agent) dropPieces() {
	if p, ok := a.reporter.(PieceReporter); ok {
		p.Drop()
	}
}

// whoHandles says in words what a state event changes for the User (7.7, 7.9).
func whoHandles(status, responder string) string {
	switch {
	case status == statusClosed:
		return "the conversation is closed"
	case status == statusQueued:
		return "a person at the Company is awaited"
	case responder == senderHuman:
		return "a person at the Company is there"
	}
	return ""
}

// inWords joins status and responder with what they mean.
func inWords(status, responder string) string {
	s := status + ", " + responder
	if words := whoHandles(status, responder); words != "" {
		s += fmt.Sprintf(" (%s)", words)
	}
	return strings.TrimSpace(s)
}
