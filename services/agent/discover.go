package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const maxRedirects = 5

// A Company is one whose documents passed every check of section 3; only Discover
// makes one. Nothing is ever sent to a Company before that.
type Company struct {
	name, domain, issuer string
	asked                string // the domain as the User named it, with a port where there was one
	tokenEndpoint        string
	revocationEndpoint   string
	authorization        string // the authorization_endpoint, for Direct Sign-In
	deviceAuthorization  string // the device_authorization_endpoint, for Device Sign-In
	offers               []offer
	conversations        string // empty: the Company offers none
	resource             string // RFC 8707: the conversation endpoint wants tokens of its own
	checkedAt            time.Time
}

// Name is what the Company calls itself.
func (c Company) Name() string { return c.name }

// Domain is the organization.domain that was checked.
func (c Company) Domain() string { return c.domain }

// Issuer identifies the Company (3.2).
func (c Company) Issuer() string { return c.issuer }

// checklist reports each check as a step and keeps the first that failed.
type checklist struct {
	agent  *Agent
	failed *Error
}

func (c *checklist) check(section, title string, ok bool, format string, args ...any) bool {
	detail := fmt.Sprintf(format, args...)
	c.agent.report(Step{Section: section, Title: title, OK: ok, Detail: detail})
	if !ok && c.failed == nil {
		c.failed = fail(ExitDiscovery, section, "%s: %s", title, detail)
	}
	return ok
}

// Discover finds out how to work with the Company that speaks for domain, and makes
// every check that section 3 asks of agents. It goes on after a failed check as far
// as that is harmless, so that all of them are shown; the first decides the error.
func (a *Agent) Discover(ctx context.Context, domain string) (Company, error) {
	t, err := parseTarget(domain)
	if err != nil {
		return Company{}, err
	}
	list := &checklist{agent: a}
	raw, err := a.fetchDocument(ctx, t, list)
	if err != nil {
		return Company{}, err
	}
	doc, err := parsePoppyDocument(raw)
	if !list.check("3.1", "poppy.json is one JSON object without repeated members", err == nil, "%s", outcome(err)) {
		return Company{}, list.failed
	}
	c := a.checkDocument(t, doc, list)
	if c.issuer != "" {
		if err := a.checkIssuer(ctx, doc, &c, list); err != nil {
			return Company{}, err
		}
	}
	if list.failed != nil {
		return Company{}, list.failed
	}
	c.checkedAt = a.clock.Now()
	return c, nil
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "yes"
}

// fetchDocument gets poppy.json, following redirects that stay on https.
func (a *Agent) fetchDocument(ctx context.Context, t target, list *checklist) ([]byte, error) {
	at := t.documentURL()
	for hop := 0; ; hop++ {
		in, err := a.fetch(ctx, "3", "Fetch poppy.json of "+t.host, at)
		if err != nil {
			return nil, err
		}
		if !isRedirect(in.status) {
			list.check("3", "Every redirect of poppy.json is to an https URL", true, "%d followed", hop)
			if !list.check("3", "poppy.json is published at the well-known URL", in.status == http.StatusOK, "status %d", in.status) {
				return nil, list.failed
			}
			return in.body, nil
		}
		next, err := redirectTarget(at, in.header.Get("Location"))
		if hop >= maxRedirects {
			err = fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if err != nil { // poppy-0.1/3#6
			list.check("3", "Every redirect of poppy.json is to an https URL", false, "%s", err)
			return nil, list.failed
		}
		at = next
	}
}

func redirectTarget(from, location string) (string, error) {
	if location == "" {
		return "", errors.New("redirect without a Location")
	}
	base, err := url.Parse(from)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", from)
	}
	to, err := base.Parse(location)
	if err != nil {
		return "", fmt.Errorf("redirect to %.200q, which is not a URL", location)
	}
	to.Fragment = ""
	if _, err := httpsURL(to.String()); err != nil {
		return "", err
	}
	return to.String(), nil
}

