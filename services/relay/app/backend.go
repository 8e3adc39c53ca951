package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Backend returns the Company's backend; one never set up has no ID and no URL.
func (a *App) Backend(ctx context.Context, scope tenancy.Scope) (Endpoint, error) {
	e, _, err := a.store.Endpoint(ctx, scope, Backend, a.now())
	return e, err
}

// BackendChange is what may change of a backend; nil leaves a field.
type BackendChange struct {
	Kind           *string
	URL            *string
	AckTimeout     *time.Duration
	AttemptTimeout *time.Duration
	DeliverLate    *bool
	APIKey         *string // an empty one takes it away
	Model          *string
	Instructions   *string
	History        *int
	Policy         PolicyChange
	ETag           string
	ValidateOnly   bool
}

// UpdateBackend changes the backend. The first URL also makes the key of v1a
// signatures, so that no webhook ever goes out unsigned.
func (a *App) UpdateBackend(ctx context.Context, scope tenancy.Scope, ch BackendChange) (Endpoint, error) {
	moved := false
	apply := func(e *Endpoint) error {
		if err := resource.CheckETag(ch.ETag, e.Version); err != nil {
			return err
		}
		before := *e
		if err := a.changeBackend(scope, e, ch); err != nil {
			return err
		}
		// Another place starts afresh, also after the old one said 410.
		if moved = e.URL != before.URL || e.Kind != before.Kind; moved {
			e.afresh()
		}
		return nil
	}
	now, secrets, err := a.store.Endpoint(ctx, scope, Backend, a.now())
	if err != nil {
		return Endpoint{}, err
	}
	// What is refused must not leave a key behind.
	if err := apply(&now); err != nil {
		return Endpoint{}, err
	}
	if ch.ValidateOnly {
		return now, nil
	}
	if now.IsSet() {
		if err := a.ensureKey(ctx, scope, secrets); err != nil {
			return Endpoint{}, err
		}
	}
	e, err := a.store.UpdateEndpoint(ctx, scope, Backend, apply)
	if err != nil {
		return Endpoint{}, err
	}
	a.changed(ctx, scope)
	if moved && e.IsSet() {
		a.reachable(ctx, scope)
	}
	return e, nil
}

func (a *App) changeBackend(scope tenancy.Scope, e *Endpoint, ch BackendChange) error {
	if e.ID == "" {
		e.ID = ids.New(ids.Backend)
	}
	c, err := a.open(scope, *e)
	if err != nil {
		return err
	}
	var f faults
	before := e.URL
	if ch.Kind != nil && *ch.Kind != e.Kind {
		e.Kind = *ch.Kind
		// What another kind was told is nothing to this one.
		c.APIKey, e.Model, e.Instructions, e.History = "", "", "", 0
		if e.Kind == KindStream {
			e.URL = ""
		}
	}
	a.changeURL(e, ch.URL, &f)
	e.keepSecretsHome(&c, before)
	changeTimeouts(e, ch, &f)
	if ch.DeliverLate != nil {
		e.DeliverLate = *ch.DeliverLate
	}
	changeModel(e, &c, ch, &f)
	ch.Policy.apply(e, &c, "backend.policy", &f)
	if err := f.error(); err != nil {
		return err
	}
	return a.seal(scope, e, c)
}

func (a *App) changeURL(e *Endpoint, url *string, f *faults) {
	if url != nil {
		e.URL = *url
	}
	switch {
	case e.Kind == KindStream:
		f.check(e.URL == "", "backend.url", "a backend that opens a stream has none")
	case e.URL == "": // an empty one takes the backend away
		f.check(e.Kind == KindWebhook, "backend.url", "is needed for this kind")
	case url != nil:
		if len(e.URL) > maxURL {
			f.add("backend.url", "is too long")
		} else if err := a.check(e.URL); err != nil {
			f.add("backend.url", err.Error())
		}
	}
}

