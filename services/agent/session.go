package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
)

// SessionInfo is what may be shown of a Session: no token.
type SessionInfo struct {
	ID       string
	Expires  time.Time // of the newest token
	Scope    string
	SignedIn bool
	UserID   string
}

// standing says in words whether the Session is signed in.
func (s SessionInfo) standing() string {
	if s.SignedIn {
		return "signed in, scope " + s.Scope
	}
	return "signed out"
}

// SessionOptions says which Session is wanted.
type SessionOptions struct {
	New       bool // another Session even if there is one
	SignedOut bool // leave the Account Token alone
}

// A visit is one User at one verified Company, ready to make requests.
type visit struct {
	agent     *Agent
	company   Company
	rel       *relation
	signedOut bool // the Account Token, if there is one, is not to be used
}

// visit opens what is kept of the User at the Company and makes sure that there is a
// Session Token with some life left, signed in where the agent has an Account Token.
func (a *Agent) visit(ctx context.Context, c Company, opts SessionOptions) (*visit, error) {
	v, err := a.open(c, opts)
	if err != nil {
		return nil, err
	}
	return v, v.ensureSession(ctx)
}

// open is visit without a request to the Company: there may be no Session yet.
func (a *Agent) open(c Company, opts SessionOptions) (*visit, error) {
	if a.identity.signer == nil {
		return nil, fail(ExitUsage, "4.1", "this needs an identity; run: poppyfield agent init")
	}
	rel, err := openRelation(a.dir, a.user, c.issuer)
	if err != nil {
		return nil, err
	}
	for origin, nonce := range rel.Nonces {
		a.nonces[origin] = nonce
	}
	v := &visit{agent: a, company: c, rel: rel, signedOut: opts.SignedOut}
	if opts.New {
		rel.Session = nil
	}
	return v, nil
}

// Session starts a Session at the Company or renews the one the agent has.
func (a *Agent) Session(ctx context.Context, domain string, opts SessionOptions) (SessionInfo, error) {
	c, err := a.Discover(ctx, domain)
	if err != nil {
		return SessionInfo{}, err
	}
	v, err := a.visit(ctx, c, opts)
	if err != nil {
		return SessionInfo{}, err
	}
	return v.sessionInfo(), nil
}

func (v *visit) sessionInfo() SessionInfo {
	s := v.rel.Session
	return SessionInfo{ID: s.ID, Expires: s.Expires, Scope: s.Scope, SignedIn: s.SignedIn, UserID: v.rel.UserID}
}

func (v *visit) ensureSession(ctx context.Context) error {
	s := v.rel.Session
	account, err := v.account()
	if err != nil {
		return err
	}
	// A token stays as signed in as it was when it was issued (poppy-0.1/4.4#44).
	fits := s != nil && s.Resource == v.company.resource && s.SignedIn == (account != nil)
	if fits && v.agent.clock.Now().Add(expiryMargin).Before(s.Expires) {
		v.agent.report(Step{
			Section: "4.2", Title: "Use the Session Token at hand", OK: true,
			Detail: fmt.Sprintf("%s, token until %s", s.ID, s.Expires.Format(time.RFC3339)),
		})
		return nil
	}
	return v.renew(ctx)
}

// renew gets a new token for the Session, or a new Session where there is none any
// more: a signed-in one by Account Token, else a signed-out one by assertion.
func (v *visit) renew(ctx context.Context) error {
	if !v.signedOut {
		scope := ""
		if v.rel.Session != nil {
			scope = v.rel.Session.Narrowed
		}
		if done, err := v.refresh(ctx, scope); done || err != nil {
			return err
		}
	}
	return v.renewSignedOut(ctx)
}

func (v *visit) renewSignedOut(ctx context.Context) error {
	if s := v.rel.Session; s != nil {
		err := v.requestToken(ctx, s.ID)
		if !refusedWith(err, "invalid_session") {
			return err
		}
		v.rel.Session = nil // poppy-0.1/4.2#44, poppy-0.1/4.9#11: the Session is over
	}
	return v.requestToken(ctx, "")
}

// requestToken makes the JWT bearer grant of 4.2, with session_id for a renewal.
func (v *visit) requestToken(ctx context.Context, sessionID string) error {
	title := "Start a Session"
	if sessionID != "" {
		title = "Renew the Session Token"
	}
	form := v.tokenForm(grantJWTBearer)
	setIf(form, "session_id", sessionID)
	in, err := v.postForm(ctx, formRequest{
		section: "4.2", title: title, url: v.company.tokenEndpoint, form: form, proof: true,
		fresh: func(form url.Values) error {
			session, err := v.assertion(v.rel.UserID)
			form.Set("assertion", session)
			return err
		},
	})
	if err != nil {
		return err
	}
	if in.status != http.StatusOK {
		return fail(ExitRefused, "4.2", "no Session").because(parseRefusal(in, v.agent.clock.Now()))
	}
	s, err := parseTokenAnswer(in.body, sessionID, v.agent.clock.Now())
	if err := v.reportAnswer("4.2", s, err); err != nil {
		return err
	}
	return v.takeSession(s, v.company.resource)
}

