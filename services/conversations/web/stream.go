package web

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/app"
)

// Streams is how streams of events are kept. The zero value is fit for use.
type Streams struct {
	// Heartbeat is how often a stream gets a comment, so that no proxy takes it for
	// dead; 0 is 20 s, and proxies commonly wait for 60. The first one comes sooner.
	Heartbeat time.Duration
	// Life is how long a stream lasts at the most, and nine tenths of it at least; 0 is five minutes. Its Session is
	// judged when it is opened, and then with the next one: what ended a Session, and was
	// not heard of, ends its streams after that long. It ends with the token in any case.
	Life time.Duration
	// Readers are how many reads may wait at once.
	Readers Readers
}

const (
	defaultHeartbeat = 20 * time.Second
	defaultLife      = 5 * time.Minute
	// lookAt is at which heartbeats a stream looks for events that it was not rung for.
	lookAt = 2
	// flushAt is how many bytes of events are collected for one write.
	flushAt = 32 << 10
)

// events answers a read (Poppy 7.5): at once, after a wait, or as a stream (7.6).
// Whatever can be wrong with it is told as JSON before a stream begins.
func (h *Handlers) events(w http.ResponseWriter, r *http.Request, co *directory.Company) {
	caller, ok := h.admit(w, r, co)
	if !ok {
		return
	}
	w.Header().Add("Vary", "Accept")
	stream := r.Method == http.MethodGet && conversation.AcceptsStream(r.Header.Values("Accept"))
	q, err := conversation.ParseReadQuery(r.URL.RawQuery)
	if err == nil && stream {
		q, err = q.WithLastEventID(r.Header.Values("Last-Event-ID"))
	}
	switch {
	case err != nil:
	case stream:
		err = h.stream(w, r, caller, q)
	case q.Wait > 0 && r.Method == http.MethodGet:
		err = h.poll(w, r, caller, q)
	default:
		var read conversation.ReadResponse
		if read, err = h.App.Read(r.Context(), caller, r.PathValue("id"), q); err == nil {
			writeRead(w, r, read)
		}
	}
	if err != nil {
		writeError(w, r, err)
	}
}

func writeRead(w http.ResponseWriter, r *http.Request, read conversation.ReadResponse) {
	body, err := conversation.EncodeRead(read)
	if err != nil {
		writeError(w, r, err)
		return
	}
	httpx.WriteJSON(w, http.StatusOK, body)
}

// poll is a read that waits for an event (Poppy 7.5).
type poll struct {
	httpx.Held
	follower *app.Follower
	leave    func()
	timer    *time.Timer
	expired  atomic.Bool
}

// poll answers at once where there is something to say, and has the answer held else.
func (h *Handlers) poll(w http.ResponseWriter, r *http.Request, caller app.Caller, q conversation.ReadQuery) error {
	p := &poll{}
	var err error
	if p.follower, err = h.App.Follow(caller, r.PathValue("id"), q, false, p.Wake); err != nil {
		return err
	}
	read, err := p.follower.Next(r.Context(), app.Soon)
	if err != nil {
		p.follower.Close()
		return err
	}
	if enough(read) {
		p.follower.Close()
		writeRead(w, r, read)
		return nil
	}
	if p.leave, err = h.seats.take(p.follower.Caller(), p.follower.ConversationID()); err != nil {
		p.follower.Close()
		return err
	}
	p.timer = time.AfterFunc(q.Wait, func() {
		p.expired.Store(true)
		p.Wake()
	})
	p.Hold(w, r, p)
	return nil
}

// enough reports whether a read needn't wait: there is an event, or none will come.
func enough(read conversation.ReadResponse) bool {
	return len(read.Events) > 0 || read.Status == conversation.Closed
}

// Turn implements httpx.Turns.
func (p *poll) Turn(ctx context.Context, h *httpx.Held) bool {
	expired, urgency := p.expired.Load(), app.AtLeisure
	switch {
	case h.Gone():
		return false
	case h.Draining() || p.follower.Ended():
		p.answer(p.follower.Latest())
		return false
	case p.follower.News():
		urgency = app.AtOnce
	case !expired: // the ring of an event that was read already is none
		return true
	}
	read, err := p.follower.Next(ctx, urgency) // at the end, too: a ring may have been lost
	switch {
	case err != nil:
		p.Answer(func(w http.ResponseWriter, r *http.Request) { writeError(w, r, err) })
		return false
	case expired || enough(read):
		p.answer(read)
		return false
	}
	return true
}

func (p *poll) answer(read conversation.ReadResponse) {
	p.Answer(func(w http.ResponseWriter, r *http.Request) { writeRead(w, r, read) })
}

// Over implements httpx.Turns.
func (p *poll) Over() {
	p.timer.Stop()
	p.follower.Close()
	p.leave()
}