// checkDocument makes the checks that need poppy.json alone.
func (a *Agent) checkDocument(t target, doc poppyDocument, list *checklist) Company {
	c := Company{name: doc.Organization.Name, domain: doc.Organization.Domain, asked: t.authority}
	major, ok := protocolMajor(doc.ProtocolVersion)
	list.check("3.1", "protocol_version has a major version this agent knows", ok && major == "0", "%q", doc.ProtocolVersion)
	list.check("3.1", "organization.name is there", doc.Organization.Name != "", "%q", doc.Organization.Name)
	list.check("3.1", "organization.domain is the domain that was asked", t.speaksFor(doc.Organization.Domain),
		"%q, asked was %q", doc.Organization.Domain, t.host)
	offers := doc.Agent != nil || len(doc.APIs) > 0 || present(doc.Web)
	list.check("3.1", "The Company offers agent, apis or web", offers, "%s", offered(doc))

	if doc.Auth == nil {
		list.check("3.1", "auth names the Company's issuer", doc.Agent == nil && len(doc.APIs) == 0, "no auth")
	} else {
		_, err := metadataURLs(doc.Auth.Issuer)
		if list.check("3.2", "auth.issuer is an https URL", err == nil, "%q", doc.Auth.Issuer) {
			c.issuer = doc.Auth.Issuer
		}
		var skipped []string
		c.offers, skipped = parseOffers(doc)
		if len(skipped) > 0 {
			a.report(Step{Section: "4.4", Title: "Skip sign-in types whose description is of no use", OK: true, Detail: strings.Join(skipped, ", ")})
		}
	}
	if doc.Agent != nil {
		var skipped []string
		for _, p := range doc.Agent.Protocols {
			if p.Type != "poppy" { // poppy-0.1/7.1#4
				skipped = append(skipped, fmt.Sprintf("%.40q", p.Type))
				continue
			}
			if c.conversations == "" {
				u, err := httpsURL(p.Endpoint)
				if list.check("7.1", "The poppy conversation endpoint is an https URL", err == nil && u.RawQuery == "" && u.Fragment == "", "%q", p.Endpoint) {
					c.conversations, c.resource = p.Endpoint, p.Resource
				}
			}
		}
		if len(skipped) > 0 {
			a.report(Step{Section: "7.1", Title: "Skip conversation protocols this agent doesn't know", OK: true, Detail: strings.Join(skipped, ", ")})
		}
	}
	if len(doc.Extensions) > 0 {
		names := make([]string, 0, len(doc.Extensions))
		for name := range doc.Extensions {
			names = append(names, fmt.Sprintf("%.80q", name))
		}
		slices.Sort(names)
		a.report(Step{Section: "3.3", Title: "Ignore extensions this agent doesn't support", OK: true, Detail: strings.Join(names, ", ")})
	}
	return c
}

// checkIssuer fetches the issuer's metadata and makes the checks of 3.2. Redirects are
// not followed here: nothing in 3.2 or RFC 8414 asks for it, and the issuer is what the
// Company is identified by.
func (a *Agent) checkIssuer(ctx context.Context, doc poppyDocument, c *Company, list *checklist) error {
	urls, err := metadataURLs(c.issuer)
	if err != nil {
		return fail(ExitDiscovery, "3.2", "auth.issuer").because(err)
	}
	var in incoming
	for _, at := range urls {
		if in, err = a.fetch(ctx, "3.2", "Fetch the issuer's OAuth metadata", at); err != nil {
			return err
		}
		if in.status != http.StatusNotFound {
			break
		}
	}
	if !list.check("3.2", "The issuer publishes its metadata", in.status == http.StatusOK, "status %d", in.status) {
		return nil
	}
	meta, err := parseMetadata(in.body)
	if !list.check("3.2", "The metadata is one JSON object without repeated members", err == nil, "%s", outcome(err)) {
		return nil
	}
	// poppy-0.1/3.2#6: exactly, without any normalisation.
	list.check("3.2", "issuer of the metadata is auth.issuer", meta.Issuer == c.issuer, "%q", meta.Issuer)
	// poppy-0.1/3.2#7: without it any domain could claim another Company's issuer and get its tokens.
	list.check("3.2", "poppy_domains lists organization.domain", slices.Contains(meta.PoppyDomains, c.domain), "%q", meta.PoppyDomains)

	endpoint := func(name, value string) {
		_, err := httpsURL(value)
		list.check("3.2", name+" is an https URL", err == nil, "%q", value)
	}
	endpoint("token_endpoint", meta.TokenEndpoint)
	endpoint("revocation_endpoint", meta.RevocationEndpoint)
	if doc.Auth != nil && present(doc.Auth.Direct) {
		endpoint("authorization_endpoint", meta.AuthorizationEndpoint)
	}
	if doc.Auth != nil && present(doc.Auth.Device) {
		endpoint("device_authorization_endpoint", meta.DeviceAuthorizationEndpoint)
	}
	accepts := func(what string, algs []string) {
		if len(algs) > 0 {
			list.check("3.2", "The Company accepts ES256 for "+what, slices.Contains(algs, "ES256"), "%q", algs)
		}
	}
	accepts("assertions", meta.AssertionAlgs)
	accepts("DPoP Proofs", meta.ProofAlgs)
	c.tokenEndpoint, c.revocationEndpoint = meta.TokenEndpoint, meta.RevocationEndpoint
	c.authorization, c.deviceAuthorization = meta.AuthorizationEndpoint, meta.DeviceAuthorizationEndpoint
	return nil
}

func present(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

func offered(doc poppyDocument) string {
	var parts []string
	if doc.Agent != nil {
		parts = append(parts, "conversations")
	}
	if len(doc.APIs) > 0 {
		parts = append(parts, fmt.Sprintf("%d APIs", len(doc.APIs)))
	}
	if present(doc.Web) {
		parts = append(parts, "web")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