func changeTimeouts(e *Endpoint, ch BackendChange, f *faults) {
	if ch.AttemptTimeout != nil {
		e.AttemptTimeout = *ch.AttemptTimeout
		f.check(e.AttemptTimeout == 0 || e.AttemptTimeout >= MinAttemptTimeout && e.AttemptTimeout <= MaxAttemptTimeout,
			"backend.attempt_timeout", "must be between 0.1 s and 5 min")
	}
	if ch.AckTimeout != nil {
		e.AckTimeout = *ch.AckTimeout
		f.check(e.AckTimeout == 0 || e.AckTimeout >= MinAttemptTimeout && e.AckTimeout <= MaxAckTimeout,
			"backend.ack_timeout", "must be between 0.1 s and 60 s")
	}
	if f.err == nil && e.AckTimeout > e.Whole() {
		f.add("backend.ack_timeout", "must not be longer than attempt_timeout")
	}
}

func changeModel(e *Endpoint, c *Credentials, ch BackendChange, f *faults) {
	if ch.APIKey != nil {
		c.APIKey = *ch.APIKey
		f.check(len(c.APIKey) <= maxAPIKey && isVisible(c.APIKey), "backend.api_key", "must be at most 4,096 visible ASCII characters")
		f.check(c.APIKey == "" || e.Kind == KindOpenAIChat || e.Kind == KindA2A, "backend.api_key", "is for the kinds OPENAI_CHAT and A2A")
	}
	if ch.Model != nil {
		e.Model = *ch.Model
		f.check(len(e.Model) <= maxModel, "backend.model", "is too long")
	}
	if ch.Instructions != nil {
		e.Instructions = *ch.Instructions
		f.check(len([]rune(e.Instructions)) <= maxPrompt, "backend.instructions", "has more than 32,000 characters")
	}
	if ch.History != nil {
		e.History = *ch.History
		f.check(e.History >= 0 && e.History <= maxHistory, "backend.history", "must be between 0 and 200")
	}
	if e.Kind != KindOpenAIChat {
		f.check(e.Model == "", "backend.model", "is for the kind OPENAI_CHAT")
		f.check(e.Instructions == "", "backend.instructions", "are for the kind OPENAI_CHAT")
		f.check(e.History == 0, "backend.history", "is for the kind OPENAI_CHAT")
	}
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// EnableBackend turns a disabled backend on again. What waits for it is tried at once,
// also when it was on.
func (a *App) EnableBackend(ctx context.Context, scope tenancy.Scope) (Endpoint, error) {
	e, err := a.store.UpdateEndpoint(ctx, scope, Backend, func(e *Endpoint) error {
		if !e.IsSet() {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the backend has no URL yet").WithField("backend.url", "required")
		}
		e.enable()
		return nil
	})
	if err == nil {
		a.reachable(ctx, scope)
	}
	return e, err
}

// enable turns the endpoint on. Whether it recovers from having been turned off by itself is seen at its next attempt.
func (e *Endpoint) enable() {
	recovering := e.Recovering
	e.afresh()
	e.Recovering = recovering
}

// Route is how a backend is delivered to.
type Route struct {
	Stream      bool
	Off         bool // of a stream: deliveries wait
	DropLate    bool // of a stream: what is late isn't delivered any more
	History     int  // messages of the conversation that Deliver needs, the last one included
	Schedule    []time.Duration
	MaxInFlight int
	Timeout     time.Duration // of one attempt at most
}

// Route returns how the Company's backend is delivered to.
func (a *App) Route(ctx context.Context, scope tenancy.Scope) (Route, error) {
	e, err := a.Backend(ctx, scope)
	if err != nil {
		return Route{}, err
	}
	out := Route{Stream: e.Kind == KindStream, Schedule: e.Schedule()[1:], MaxInFlight: e.InFlight(), Timeout: e.Whole()}
	switch e.Kind {
	case KindStream: // of the other kinds Deliver says it
		out.Off, out.DropLate = !e.Enabled, !e.DeliverLate
	case KindOpenAIChat:
		if out.History = e.History; out.History == 0 {
			out.History = DefaultHistory
		}
	case KindA2A:
		out.History = 1
	}
	return out, nil
}