// stream is a read that goes on (Poppy 7.6).
type stream struct {
	httpx.Held
	follower *app.Follower
	leave    func()
	first    *conversation.ReadResponse // what was found before it began; nil after that
	every    time.Duration
	beat     *time.Timer
	beats    int
	beaten   atomic.Bool
	life     *time.Timer
	lived    atomic.Bool
}

func (h *Handlers) stream(w http.ResponseWriter, r *http.Request, caller app.Caller, q conversation.ReadQuery) error {
	s := &stream{every: h.Streams.Heartbeat}
	if s.every <= 0 {
		s.every = defaultHeartbeat
	}
	var err error
	if s.follower, err = h.App.Follow(caller, r.PathValue("id"), q, true, s.Wake); err != nil {
		return err
	}
	if s.leave, err = h.seats.take(s.follower.Caller(), s.follower.ConversationID()); err != nil {
		s.follower.Close()
		return err
	}
	read, err := s.follower.Next(r.Context(), app.AtOnce)
	if err != nil {
		s.follower.Close()
		s.leave()
		return err
	}
	s.first = &read
	// Those that were opened in one moment, after a restart, don't beat and look in one.
	s.beats = int(upTo(lookAt))
	s.beat = time.AfterFunc(s.every-upTo(s.every), func() {
		s.beaten.Store(true)
		s.Wake()
	})
	s.life = time.AfterFunc(h.lifeOf(caller), func() {
		s.lived.Store(true)
		s.Wake()
	})
	header := w.Header()
	header.Set("Content-Type", conversation.EventStream)
	header.Set("Cache-Control", "no-cache, no-store, no-transform")
	header.Set("X-Accel-Buffering", "no") // nginx would collect events before it passes them on
	s.Hold(w, r, s)
	return nil
}

// upTo is a random duration below d.
func upTo(d time.Duration) time.Duration {
	return rand.N(d) //nolint:gosec // it keeps streams apart, and nothing secret
}

// lifeOf is how long a stream of the caller may last: no longer than the token.
func (h *Handlers) lifeOf(caller app.Caller) time.Duration {
	life := h.Streams.Life
	if life <= 0 {
		life = defaultLife
	}
	life -= upTo(life/10 + 1) // nor do they come again in one
	if !caller.Expires.IsZero() {
		life = min(life, caller.Expires.Sub(h.Now()))
	}
	return life
}

// Turn implements httpx.Turns. Everything it writes is whole events and comments, so
// that the stream may end after any of its writes.
func (s *stream) Turn(ctx context.Context, h *httpx.Held) bool {
	if h.Gone() {
		return false
	}
	if read := s.first; read != nil {
		s.first = nil
		// The comment has the head passed on at once, though there may be no event yet.
		if h.Begin(http.StatusOK) != nil || h.Write(conversation.AppendComment(nil)) != nil || !s.show(*read) {
			return false
		}
	}
	beaten := s.beaten.Swap(false)
	if beaten {
		s.beats++
		s.beat.Reset(s.every)
	}
	if !s.look(ctx, beaten && s.beats%lookAt == 0) || s.ending() {
		return false
	}
	var out []byte
	for _, p := range s.follower.Pieces() {
		out = conversation.AppendDelta(out, p.MessageID, p.Text)
	}
	if beaten {
		out = conversation.AppendComment(out)
	}
	return len(out) == 0 || h.Write(out) == nil
}

// look shows what there is of news, and reports whether the stream goes on. Unasked it
// looks though nothing was heard of any: a ring may have been lost.
func (s *stream) look(ctx context.Context, unasked bool) bool {
	for !s.ending() {
		news := s.follower.News()
		if !news && !unasked {
			return true
		}
		urgency := app.AtLeisure
		if news {
			urgency = app.AtOnce
		}
		read, err := s.follower.Next(ctx, urgency)
		switch {
		case err != nil && !news && problem.Is(err, problem.TemporarilyUnavailable): // later, then
			return true
		case err != nil: // the agent comes back with its last event's id, and is told why
			return false
		}
		unasked = false
		if !s.show(read) {
			return false
		}
	}
	return false
}

// ending reports whether the stream has to end where it is.
func (s *stream) ending() bool { return s.lived.Load() || s.Draining() || s.follower.Ended() }

// show writes a page of events, and reports whether the stream goes on: not after the
// last event of a closed conversation.
func (s *stream) show(read conversation.ReadResponse) bool {
	var out []byte
	for i, e := range read.Events {
		var err error
		if out, err = conversation.AppendEvent(out, e); err != nil {
			return false
		}
		if len(out) >= flushAt || i == len(read.Events)-1 {
			if s.ending() || s.Write(out) != nil {
				return false
			}
			out = out[:0]
		}
	}
	return read.HasMore || read.Status != conversation.Closed
}

// Over implements httpx.Turns.
func (s *stream) Over() {
	s.beat.Stop()
	s.life.Stop()
	s.follower.Close()
	s.leave()
}
