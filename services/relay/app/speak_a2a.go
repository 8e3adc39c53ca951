package app

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/pieces"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/relay/a2a"
)

const (
	maxCard = 256 << 10
	// firstPoll and lastPoll bound the waits between questions how far a task is.
	firstPoll = 200 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// agentTurn is one attempt at an A2A agent.
type agentTurn struct {
	app    *App
	q      Question
	at     a2a.Interface
	header http.Header
	about  told
	pieces *pieces.Joiner
	answer *a2a.Answer
	seen   egress.Response // of the request before
}

// speakA2A tells an A2A agent the message and waits for the end of what it makes of it.
func (a *App) speakA2A(ctx context.Context, q Question, about told, p *pieces.Joiner) Spoken {
	found, failed := a.findAgent(ctx, q)
	if failed != nil {
		return *failed
	}
	t := &agentTurn{app: a, q: q, about: about, pieces: p, header: unsigned(q.Header)}
	var out Spoken
	for _, at := range found {
		t.at = at
		if out = t.run(ctx); notSpoken(out.Err) {
			continue
		}
		if len(found) > 1 && out.Err == nil && success(out.Response.Status) {
			a.agents.put(q.Endpoint, []a2a.Interface{t.at}, a.now()) // the one that worked need not be looked for again
		}
		return out
	}
	return out
}

func notSpoken(err error) bool {
	var reported *a2a.Error
	return errors.As(err, &reported) && reported.NotSpoken()
}

// run speaks to one interface: as a stream where the agent has that, and otherwise
// whole; then it asks how far the task is, until it is over.
func (t *agentTurn) run(ctx context.Context) Spoken {
	t.answer = a2a.NewAnswer(t.pieces.Add)
	err := t.send(ctx, t.at.Stream)
	var reported *a2a.Error
	if t.at.Stream && errors.As(err, &reported) && reported.NotStreamed() {
		t.at.Stream = false
		err = t.send(ctx, false)
	}
	for wait := firstPoll; err == nil && success(t.seen.Status) && !t.answer.Over(); wait = min(2*wait, lastPoll) {
		if t.answer.Task == "" {
			err = errors.New("the agent's answer broke off")
			break
		}
		if err = pause(ctx, wait); err == nil {
			err = t.poll(ctx)
		}
	}
	return t.spoken(err)
}

// pause waits, and is out of time when the attempt is.
func pause(ctx context.Context, d time.Duration) error {
	if clock.Wait(ctx, d) != nil {
		return &egress.Error{Kind: egress.Timeout, Detail: "the agent took too long"}
	}
	return nil
}

func (t *agentTurn) send(ctx context.Context, stream bool) error {
	body, err := t.at.BuildSend(a2a.Message{
		ID: t.q.ID, Context: t.q.ConversationID, Text: t.about.Message.Text, Data: t.about.Message.Data, Metadata: t.about.about,
	}, stream)
	if err != nil {
		return err
	}
	accept := jsonType
	if stream {
		accept = streamType + ", " + jsonType
	}
	return t.ask(ctx, body, accept)
}

func (t *agentTurn) poll(ctx context.Context) error {
	body, err := t.at.BuildGet(t.q.ID, t.answer.Task)
	if err != nil {
		return err
	}
	return t.ask(ctx, body, jsonType)
}

// ask makes one request and adds what comes to the answer.
func (t *agentTurn) ask(ctx context.Context, body []byte, accept string) error {
	header := t.header.Clone()
	header.Set(a2a.HeaderVersion, string(t.at.Version))
	res, err := t.app.ask(ctx, t.q, request{url: t.at.URL, header: header, body: body, accept: accept})
	if err != nil {
		t.seen = res.Answer(nil)
		return err
	}
	defer res.Body.Close()
	if !success(res.Status) {
		t.seen = refused(res).Response
		return nil
	}
	var seen []byte
	if res.ContentType == streamType {
		seen, err = follow(res, a2a.NewStream(t.answer))
	} else if seen, err = readWhole(res); err == nil {
		err = t.answer.Take(seen)
	}
	t.seen = res.Answer(evidence(seen))
	return err
}

// spoken says what came of the attempt.
func (t *agentTurn) spoken(err error) Spoken {
	out := Spoken{Response: t.seen, Err: err}
	var reported *a2a.Error
	switch {
	case errors.As(err, &reported):
		out.Reason, out.Err = "the agent reports error "+strconv.Itoa(reported.Code), badAnswer(err)
		return out
	case egress.KindOf(err) != "":
		return out
	case err != nil:
		out.Err = badAnswer(err)
		return out
	case !success(t.seen.Status):
		if t.seen.Status == http.StatusUnauthorized || t.seen.Status == http.StatusForbidden {
			out.Reason = "the API key is refused with status " + strconv.Itoa(t.seen.Status)
		}
		return out
	}
	if t.answer.State == a2a.Failed {
		// What it says of its failure is for the Company: many agents put their own errors there.
		out.Reason = "the agent's task failed"
		out.Err = badAnswer(errors.New(out.Reason))
		return out
	}
	messages, err := t.answer.Messages()
	if err != nil {
		out.Err = err
		return out
	}
	out.Answer = webhook.Answer{Reply: conversation.Reply{Messages: messages}}
	switch t.answer.State {
	case a2a.AuthRequired:
		out.Answer.Authorization, out.Err = conversation.NewAuthorization("sign_in_required", "")
	case a2a.Rejected, a2a.Canceled:
		// An agent that says why has answered. One that says nothing has not.
		out.Reason = "the agent's task was " + map[a2a.State]string{a2a.Rejected: "rejected", a2a.Canceled: "canceled"}[t.answer.State]
		if len(messages) == 0 {
			out.Err = badAnswer(errors.New(out.Reason))
		}
	case a2a.Open, a2a.Failed, a2a.Completed, a2a.InputRequired:
	}
	return out
}

// findAgent returns the interfaces to try, in their order. A URL that is neither a
// card's nor has one at its host is taken for the interface itself.
func (a *App) findAgent(ctx context.Context, q Question) ([]a2a.Interface, *Spoken) {
	u, err := url.Parse(q.Endpoint.URL)
	if err != nil {
		return nil, &Spoken{Err: &egress.Error{Kind: egress.InvalidURL, Detail: "the URL is malformed"}}
	}
	if found, ok := a.agents.get(q.Endpoint, a.now()); ok {
		return found, nil
	}
	card, named := u, a2a.IsCard(u)
	if !named {
		card = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: a2a.CardPath}
	}
	header := unsigned(q.Header)
	header.Set("Accept", jsonType)
	res, err := a.out.Send(ctx, egress.SendRequest{
		Method: http.MethodGet, URL: card.String(), Header: header, MaxBytes: maxCard, Timeout: q.Endpoint.Whole(), Certificate: q.Certificate,
	})
	if err != nil {
		return nil, &Spoken{Response: res, Err: err}
	}
	root := u.Path == "" || u.Path == "/"
	if res.Status != http.StatusOK {
		if named || root || res.Status >= http.StatusInternalServerError {
			return nil, &Spoken{Response: res, Reason: "the agent card is refused with status " + strconv.Itoa(res.Status)}
		}
		return guesses(q.Endpoint.URL), nil
	}
	found, err := a2a.ParseCard(res.Body)
	if err == nil && !named && !root {
		found = described(found, q.Endpoint.URL)
	}
	if err == nil {
		// Keys and certificates are the host's that was set up; a card may not send them elsewhere.
		found = atHost(found, u)
	}
	switch {
	case err != nil && !named && !root:
		found = guesses(q.Endpoint.URL)
	case err != nil:
		return nil, &Spoken{Response: res, Err: badAnswer(err), Reason: "the agent card can't be used"}
	case len(found) == 0:
		return nil, &Spoken{Response: res, Err: badAnswer(errors.New("the agent card names another host")), Reason: "the agent card names another host: set the agent's own URL"}
	}
	a.agents.put(q.Endpoint, found, a.now())
	return found, nil
}

