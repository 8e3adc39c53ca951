package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

// A Person is the User, as far as a sign-in has to speak with them.
type Person interface {
	// Show tells them something that they need in order to go on.
	Show(text string)
	// Browse opens a page in their own browser.
	Browse(ctx context.Context, url string) error
	// Ask asks for one line. What is typed for a secret isn't shown.
	Ask(ctx context.Context, label string, secret bool) (string, error)
}

// SignInOptions says how to sign in.
type SignInOptions struct {
	Type     string // SignInDirect, SignInDevice, SignInMediated; "" for the best that is offered
	Scope    string // with spaces between the names; "" for what the type lists
	Again    bool   // ask the User also where the agent has an Account Token that covers the scopes
	Language string // of the Company's pages, a language tag
	Browser  bool   // open the page in the User's browser
	// Credentials returns those of Mediated Sign-In by field; nil asks the User for each.
	Credentials func(ctx context.Context) (map[string]string, error)
}

// SignInResult is how a sign-in ended.
type SignInResult struct {
	Type      string // "" where the agent had an Account Token that covers the scopes
	Company   string
	Requested []string
	Granted   []string
	Expires   time.Time // of the Account Token; zero: the Company set no end
	Session   SessionInfo
}

// Missing lists the scopes that were asked for and not granted (poppy-0.1/4.4#33).
func (r SignInResult) Missing() []string {
	return slices.DeleteFunc(slices.Clone(r.Requested), func(s string) bool { return slices.Contains(r.Granted, s) })
}

// signIn is one sign-in in the User's Session at a Company.
type signIn struct {
	*visit
	offer  offer
	scope  oauth.Scope
	opts   SignInOptions
	person Person
}

// SignIn signs the User in at the Company that speaks for domain (4.4) and keeps the
// Account Token.
func (a *Agent) SignIn(ctx context.Context, domain string, opts SignInOptions, person Person) (SignInResult, error) {
	want, err := parseScopeFlag(opts.Scope)
	if err != nil {
		return SignInResult{}, err
	}
	c, err := a.Discover(ctx, domain)
	if err != nil {
		return SignInResult{}, err
	}
	chosen, want, err := c.chooseOffer(opts.Type, want, len(a.identity.RedirectURIs) > 0)
	if err != nil {
		return SignInResult{}, err
	}
	v, err := a.open(c, SessionOptions{})
	if err != nil {
		return SignInResult{}, err
	}
	s := &signIn{visit: v, offer: chosen, scope: want, opts: opts, person: person}
	if !opts.Again {
		covered, err := s.covered(ctx)
		switch {
		case err != nil:
			return SignInResult{}, err
		case covered:
			return s.result(""), nil
		}
	}
	if err := s.ensureSession(ctx); err != nil {
		return SignInResult{}, err
	}
	a.report(Step{
		Section: "4.4", Title: "Sign in", OK: true, Detail: chosen.kind + ", scope " + s.scope.String(),
	})
	if err := s.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = stopped(ctx, s.section(), err)
		}
		return SignInResult{}, err
	}
	return s.result(chosen.kind), nil
}

// covered uses the Account Token that there is where it covers the task, instead of
// bothering the User (poppy-0.1/4.4#47). Where it doesn't, the new one replaces it, so
// it has to have what the old one has as well (poppy-0.1/4.4#27).
func (s *signIn) covered(ctx context.Context) (bool, error) {
	kept, err := s.account()
	if err != nil || kept == nil {
		return false, err
	}
	if kept.covers(s.scope) {
		return s.refresh(ctx, "")
	}
	for name := range strings.FieldsSeq(kept.Scope) {
		if s.offer.scopes.Contains(name) && !s.scope.Contains(name) {
			s.scope = append(slices.Clone(s.scope), name)
		}
	}
	return false, nil
}

func (s *signIn) section() string {
	return map[string]string{SignInDirect: "4.5", SignInDevice: "4.6", SignInMediated: "4.7"}[s.offer.kind]
}

