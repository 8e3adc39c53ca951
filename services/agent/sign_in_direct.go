package agent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
)

// direct is Direct Sign-In: the User signs in at the Company in their own browser,
// which brings a one-time code back (4.5).
func (s *signIn) direct(ctx context.Context) error {
	flow, err := s.beginDirect()
	if err != nil {
		return err
	}
	code, err := s.sendUser(ctx, flow)
	if err != nil {
		return err
	}
	form := s.tokenForm(grantAuthorizationCode)
	form.Set("code", code)
	form.Set("redirect_uri", flow.redirectURI)
	form.Set("code_verifier", flow.verifier)
	in, err := s.exchange(ctx, formRequest{title: "Exchange the code", form: form, secrets: []string{code, flow.verifier}})
	if err != nil {
		return err
	}
	return s.complete(ctx, in, s.company.resource)
}

// directFlow is one authorization request with what its answer is checked against.
type directFlow struct {
	link        string
	redirectURI string
	verifier    string
	state       string
	issuer      string
}

// beginDirect makes the authorization URL, with a state and a code verifier that nobody
// else knows (poppy-0.1/4.5#4).
func (s *signIn) beginDirect() (directFlow, error) {
	f := directFlow{
		redirectURI: s.agent.identity.RedirectURIs[0], issuer: s.company.issuer,
		state: randomText(18), verifier: randomText(32),
	}
	u, err := httpsURL(s.company.authorization)
	if err != nil {
		return directFlow{}, fail(ExitDiscovery, "4.5", "authorization_endpoint").because(err)
	}
	challenge := sha256.Sum256([]byte(f.verifier))
	q := u.Query() // RFC6749/3.1: one that the endpoint has is kept
	q.Set("response_type", "code")
	q.Set("client_id", s.agent.identity.ClientID)
	q.Set("redirect_uri", f.redirectURI)
	q.Set("scope", s.scope.String())
	q.Set("state", f.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	setIf(q, "resource", s.company.resource)
	setIf(q, "ui_locales", s.opts.Language)
	u.RawQuery = q.Encode()
	f.link = u.String()
	return f, nil
}

// sendUser sends the User to the Company and returns the code they come back with.
func (s *signIn) sendUser(ctx context.Context, f directFlow) (string, error) {
	if s.agent.callback == nil {
		s.showPage(ctx, f)
		return s.pastedAnswer(ctx, f)
	}
	ln, err := s.agent.callback(ctx)
	if err != nil {
		return "", fail(ExitNetwork, "4.5", "the browser can't come back to %s, for another sign-in may be waiting there; or use --type device", f.redirectURI).because(err)
	}
	answers, stop, err := serveCallback(ln, f)
	if err != nil {
		return "", err
	}
	defer stop()
	s.showPage(ctx, f)
	select {
	case got := <-answers:
		s.agent.report(Step{Section: "4.5", Title: "state and iss of the redirect are those of this sign-in", OK: got.err == nil, Detail: outcome(got.err)})
		return got.code, got.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *signIn) showPage(ctx context.Context, f directFlow) {
	s.agent.report(Step{Section: "4.5", Title: "Send the User to the Company", OK: true, Detail: "they sign in themselves", Link: f.link})
	s.person.Show(fmt.Sprintf("Sign in at %s, in your browser:\n\n  %s\n", s.company.name, f.link))
	if !s.opts.Browser {
		return
	}
	if err := s.person.Browse(ctx, f.link); err != nil {
		s.person.Show(fmt.Sprintf("No browser could be opened (%s): open the link yourself.", err))
	}
}

// pastedAnswer asks for the address that the Company sent the User back to, for an
// agent whose redirect URI is a page that no command can listen at.
func (s *signIn) pastedAnswer(ctx context.Context, f directFlow) (string, error) {
	text, err := s.person.Ask(ctx, "Then paste the whole address of the page you were sent back to", false)
	if err != nil {
		return "", err
	}
	at, err := f.parseRedirect(text)
	if err != nil {
		return "", err
	}
	code, err := f.checkAnswer(at)
	s.agent.report(Step{Section: "4.5", Title: "state and iss of the redirect are those of this sign-in", OK: err == nil, Detail: outcome(err)})
	return code, err
}

// parseRedirect returns the query of an address at the redirect URI.
func (f directFlow) parseRedirect(text string) (string, error) {
	at, err := url.Parse(text)
	want, wantErr := url.Parse(f.redirectURI)
	if err != nil || wantErr != nil || at.Scheme != want.Scheme || at.Host != want.Host || at.EscapedPath() != want.EscapedPath() {
		return "", fail(ExitUsage, "4.5", "this is not an address at %s", f.redirectURI)
	}
	return at.RawQuery, nil
}

// callbackPage is what the User's browser shows at the end. It says nothing of the sign-in itself.
func callbackPage(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address has the code in it
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><title>Poppyfield agent</title>\n<main><h1>Poppyfield agent</h1><p>%s</p></main></html>\n", text)
}