// guesses are what an interface may be of which nothing is known.
func guesses(address string) []a2a.Interface {
	return []a2a.Interface{{URL: address, Version: a2a.V1, Stream: true}, {URL: address, Version: a2a.V03, Stream: true}}
}

// described returns what a card says of the interface at address, and guesses where it says nothing.
func described(found []a2a.Interface, address string) []a2a.Interface {
	var out []a2a.Interface
	for _, i := range found {
		if i.URL == address {
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return guesses(address)
	}
	return out
}

func atHost(found []a2a.Interface, u *url.URL) []a2a.Interface {
	var out []a2a.Interface
	for _, i := range found {
		if at, err := url.Parse(i.URL); err == nil && at.Scheme == u.Scheme && at.Host == u.Host {
			out = append(out, i)
		}
	}
	return out
}

// Bounds of what is remembered of agents.
const (
	agentFresh = 5 * time.Minute
	maxAgents  = 1000
)

// agents remembers what cards said, by the endpoint: the same URL may show another key
// another card.
type agents struct {
	mu   sync.Mutex
	seen map[string]agent
}

type agent struct {
	version int64 // of the endpoint's row: its URL and key may be others since
	found   []a2a.Interface
	until   time.Time
}

func (c *agents) get(e Endpoint, now time.Time) ([]a2a.Interface, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.seen[e.ID]
	return one.found, ok && one.version == e.Version && now.Before(one.until)
}

func (c *agents) put(e Endpoint, found []a2a.Interface, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil || len(c.seen) >= maxAgents {
		c.seen = map[string]agent{}
	}
	c.seen[e.ID] = agent{version: e.Version, found: found, until: now.Add(agentFresh)}
}
