package app

import (
	"context"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// ListenerChange is what may change of an endpoint that listens; nil leaves a field.
type ListenerChange struct {
	DisplayName  *string
	URL          *string
	EventTypes   *[]string
	Policy       PolicyChange
	ETag         string
	ValidateOnly bool
}

// Listener returns an endpoint that listens.
func (a *App) Listener(ctx context.Context, scope tenancy.Scope, id string) (Endpoint, error) {
	e, _, err := a.store.Endpoint(ctx, scope, id, a.now())
	return e, err
}

// Listeners returns endpoints that listen, the oldest first, after the one with the
// given time and id; a zero time begins.
func (a *App) Listeners(ctx context.Context, scope tenancy.Scope, after time.Time, afterID string, n int) ([]Endpoint, error) {
	return a.store.Listeners(ctx, scope, after, afterID, n)
}

// ListenerHealth is Health, and what waits for the listener.
func (a *App) ListenerHealth(ctx context.Context, scope tenancy.Scope, e Endpoint) (Health, error) {
	h := a.Health(e)
	var err error
	h.Pending, h.OldestPending, err = a.store.Pending(ctx, scope, e.ID)
	return h, err
}

// CreateListener makes an endpoint that listens, with an HMAC secret whose value is
// shown this once.
func (a *App) CreateListener(ctx context.Context, scope tenancy.Scope, ch ListenerChange) (Endpoint, Secret, string, error) {
	now := a.now()
	e := NewListener()
	e.ID, e.CreatedAt, e.UpdatedAt, e.Version = ids.New(ids.Endpoint), now, now, 1
	if ch.URL == nil {
		ch.URL = new(string)
	}
	if err := a.changeListener(scope, &e, ch); err != nil {
		return Endpoint{}, Secret{}, "", err
	}
	if ch.ValidateOnly {
		e.ID = ""
		return e, Secret{}, "", nil
	}
	secrets, err := a.Secrets(ctx, scope, Backend)
	if err != nil {
		return Endpoint{}, Secret{}, "", err
	}
	// Before anything that can't be said twice: the secret is shown once.
	if err := a.ensureKey(ctx, scope, secrets); err != nil {
		return Endpoint{}, Secret{}, "", err
	}
	s, reveal, err := a.newSecret(scope, e.ID, HMAC, now)
	if err != nil {
		return Endpoint{}, Secret{}, "", err
	}
	if e, err = a.store.CreateListener(ctx, scope, e, s, maxListeners); err != nil {
		return Endpoint{}, Secret{}, "", err
	}
	a.changed(ctx, scope)
	return e, s, reveal, nil
}

// UpdateListener changes an endpoint. What waits goes to the new URL.
func (a *App) UpdateListener(ctx context.Context, scope tenancy.Scope, id string, ch ListenerChange) (Endpoint, error) {
	moved := false
	apply := func(e *Endpoint) error {
		if err := resource.CheckETag(ch.ETag, e.Version); err != nil {
			return err
		}
		before := e.URL
		if err := a.changeListener(scope, e, ch); err != nil {
			return err
		}
		if moved = e.URL != before; moved {
			e.afresh()
		}
		return nil
	}
	if ch.ValidateOnly {
		e, err := a.Listener(ctx, scope, id)
		if err != nil {
			return Endpoint{}, err
		}
		return e, apply(&e)
	}
	e, err := a.store.UpdateEndpoint(ctx, scope, id, apply)
	if err != nil {
		return Endpoint{}, err
	}
	a.changed(ctx, scope)
	if moved {
		a.reachable(ctx, scope)
	}
	return e, nil
}

func (a *App) changeListener(scope tenancy.Scope, e *Endpoint, ch ListenerChange) error {
	c, err := a.open(scope, *e)
	if err != nil {
		return err
	}
	var f faults
	before := e.URL
	if ch.DisplayName != nil {
		e.DisplayName = *ch.DisplayName
		f.check(len([]rune(e.DisplayName)) <= maxDisplay, "endpoint.display_name", "is too long")
	}
	if ch.URL != nil {
		e.URL = *ch.URL
		switch {
		case e.URL == "":
			f.add("endpoint.url", "required")
		case len(e.URL) > maxURL:
			f.add("endpoint.url", "is too long")
		default:
			if err := a.check(e.URL); err != nil {
				f.add("endpoint.url", err.Error())
			}
		}
	}
	e.keepSecretsHome(&c, before)
	if ch.EventTypes != nil {
		e.EventTypes = *ch.EventTypes
		f.check(len(e.EventTypes) <= maxPatterns, "endpoint.event_types", "at most 50 types")
		for i, p := range e.EventTypes {
			path := "endpoint.event_types[" + strconv.Itoa(i) + "]"
			if err := webhook.CheckEventPattern(path, p); err != nil {
				f.add(path, "no event has such a type")
			}
		}
	}
	ch.Policy.apply(e, &c, "endpoint.policy", &f)
	if err := f.error(); err != nil {
		return err
	}
	return a.seal(scope, e, c)
}

// DeleteListener deletes an endpoint and what waits for it.
func (a *App) DeleteListener(ctx context.Context, scope tenancy.Scope, id, etag string) error {
	err := a.store.DeleteListener(ctx, scope, id, func(e Endpoint) error { return resource.CheckETag(etag, e.Version) })
	if err != nil {
		return err
	}
	a.lives.forget(id)
	a.changed(ctx, scope)
	return nil
}

// EnableListener turns an endpoint on again; what waited is sent.
func (a *App) EnableListener(ctx context.Context, scope tenancy.Scope, id string) (Endpoint, error) {
	e, err := a.store.UpdateEndpoint(ctx, scope, id, func(e *Endpoint) error {
		e.enable()
		return nil
	})
	if err != nil {
		return Endpoint{}, err
	}
	a.changed(ctx, scope)
	a.reachable(ctx, scope)
	return e, nil
}

// DisableListener turns an endpoint off. What happens from now on waits for it.
func (a *App) DisableListener(ctx context.Context, scope tenancy.Scope, id, reason string) (Endpoint, error) {
	if len([]rune(reason)) > maxReason {
		return Endpoint{}, resource.Invalid("reason", "is too long")
	}
	if reason == "" {
		reason = "turned off"
	}
	e, err := a.store.UpdateEndpoint(ctx, scope, id, func(e *Endpoint) error {
		e.Enabled, e.DisableReason = false, reason
		return nil
	})
	if err != nil {
		return Endpoint{}, err
	}
	a.changed(ctx, scope)
	return e, nil
}

// TestListener sends an example of an event at once; "" sends a ping.
func (a *App) TestListener(ctx context.Context, scope tenancy.Scope, id, eventType string) (Logged, error) {
	e, err := a.Listener(ctx, scope, id)
	if err != nil {
		return Logged{}, err
	}
	now := a.now()
	var body []byte
	if eventType == "" || eventType == webhook.EventPing {
		body, err = webhook.BuildEvent(webhook.EventPing, scope.Name(), now, webhook.PingData{Endpoint: named(scope, e)})
	} else if body, err = webhook.ExampleEvent(eventType, now); problem.Is(err, problem.NotFoundReason) {
		err = resource.Invalid("event_type", "no event has such a type")
	}
	if err != nil {
		return Logged{}, err
	}
	t := Telling{ID: ids.New(ids.Event), Body: body, DeliveryID: ids.New(ids.Telling), Test: true}
	if _, err := a.Tell(ctx, scope, id, t); err != nil {
		return Logged{}, err
	}
	got, err := a.Attempts(ctx, scope, AttemptQuery{DeliveryID: t.DeliveryID, EndpointID: id, Limit: 1})
	if err != nil {
		return Logged{}, err
	}
	if len(got) == 0 {
		return Logged{}, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the test was sent, and what came of it could not be written down")
	}
	return got[0], nil
}