func (s *signIn) run(ctx context.Context) error {
	switch s.offer.kind {
	case SignInDirect:
		return s.direct(ctx)
	case SignInDevice:
		return s.device(ctx)
	default:
		return s.mediated(ctx)
	}
}

// stopped is the failure of a sign-in that the User broke off, or that took too long.
func stopped(ctx context.Context, section string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fail(ExitNoAnswer, section, "the sign-in was not finished in time; run the command again, with a longer --timeout if need be").because(ctx.Err())
	}
	var e *Error
	if errors.As(err, &e) && e.code == ExitUsage {
		return err
	}
	return fail(ExitNoAnswer, section, "stopped; nothing was changed").because(ctx.Err())
}

func (s *signIn) result(kind string) SignInResult {
	r := SignInResult{Type: kind, Company: s.company.name, Requested: s.scope, Session: s.sessionInfo()}
	r.Granted = strings.Fields(r.Session.Scope)
	if kept, err := s.account(); err == nil && kept != nil {
		r.Expires = kept.Expires
	}
	return r
}

// exchange sends what the User's sign-in gave to the token endpoint, for the Session
// there is. One that is over, or signed in to another account, is replaced by a new one
// (poppy-0.1/4.4#42); what was sent is not used up by the refusal.
func (s *signIn) exchange(ctx context.Context, r formRequest) (incoming, error) {
	r.section, r.url, r.proof = s.section(), s.company.tokenEndpoint, true
	r.expected = append(r.expected, "account_mismatch", "invalid_session")
	for fresh := false; ; fresh = true {
		r.form.Set("session_id", s.rel.Session.ID)
		in, err := s.postForm(ctx, r)
		if err != nil {
			return incoming{}, err
		}
		code := errorCode(in)
		if fresh || code != "account_mismatch" && code != "invalid_session" {
			return in, nil
		}
		if err := s.replaceSession(ctx, in); err != nil {
			return incoming{}, err
		}
	}
}

func (s *signIn) replaceSession(ctx context.Context, in incoming) error {
	s.anotherSession(parseRefusal(in, s.agent.clock.Now()))
	return s.requestToken(ctx, "")
}

// complete takes the answer that all three types end with (4.4).
func (s *signIn) complete(ctx context.Context, in incoming, resource string) error {
	if in.status != http.StatusOK {
		return fail(ExitRefused, s.section(), "not signed in").because(parseRefusal(in, s.agent.clock.Now()))
	}
	got, token, err := parseSignedIn(in.body, s.rel.Session.ID, s.agent.clock.Now())
	if err == nil && token.Token == "" {
		err = errors.New("refresh_token is missing")
	}
	if err := s.reportAnswer("4.4", got, err); err != nil {
		return err
	}
	granted := oauth.Scope(strings.Fields(token.Scope))
	s.agent.report(Step{
		Section: "4.4", Title: "The granted scopes are among those asked for", OK: s.scope.Covers(granted),
		Detail: "granted " + granted.String() + ", asked for " + s.scope.String(),
	})
	token.Issuer, token.Domain, token.Company = s.company.issuer, s.company.asked, s.company.name
	old, err := s.keep(ctx, token)
	if err != nil {
		return err
	}
	if err := s.takeSession(got, resource); err != nil {
		return err
	}
	if old != "" && old != token.Token {
		// poppy-0.1/4.4#29: should it fail, the User is signed in all the same.
		if err := s.revoke(ctx, "Revoke the Account Token that was replaced", old); err != nil {
			s.agent.report(Step{Section: "4.9", Title: "The replaced Account Token could not be revoked", Detail: err.Error()})
		}
	}
	return nil
}

// keep puts the new Account Token in the place of the old one, which it returns
// (poppy-0.1/4.4#28). Until here a sign-in changes nothing.
func (s *signIn) keep(ctx context.Context, token account) (string, error) {
	slot, err := openAccount(ctx, s.accountFile())
	if err != nil {
		return "", err
	}
	defer slot.close()
	old := ""
	if slot.kept != nil {
		old = slot.kept.Token
	}
	return old, slot.put(token)
}
