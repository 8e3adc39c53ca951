package app

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
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
		return Domain{}, within("domain", err)
	}
	now := a.now()
	d := Domain{
		ID: ids.New(ids.Domain), Domain: parsed, State: Pending, Challenge: strings.TrimPrefix(keys.RandomToken("v"), "v_"),
		NextCheckAt: &now, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	if err := a.store.CreateDomain(ctx, scope, d, validateOnly); err != nil {
		return Domain{}, err
	}
	return d, nil
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
	txt, redirect, err := a.look(ctx, d, c.Issuer.DocumentURL(d.Domain))
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

// look tries both methods at once. Only egress itself failing is an error; a domain
// that can't be looked at in time is something seen.
func (a *App) look(ctx context.Context, d Domain, target string) (txt, redirect Observation, err error) {
	inner, cancel := context.WithTimeout(ctx, a.lookTime)
	defer cancel()
	var txtErr, redirectErr error
	var both sync.WaitGroup
	both.Go(func() { txt, txtErr = a.lookTXT(inner, d) })
	both.Go(func() { redirect, redirectErr = a.lookRedirect(inner, d.Domain, target) })
	both.Wait()
	if err := errors.Join(txtErr, redirectErr); err != nil && (ctx.Err() != nil || inner.Err() == nil) {
		return Observation{}, Observation{}, err
	}
	late := "no answer within " + a.lookTime.String()
	if txtErr != nil {
		txt.Detail = late
	}
	if redirectErr != nil {
		redirect.Detail = late
	}
	return txt, redirect, nil
}

func (a *App) lookTXT(ctx context.Context, d Domain) (Observation, error) {
	o := Observation{Method: DNSTXT, Expected: d.TXTValue()}
	values, failure, err := a.egress.TXT(ctx, TXTName(d.Domain))
	if err != nil {
		return o, err
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
// the domain is verified. Nor does it need to try a path that can't exist: a site
// that answers everything with 200 proves nothing here, and one that sends every
// path to the document of this Company and domain has chosen this Company.
func (a *App) lookRedirect(ctx context.Context, d discovery.Domain, target string) (Observation, error) {
	o := Observation{Method: Redirect, Expected: target}
	at := "https://" + d.String() + discovery.WellKnownDocument
	been := map[string]bool{at: true}
	for range maxHops {
		page, err := a.egress.Get(ctx, at)
		if err != nil {
			return o, err
		}
		o.Seen = clip(strings.TrimPrefix(o.Seen+"\n"+at+": "+page.summary(), "\n"))
		if page.Failure != "" {
			o.Detail = at + ": " + page.Failure
			return o, nil
		}
		if !page.redirects() {
			o.Detail = "not published: " + at + " answers " + page.summary() + " instead of redirecting"
			return o, nil
		}
		next, ok := resolve(at, page.Location)
		switch {
		case !ok: // poppy-0.1/3#6
			o.Detail = at + " redirects to something that is no https URL"
			return o, nil
		case next == target:
			o.OK, o.Detail = true, "the redirect is there"
			return o, nil
		case been[next]:
			o.Detail = "the redirects lead back to " + next
			return o, nil
		}
		been[next] = true
		at = next
	}
	o.Detail = fmt.Sprintf("more than %d redirects, and none of them to the document here", maxHops)
	return o, nil
}

func (p Page) redirects() bool {
	switch p.Status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return p.Location != ""
	default:
		return false
	}
}

// summary tells a person what p is.
func (p Page) summary() string {
	switch {
	case p.Failure != "":
		return p.Failure
	case p.redirects():
		return fmt.Sprintf("%d to %s", p.Status, p.Location)
	case p.ContentType != "":
		return fmt.Sprintf("%d with %s", p.Status, p.ContentType)
	default:
		return strconv.Itoa(p.Status)
	}
}

// resolve returns where location leads from base, in the spelling that issuers have:
// host in lower case, no default port, no fragment.
func resolve(base, location string) (string, bool) {
	b, err := url.Parse(base)
	if err != nil {
		return "", false
	}
	u, err := b.Parse(location)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", false
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), ":443")
	u.Fragment, u.RawFragment = "", ""
	return u.String(), true
}

func clip(s string) string {
	if len(s) > 1000 {
		return strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}

// CheckDue checks up to n domains that are due, each on its own: one that fails is
// put off and doesn't stop the others.
func (a *App) CheckDue(ctx context.Context, n int) error {
	due, err := a.store.DueDomains(ctx, a.now(), n)
	if err != nil {
		return err
	}
	var failed []error
	for _, d := range due {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := a.CheckDomain(ctx, d.Scope, d.DomainID)
		if err == nil || problem.Is(err, problem.NotFoundReason) {
			continue
		}
		failed = append(failed, err)
		_, err = a.store.UpdateDomain(ctx, d.Scope, d.DomainID, func(d *Domain) error {
			next := a.now().Add(firstRecheck)
			d.NextCheckAt = &next
			return nil
		})
		if err != nil && !problem.Is(err, problem.NotFoundReason) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