// reportAnswer says what a token answer holds, and gives the failure of one that is no good.
func (v *visit) reportAnswer(section string, s session, err error) error {
	v.agent.report(Step{Section: section, Title: "The token answer is complete", OK: err == nil, Detail: describeSession(s, err)})
	if err != nil {
		return fail(ExitRefused, section, "the token answer").because(err)
	}
	return nil
}

// takeSession keeps a Session Token that was issued for resource.
func (v *visit) takeSession(s session, resource string) error {
	s.Resource = resource
	v.rel.Session = &s // poppy-0.1/4.3#43: from now on only this one
	return v.save()
}

func (v *visit) save() error {
	v.rel.Nonces = map[string]string{}
	for _, at := range []string{v.company.tokenEndpoint, v.company.conversations, v.company.mediatedEndpoint()} {
		if nonce, ok := v.agent.nonces[originOf(at)]; ok {
			v.rel.Nonces[originOf(at)] = nonce
		}
	}
	return v.rel.save()
}

// proof makes the DPoP Proof of one request (4.3); token is empty at the token endpoint.
func (v *visit) proof(out *outgoing, token string) (string, error) {
	u, err := url.Parse(out.url)
	if err != nil {
		return "", fmt.Errorf("the request's URL: %w", err)
	}
	u.RawQuery, u.Fragment = "", "" // poppy-0.1/4.3#12
	claims := dpop.ProofClaims{
		JTI: randomText(18), Method: out.method, URL: u.String(), IssuedAt: v.agent.clock.Now(),
		Nonce: v.agent.nonces[originOf(out.url)],
	}
	if token != "" {
		claims.TokenHash = dpop.TokenHash(token)
	}
	proof, err := dpop.BuildProof(v.rel.signer, claims)
	if err != nil {
		return "", fmt.Errorf("the DPoP Proof: %w", err)
	}
	return proof, nil
}

// parseTokenAnswer checks what 4.2 says of the answer. The token itself is opaque
// (poppy-0.1/4.2#45).
func parseTokenAnswer(raw []byte, asked string, now time.Time) (session, error) {
	var in struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
		Scope       string `json:"scope"`
		SessionID   string `json:"session_id"`
		SignedIn    *bool  `json:"signed_in"`
	}
	if err := parseObject(raw, &in); err != nil {
		return session{}, err
	}
	switch {
	case in.AccessToken == "" || strings.ContainsFunc(in.AccessToken, func(c rune) bool { return c <= ' ' || c > '~' }):
		return session{}, errors.New("access_token is missing or can't stand in a header")
	case !strings.EqualFold(in.TokenType, "DPoP"):
		return session{}, fmt.Errorf("token_type is %.40q, not DPoP", in.TokenType)
	case in.ExpiresIn <= 0:
		return session{}, fmt.Errorf("expires_in is %d", in.ExpiresIn)
	case in.SessionID == "":
		return session{}, errors.New("session_id is missing")
	case asked != "" && in.SessionID != asked:
		return session{}, fmt.Errorf("session_id is %.80q, renewed was %.80q", in.SessionID, asked)
	case in.SignedIn == nil:
		return session{}, errors.New("signed_in is missing")
	}
	life := min(in.ExpiresIn, int64((10*365*24*time.Hour)/time.Second))
	return session{
		ID: in.SessionID, Token: in.AccessToken, Expires: now.Add(time.Duration(life) * time.Second),
		Scope: in.Scope, SignedIn: *in.SignedIn,
	}, nil
}

func describeSession(s session, err error) string {
	if err != nil {
		return err.Error()
	}
	how := SessionInfo{SignedIn: s.SignedIn, Scope: s.Scope}.standing()
	return fmt.Sprintf("%s, %s, token until %s", s.ID, how, s.Expires.Format(time.RFC3339))
}

// errorCode reads the error of an answer, from the JSON body or from
// WWW-Authenticate (section 6, RFC 9449); empty when it is none.
func errorCode(in incoming) string {
	if in.status < http.StatusBadRequest {
		return ""
	}
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(in.body, &body) == nil && body.Error != "" {
		return clip(body.Error)
	}
	return clip(challenge(in.header, "error"))
}

// challenge returns a parameter of a WWW-Authenticate header of the DPoP scheme.
func challenge(h http.Header, name string) string {
	for _, v := range h.Values("Www-Authenticate") {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(v), " ")
		if !strings.EqualFold(scheme, "DPoP") {
			continue
		}
		for part := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if strings.EqualFold(key, name) {
				return strings.Trim(value, `"`)
			}
		}
	}
	return ""
}

func parseRefusal(in incoming, now time.Time) *refusalError {
	var body struct {
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(in.body, &body)
	r := &refusalError{
		status: in.status, code: errorCode(in), description: clip(body.Description),
		scope: clip(challenge(in.header, "scope")),
	}
	if limited(in) {
		r.retryAfter = retryAfter(in.header, now)
	}
	return r
}

// clip bounds text of a Company that goes into one line.
func clip(s string) string {
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return printable(strings.ReplaceAll(s, "\n", " "))
}
