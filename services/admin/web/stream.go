package web

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/services/admin/watch"
)

const (
	// overlap is how much of what was told before is told again to who comes back: of
	// two changes the later may have been committed first.
	overlap = 30 * time.Second
	// resumeWindow is how old a resume token may be.
	resumeWindow = 24 * time.Hour
	// writeTimeout is how long a client may take to take one frame.
	writeTimeout = 10 * time.Second
	// maxSent bounds what is remembered so as not to tell it twice.
	maxSent = 10_000
)

// Why a stream ends or has a gap.
const (
	whyDrain       = "drain"
	whyPermission  = "permission"
	whyUnavailable = "unavailable"
	whyTooMany     = "too_many_changes"
	whyExpired     = "token_expired"
	whyToken       = "token_invalid"
)

// stream is one open watch.
type stream struct {
	out       *events
	reader    *reader
	changes   *watch.Stream
	cursor    int64
	sent      map[string]string // etag by topic and name
	waiting   map[string]bool   // what the client may have in its inbox; nil for anything
	now       clock.Clock
	log       *slog.Logger
	connected func() bool
	allowed   func(context.Context) (bool, error)
}

var errGone = errors.New("the client has gone")

// run sends frames until the client leaves or has to.
func (s *stream) run(ctx context.Context, asked asking, heartbeat time.Duration, drain, stopping <-chan struct{}) {
	defer s.out.close()
	s.out.begin()
	now := s.now()
	s.cursor = token(now)
	// A first frame at once: it shows that the stream stands, and gives a token.
	if s.heartbeat(now) != nil || !s.ended(ctx, s.lookAround(ctx)) || !s.ended(ctx, s.resume(ctx, asked, now)) {
		return
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-drain:
			s.goodbye(whyDrain)
			return
		case <-stopping:
			s.goodbye(whyDrain)
			return
		case <-s.changes.Wake():
			err = s.told(ctx)
		case <-tick.C:
			err = s.beat(ctx)
		}
		if !s.ended(ctx, err) {
			return
		}
	}
}

// ended says goodbye for an error; it reports whether the stream goes on.
func (s *stream) ended(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, errGone), ctx.Err() != nil:
	case errors.Is(err, errForbidden):
		s.goodbye(whyPermission)
	default:
		// The client comes back with its token and misses nothing.
		s.log.WarnContext(ctx, "reading for a watch", "error", err)
		s.goodbye(whyUnavailable)
	}
	return false
}

var errForbidden = errors.New("the key may not watch any more")

// judge looks at the key again: permission is judged for what is sent, not only at the opening.
func (s *stream) judge(ctx context.Context) error {
	ok, err := s.allowed(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return errForbidden
	}
	return nil
}

// lookAround notes what is in the inbox, so that what leaves it can be told.
func (s *stream) lookAround(ctx context.Context) error {
	if !s.reader.inbox {
		return nil
	}
	there, whole, err := s.reader.waiting(ctx)
	if err != nil || !whole {
		return err
	}
	s.waiting = map[string]bool{}
	for _, c := range there {
		s.waiting[c.name] = true
	}
	return nil
}

// resume tells what changed since the client's token.
func (s *stream) resume(ctx context.Context, asked asking, now time.Time) error {
	switch {
	case asked.lost:
		return s.resync(whyToken)
	case asked.since == 0:
		return nil
	case asked.since < token(now.Add(-resumeWindow)):
		return s.resync(whyExpired)
	}
	return s.catchUp(ctx, asked.since, asked.since-overlap.Microseconds())
}

// missed tells what no doorbell told.
func (s *stream) missed(ctx context.Context) error { return s.catchUp(ctx, s.cursor, s.cursor+1) }

// catchUp tells everything that changed since a time in microseconds. What changed from
// gone on may have left the inbox unseen.
func (s *stream) catchUp(ctx context.Context, since, gone int64) error {
	changes, whole, err := s.reader.since(ctx, since-overlap.Microseconds())
	if err != nil {
		return err
	}
	if !whole {
		return s.resync(whyTooMany)
	}
	for _, c := range changes {
		if s.waiting != nil && !c.inInbox && c.at >= gone {
			s.waiting[c.name] = true
		}
	}
	return s.tell(changes)
}

