package poppy

import (
	"context"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

// local judges a request by what is known; ok is false where that doesn't suffice. The
// checks and their order are those of VerifyRequest.
func (v *Verifier) local(r Request) (d *Decision, ok bool) {
	now := v.cfg.Now()
	rules, ok := v.known.table(now)
	if !ok || rules.nonceRequired || v.proofs.saturated(now) {
		return nil, false
	}
	target, err := rules.apis.Find(r.Method, r.URL)
	if err != nil {
		return nil, false // the answer is the server's: it is the Company's fault, not the agent's
	}
	auth, err := oauth.ParseAuthorization(r.Authorization)
	if err != nil {
		return refuse(err, target.API, nil), true
	}
	raw, _, err := dpop.ParseHeader(r.DPoP)
	if err != nil {
		return refuse(err, target.API, nil), true
	}
	hash := dpop.TokenHash(auth.Token)
	s, ok := v.known.standing(hash, now)
	if !ok {
		return nil, false
	}
	err = v.judge(r, target, auth.Scheme, raw, hash, s, rules, now)
	switch {
	case problem.Is(err, problem.TemporarilyUnavailable):
		return nil, false // no room to remember the proof
	case err != nil:
		return refuse(err, target.API, nil), true
	}
	if err := target.Check(s.session.SignedIn, s.session.Scopes); err != nil {
		return refuse(err, target.API, s.session), true
	}
	return &Decision{Allowed: true, Session: s.session, Header: http.Header{}, API: target.API.URL}, true
}

// judge makes all checks but those of the API's rules.
func (v *Verifier) judge(r Request, target access.Target, scheme oauth.Scheme, raw, hash string, s standing, rules *ruleSet, now time.Time) error {
	service := access.Service{Resource: target.API.Resource, MCP: target.API.MCP}
	if err := access.CheckToken(s.token, scheme, service); err != nil {
		return err
	}
	var proof dpop.VerifiedProof
	if scheme == oauth.DPoP {
		var err error
		proof, err = dpop.CheckProof(raw, dpop.Request{Method: r.Method, URL: target.URL, TokenHash: hash, KeyThumbprint: s.token.JKT}, now, dpop.Policy{})
		if err != nil {
			return err
		}
	}
	if ok, wait := v.requests.Allow(s.session.Name, rules.requestsPerMinute, now); !ok {
		return problem.New(problem.RateLimited, problem.RateLimitedReason, "", "too many requests in this Session").WithRetryAfter(wait)
	}
	if scheme != oauth.DPoP {
		return nil
	}
	return v.claim(proof, now)
}

// claim takes a proof for used; its problem is "unavailable" where that can't be remembered.
func (v *Verifier) claim(p dpop.VerifiedProof, now time.Time) error {
	switch v.proofs.claim(p, now) {
	case seen:
		return problem.New(problem.Unauthenticated, problem.InvalidDPoPProof, "", "the DPoP proof was used before")
	case full:
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "too many proofs to remember")
	case fresh:
	}
	return nil
}

// learn has a request judged by the server, and asks what the token stands for, so that
// the next one can be judged here. That the server is asked now and then is also what
// keeps a Session from idling out.
func (v *Verifier) learn(ctx context.Context, r Request) (*Decision, error) {
	d, err := v.remote(ctx, r)
	if err != nil || d.Session == nil {
		return d, err
	}
	auth, err := oauth.ParseAuthorization(r.Authorization)
	if err != nil {
		return d, nil //nolint:nilerr // the server has judged it; there is nothing to learn
	}
	// The server doesn't know which proofs were taken here.
	if again := v.sawBefore(r, auth); again != nil {
		return again, nil
	}
	v.known.learn(ctx, v.api, v.cfg, auth.Token)
	return d, nil
}

// sawBefore refuses a proof that was taken here before, and remembers one that wasn't.
// One that can't be remembered leaves everything to the server until it is too old.
func (v *Verifier) sawBefore(r Request, auth oauth.Authorization) *Decision {
	if auth.Scheme != oauth.DPoP || len(r.DPoP) != 1 {
		return nil
	}
	now := v.cfg.Now()
	address := r.URL
	if rules, ok := v.known.table(now); ok {
		if target, err := rules.apis.Find(r.Method, r.URL); err == nil {
			address = target.URL
		}
	}
	// The server has judged the time.
	times := dpop.Policy{MaxAge: remembered, MaxFuture: remembered}
	proof, err := dpop.CheckProof(r.DPoP[0], dpop.Request{Method: r.Method, URL: address, TokenHash: dpop.TokenHash(auth.Token)}, now, times)
	if err != nil {
		v.proofs.saturate(now)
		return nil
	}
	if err := v.claim(proof, now); problem.Is(err, problem.InvalidDPoPProof) {
		return refuse(err, &access.API{}, nil)
	}
	return nil
}

func refuse(err error, api *access.API, s *Session) *Decision {
	answer := refusal.OAuth(api.Refused(err), refusal.PlaceOf(api.MCP), "")
	return &Decision{
		Session: s, Status: answer.Status, Reason: problem.As(err).Reason.Wire(), Body: answer.Body, Header: answer.Header, API: api.URL,
	}
}
