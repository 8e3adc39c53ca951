package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	// silence is more than twice what nginx waits for a word.
	silence = 130 * time.Second
	// quiet is how long a stream may say nothing at all: half of that.
	quiet = 30 * time.Second
)

func TestStream_CurlAndChromiumThroughNginxAsDebianShipsIt(t *testing.T) {
	t.Run("postgres", follow)
}

func follow(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/7.6#1", "poppy-0.1/7.6#2", "poppy-0.1/7.6#4", "poppy-0.1/7.6#5", "poppy-0.1/7.6#6", "poppy-0.1/7.6#7",
		"poppy-0.1/7.6#8", "poppy-0.1/7.6#9", "poppy-0.1/7.6#10", "poppy-0.1/7.6#11",
	)
	s := newScene(t)
	s.checkAsProxy(t)
	for _, r := range s.readers {
		r.follow(t)
	}
	s.everybodySees(t, "the first answer", message("you said: one"))
	s.send(t, "two")
	s.everybodySees(t, "the second answer", message("you said: two"))
	s.everybodySees(t, "rest", idle)

	s.keepSilent(t)

	s.post(t, "Are you still there?")
	s.everybodySees(t, "what the Company says by itself", message("Are you still there?"))
	s.streamAnswer(t, "three", "It is ", "on its ", "way.")
	s.everybodySees(t, "the whole of the streamed answer", message("It is on its way."))

	s.cutWithin(t, "four", "It will be there ", "on Monday.")
	s.post(t, "Or on Tuesday.")
	s.caughtUp(t, "Or on Tuesday.")
	for _, r := range s.readers {
		r.follow(t)
	}
	s.everybodySees(t, "what was said while they were away", message("Or on Tuesday."))
	s.streamAnswer(t, "five", "Have ", "a nice ", "day.")
	s.everybodySees(t, "the end of it", message("Have a nice day."))
	s.close(t)

	recorded := s.recorded(t)
	for _, r := range s.readers {
		check(t, r.seen(), recorded)
	}
}

// A scene is an installation with a Company, an agent in a conversation with it, and two readers.
type scene struct {
	*whole.Installation
	company      *whole.Company
	agent        *whole.Agent
	conversation string // its address
	readers      []reader
	pieces       chan string // of the answer that is being streamed
	answered     chan error  // what came of it
}

func newScene(t *testing.T) *scene {
	t.Helper()
	pages, err := filepath.Abs("pages")
	require.NoError(t, err)
	o := whole.StartOutside(t, publicnet.Outside+":443")
	s := &scene{Installation: whole.Serve(t, o, whole.InstallationOptions{StockProxy: true, Pages: pages})}
	s.company = whole.Onboard(t, s.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
	s.company.Backend.Answer(whole.Echo)
	found, err := whole.FindCompany(t.Context(), s.Client, "https://"+s.company.Domain)
	require.NoError(t, err)
	s.agent = whole.NewAgent(t, o, s.Client, found)
	require.NoError(t, s.agent.StartSession(t.Context()))
	id, err := s.agent.Open(t.Context(), fixture.RandomID(), "one")
	require.NoError(t, err)
	s.conversation = s.agent.Conversations + "/" + id

	// Two Sessions of one User see the same conversation.
	form := s.agent.TokenForm(t, s.agent.User, s.agent.Endpoints.Token, time.Now())
	at := s.conversation + "/events"
	s.readers = []reader{
		&curl{record: newRecord("curl"), agent: s.agent, address: at, certificates: s.CAFile},
		openPage(t, s.company.Issuer+"/pages/agent.html", at, s.agent.Endpoints.Token, form),
	}
	return s
}

// checkAsProxy asks for the stream as the proxy does, which keeps to itself what it is told.
func (s *scene) checkAsProxy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	at, err := url.Parse(s.conversation + "/events")
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Processes["all"].Public+at.Path, nil)
	require.NoError(t, err)
	r.Host = at.Host
	for name, value := range map[string]string{
		"X-Forwarded-Proto": "https", "Accept": "text/event-stream", "Accept-Encoding": "gzip",
		"Authorization": "DPoP " + s.agent.Token, "DPoP": s.agent.Proof(http.MethodGet, at.String(), s.agent.Token),
	} {
		r.Header.Set(name, value)
	}
	answer, err := s.Client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "no", answer.Header.Get("X-Accel-Buffering"))
	require.Empty(t, answer.Header.Get("Content-Encoding"))
}

func (s *scene) send(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, s.agent.Send(t.Context(), filepath.Base(s.conversation), fixture.RandomID(), text))
}

// post has the Company say something by itself.
func (s *scene) post(t *testing.T, text string) {
	t.Helper()
	path := s.company.Name + "/conversations/" + filepath.Base(s.conversation) + ":postMessage"
	require.NoError(t, s.API.Call(t.Context(), http.MethodPost, path, map[string]any{"message": map[string]any{"text": text}}, nil))
}

func (s *scene) close(t *testing.T) {
	t.Helper()
	answer, err := s.agent.Call(t.Context(), http.MethodPost, s.conversation+"/close", map[string]any{})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	s.everybody(t, "the end", func(r *record) bool { return len(r.ends) == 2 })
}

