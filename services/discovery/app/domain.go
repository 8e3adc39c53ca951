package app

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// challengePrefix begins the TXT value that proves control.
const challengePrefix = "poppyfield-verify="

// TXTName is where the TXT record of a domain is looked for.
func TXTName(d discovery.Domain) string { return "_poppyfield." + d.String() }

// TXTValue is the value it must have.
func (d Domain) TXTValue() string { return challengePrefix + d.Challenge }

// CreateDomain registers a domain for a Company; it counts once proven.
func (a *App) CreateDomain(ctx context.Context, scope tenancy.Scope, name string, validateOnly bool) (Domain, error) {
	parsed, err := discovery.ParseDomain(name)
	if err != nil {
		return Domain{}, problem.As(err).WithField("domain.domain", problem.As(err).Detail)
	}
	now := a.now()
	d := Domain{
		ID: ids.New(ids.Domain), Domain: parsed, State: Pending, Challenge: strings.TrimPrefix(keys.RandomToken("v"), "v_"),
		NextCheckAt: &now, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	if validateOnly {
		return d, nil
	}
	return d, a.store.CreateDomain(ctx, scope, d)
}

// Domain returns one domain.
func (a *App) Domain(ctx context.Context, scope tenancy.Scope, id string) (Domain, error) {
	return a.store.Domain(ctx, scope, id)
}

// ListDomains returns up to n domains by name, after the given one.
func (a *App) ListDomains(ctx context.Context, scope tenancy.Scope, after string, n int) ([]Domain, error) {
	return a.store.ListDomains(ctx, scope, after, n)
}

// DeleteDomain makes the Company speak for the domain no longer.
func (a *App) DeleteDomain(ctx context.Context, scope tenancy.Scope, id string) error {
	if err := a.store.DeleteDomain(ctx, scope, id); err != nil {
		return err
	}
	a.changed(ctx, scope.CompanyID())
	return nil
}

// How long until an unproven domain is looked at again: the longer it is unproven, the longer.
const (
	firstRecheck = time.Minute
	lastRecheck  = 6 * time.Hour
)

// CheckDomain looks at DNS and at the redirect, records what it saw, and verifies the
// domain when either proves control. A verified domain stays verified.
func (a *App) CheckDomain(ctx context.Context, scope tenancy.Scope, id string) (Domain, error) {
	c, err := a.store.Company(ctx, scope)
	if err != nil {
		return Domain{}, err
	}
	d, err := a.store.Domain(ctx, scope, id)
	if err != nil {
		return Domain{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	txt, err := a.lookTXT(ctx, d)
	if err != nil {
		return Domain{}, err
	}
	redirect, err := a.lookRedirect(ctx, d.Domain, c.Issuer.DocumentURL(d.Domain))
	if err != nil {
		return Domain{}, err
	}
	seen := []Observation{txt, redirect}
	before := d.State
	d, err = a.store.UpdateDomain(ctx, scope, id, func(d *Domain) error {
		now := a.now()
		d.Observations, d.CheckedAt, d.NextCheckAt = seen, &now, nil
		if d.State == Verified {
			return nil
		}
		for _, o := range seen {
			if o.OK {
				d.State, d.ProofMethod, d.VerifiedAt = Verified, o.Method, &now
				return nil
			}
		}
		d.State = Pending
		next := now.Add(min(max(now.Sub(d.CreatedAt)/2, firstRecheck), lastRecheck))
		d.NextCheckAt = &next
		return nil
	})
	if err != nil {
		return Domain{}, err
	}
	if d.State != before {
		a.changed(ctx, scope.CompanyID())
	}
	return d, nil
}

func (a *App) lookTXT(ctx context.Context, d Domain) (Observation, error) {
	o := Observation{Method: DNSTXT, Expected: d.TXTValue()}
	values, failure, err := a.egress.TXT(ctx, TXTName(d.Domain))
	if err != nil {
		return Observation{}, err
	}
	o.Seen = clip(strings.Join(values, "\n"))
	for _, v := range values {
		if subtle.ConstantTimeCompare([]byte(strings.TrimSpace(v)), []byte(o.Expected)) == 1 {
			o.OK, o.Detail = true, "the record is there"
			return o, nil
		}
	}
	switch {
	case failure != "":
		o.Detail = failure
	case len(values) == 0:
		o.Detail = "there is no TXT record at " + TXTName(d.Domain)
	default:
		o.Detail = "the TXT records at " + TXTName(d.Domain) + " have other values"
	}
	return o, nil
}

// maxHops is how many redirects there may be from the well-known URL to our document.
const maxHops = 5

// lookRedirect follows the well-known URL over https until it points at our document
// (Poppy 3). It never needs to fetch the document itself, which isn't served before
// the domain is verified.
func (a *App) lookRedirect(ctx context.Context, d discovery.Domain, target string) (Observation, error) {
	o := Observation{Method: Redirect, Expected: target}
	at := "https://" + d.String() + discovery.WellKnownDocument
	for range maxHops {
		page, err := a.egress.Get(ctx, at)
		if err != nil {
			return Observation{}, err
		}
		if page.Failure != "" {
			o.Detail = at + ": " + page.Failure
			return o, nil
		}
		o.Seen = clip(fmt.Sprintf("%d %s%s", page.Status, page.ContentType, page.Location))
		if page.Status < 300 || page.Status > 399 || page.Location == "" {
			o.Detail = notRedirected(at, page)
			return o, nil
		}
		next, ok := resolve(at, page.Location)
		if !ok {
			o.Detail = at + " redirects to something that is no https URL"
			return o, nil
		}
		if next == target {
			o.OK, o.Detail = true, "the redirect is there"
			return o, nil
		}
		at = next
	}
	o.Detail = "more than 5 redirects, and none of them to the document here"
	return o, nil
}

func notRedirected(at string, p Page) string {
	if p.Status == 200 {
		return fmt.Sprintf("not published: %s answers 200 with %q instead of redirecting", at, p.ContentType)
	}
	return fmt.Sprintf("not published: %s answers %d instead of redirecting", at, p.Status)
}

func resolve(base, location string) (string, bool) {
	b, err := url.Parse(base)
	if err != nil {
		return "", false
	}
	u, err := b.Parse(location)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return "", false
	}
	u.Fragment = ""
	return u.String(), true
}

func clip(s string) string {
	if len(s) > 1000 {
		return strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}

// CheckDue checks up to n domains that are due, each on its own: one that fails doesn't stop the others.
func (a *App) CheckDue(ctx context.Context, n int) error {
	due, err := a.store.DueDomains(ctx, a.now(), n)
	if err != nil {
		return err
	}
	for _, d := range due {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := a.CheckDomain(ctx, d.Scope, d.DomainID); err != nil && !problem.Is(err, problem.NotFoundReason) {
			return err
		}
	}
	return nil
}