// told looks at what the doorbells named.
func (s *stream) told(ctx context.Context) error {
	if err := s.judge(ctx); err != nil {
		return err
	}
	ids, all := s.changes.Take()
	if all {
		return s.missed(ctx)
	}
	var changes []change
	for _, id := range ids {
		if !s.reader.wants(id) {
			continue
		}
		c, err := s.reader.one(ctx, id)
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	order(changes)
	return s.tell(changes)
}

func (s *stream) beat(ctx context.Context) error {
	if err := s.judge(ctx); err != nil {
		return err
	}
	if !s.connected() { // no doorbell would ring
		if err := s.missed(ctx); err != nil {
			return err
		}
	}
	return s.heartbeat(s.now())
}

func (s *stream) tell(changes []change) error {
	for _, c := range changes {
		if err := s.tellOne(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) tellOne(c change) error {
	if s.reader.talks(c.name) {
		if err := s.say(c, "", c.removed); err != nil {
			return err
		}
	}
	if !s.reader.inbox {
		return nil
	}
	if c.inInbox {
		if s.waiting != nil {
			s.waiting[c.name] = true
		}
		return s.say(c, topicInbox, false)
	}
	if s.waiting != nil && !s.waiting[c.name] {
		return nil // it wasn't there before either
	}
	delete(s.waiting, c.name)
	return s.say(c, topicInbox, true)
}

// say tells a change. Frames of the inbox name their topic: what is removed from it is
// still a conversation.
func (s *stream) say(c change, topic string, removed bool) error {
	key, data := topic+" "+c.name, map[string]string{"name": c.name}
	if topic != "" {
		data["topic"] = topic
	}
	if removed {
		delete(s.sent, key)
		s.cursor = max(s.cursor, c.at)
		return s.out.send("removed", s.cursor, data)
	}
	if s.sent[key] == c.etag {
		return nil
	}
	if len(s.sent) >= maxSent {
		clear(s.sent)
	}
	s.sent[key] = c.etag
	s.cursor = max(s.cursor, c.at)
	data["etag"] = c.etag
	return s.out.send("changed", s.cursor, data)
}

// resync says that the client has to read its lists again: from here on it misses nothing.
func (s *stream) resync(why string) error {
	var topics []string
	switch {
	case s.reader.all:
		topics = append(topics, topicConversations)
	case len(s.reader.ids) > 0:
		topics = append(topics, topicConversation+s.reader.ids[0])
	}
	if s.reader.inbox {
		topics = append(topics, topicInbox)
	}
	for _, topic := range topics {
		if err := s.out.send("resync", s.cursor, map[string]string{"topic": topic, "why": why}); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) heartbeat(now time.Time) error {
	return s.out.send("heartbeat", s.cursor, map[string]string{"time": now.UTC().Format("2006-01-02T15:04:05.000Z")})
}

func (s *stream) goodbye(why string) {
	// It may be gone before it hears it.
	_ = s.out.send("goodbye", s.cursor, map[string]string{"why": why})
}

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, control: http.NewResponseController(w)}
}

func (e *events) begin() {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// Proxies that collect answers would hold frames back.
	h.Set("X-Accel-Buffering", "no")
	e.w.WriteHeader(http.StatusOK)
}

// send writes one frame and sees it off. A client that doesn't take it in time is cut.
func (e *events) send(kind string, id int64, data map[string]string) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	frame := "event: " + kind + "\nid: " + strconv.FormatInt(id, 10) + "\ndata: " + string(raw) + "\n\n"
	// Writers of tests have no deadlines.
	_ = e.control.SetWriteDeadline(clock.System().Add(writeTimeout))
	if _, err := e.w.Write([]byte(frame)); err != nil {
		return errGone
	}
	if err := e.control.Flush(); err != nil {
		return errGone
	}
	return nil
}

// close takes the deadline back, since the connection may serve another request.
func (e *events) close() { _ = e.control.SetWriteDeadline(time.Time{}) }