// everybody waits until every reader's record is as wanted.
func (s *scene) everybody(t *testing.T, what string, enough func(*record) bool) {
	t.Helper()
	for _, r := range s.readers {
		r.seen().await(t, what, func() bool { return enough(r.seen()) })
	}
}

// everybodySees waits until every reader has seen an event.
func (s *scene) everybodySees(t *testing.T, what string, wanted func(whole.Event) bool) {
	t.Helper()
	s.everybody(t, what, func(r *record) bool {
		for _, i := range r.items {
			if i.ID != "" && wanted(decode[whole.Event](i.Data)) {
				return true
			}
		}
		return false
	})
}

func message(text string) func(whole.Event) bool {
	return func(e whole.Event) bool { return e.Message.Role == "company" && e.Message.Text == text }
}

func idle(e whole.Event) bool { return e.Type == "state" && e.Status == "idle" }

// decode leaves what is no JSON to check, which compares all of it.
func decode[T any](data string) (out T) {
	_ = json.Unmarshal([]byte(data), &out)
	return out
}

// keepSilent says nothing for long, in which readers get comments, and nothing else.
func (s *scene) keepSilent(t *testing.T) {
	t.Helper()
	before := map[string]int{}
	s.caughtUp(t, "you said: two")
	for _, r := range s.readers {
		before[r.seen().name] = len(r.seen().all())
	}
	over := time.NewTimer(silence)
	defer over.Stop()
	select {
	case <-over.C:
	case <-t.Context().Done():
	}
	for _, r := range s.readers {
		seen := r.seen().all()[before[r.seen().name]:]
		for _, i := range seen {
			require.True(t, i.Comment, "%s: %+v in the silence", r.seen().name, i)
		}
		require.GreaterOrEqual(t, len(seen), int(silence/quiet), r.seen().name)
		require.Zero(t, r.seen().ended(), r.seen().name)
	}
}

// caughtUp waits until a message is recorded and answered, and every reader that follows has all there is.
func (s *scene) caughtUp(t *testing.T, text string) {
	t.Helper()
	events, last, err := s.agent.ReadUntil(t.Context(), filepath.Base(s.conversation), "", func(all []whole.Event) bool {
		return whole.Idle(all) && strings.Contains(strings.Join(whole.Texts(all), "\n"), "company: "+text)
	})
	require.NoError(t, err, "%+v", events)
	s.everybody(t, "the newest event", func(r *record) bool { return len(r.heads) == len(r.ends) || lastID(r.items) == last })
}

// ask sends a message to which the backend begins to stream an answer.
func (s *scene) ask(t *testing.T, text string) {
	t.Helper()
	s.pieces, s.answered = make(chan string), make(chan error, 1)
	s.company.Backend.AnswerAsStream(func(w io.Writer, _ whole.Webhook) {
		for piece := range s.pieces {
			raw, _ := json.Marshal(map[string]string{"text": piece})
			if _, err := fmt.Fprintf(w, "event: text-delta\ndata: %s\n\n", raw); err != nil {
				s.answered <- err
				return
			}
		}
		_, err := io.WriteString(w, "event: done\ndata: {}\n\n")
		s.answered <- err
	})
	s.send(t, text)
}

// say has the backend write a piece.
func (s *scene) say(t *testing.T, piece string) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	select {
	case s.pieces <- piece:
	case err := <-s.answered:
		t.Fatalf("the backend could not say %q: %v", piece, err)
	case <-timeout.C:
		t.Fatalf("the backend was not asked for %q", piece)
	}
}

func (s *scene) sayAndSee(t *testing.T, piece string) {
	t.Helper()
	s.say(t, piece)
	s.everybody(t, piece, func(r *record) bool {
		for _, i := range r.items {
			if i.Event == "text-delta" && decode[delta](i.Data).Text == piece {
				return true
			}
		}
		return false
	})
}

// streamAnswer has every piece of an answer seen by everybody before the next.
func (s *scene) streamAnswer(t *testing.T, question string, pieces ...string) {
	t.Helper()
	s.ask(t, question)
	for _, piece := range pieces {
		s.sayAndSee(t, piece)
	}
	close(s.pieces)
	require.NoError(t, <-s.answered)
}

// cutWithin cuts everybody's connection between two pieces of an answer, and leaves them away.
func (s *scene) cutWithin(t *testing.T, question, first, rest string) {
	t.Helper()
	s.ask(t, question)
	s.sayAndSee(t, first)
	s.StopProxy(t)
	s.everybody(t, "the cut", func(r *record) bool { return len(r.ends) == 1 })
	s.StartProxy(t)
	s.say(t, rest)
	close(s.pieces)
	require.NoError(t, <-s.answered)
	s.caughtUp(t, first+rest)
}

// recorded are all events of the conversation, as a read without a stream has them.
func (s *scene) recorded(t *testing.T) []json.RawMessage {
	t.Helper()
	var events []json.RawMessage
	for cursor, more := "", true; more; {
		answer, err := s.agent.Call(t.Context(), http.MethodGet, s.conversation+"/events?cursor="+url.QueryEscape(cursor), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
		var page struct {
			Events  []json.RawMessage
			Cursor  string
			HasMore bool `json:"has_more"`
		}
		require.NoError(t, json.Unmarshal(answer.Body, &page))
		events, cursor, more = append(events, page.Events...), page.Cursor, page.HasMore
	}
	return events
}
