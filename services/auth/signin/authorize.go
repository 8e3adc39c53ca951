package signin

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

const (
	maxState        = 4096 // characters
	challengeLength = 43   // of a SHA-256 in base64url (RFC 7636 section 4.2)
)

// An Authorization is an authorization request that passed every check of Poppy 4.5.
// Only CheckAuthorization makes one.
type Authorization struct {
	agent                         agents.Agent
	redirectURI, state, challenge string
	resource                      string // of a plain client
	scope                         oauth.Scope
	// UILocales is the parameter ui_locales, unchecked.
	UILocales string
}

// CheckAuthorization checks the query of an authorization request. Until the agent's
// document is known to have the redirect_uri, and the Company to let the agent in,
// every error is for a page (decision 31); from then on it is a ReturnError.
func (a *App) CheckAuthorization(ctx context.Context, company *directory.Company, rawQuery string) (Authorization, error) {
	if !company.SignIn.Offers(directory.Direct) {
		return Authorization{}, notOffered()
	}
	f, err := oauth.ParseForm([]byte(rawQuery))
	if err != nil && !problem.Is(err, problem.InvalidTarget) {
		return Authorization{}, err
	}
	if err != nil { // a repeated resource: its meaning is the exchange's, but a form that has one can't be read
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, Parameters, "a parameter occurs more than once")
	}
	clientID, redirectURI := f.Get("client_id"), f.Get("redirect_uri")
	switch {
	case clientID == "":
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, Parameters, "client_id is missing")
	case redirectURI == "":
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, Parameters, "redirect_uri is missing")
	}
	found, err := a.Clients.Find(ctx, company, clientID)
	if err == nil && len(company.MCPURLs) == 0 {
		err = found.Document.CheckAgent()
	}
	if err != nil {
		return Authorization{}, unknownAgent(err)
	}
	if !found.Document.HasRedirectURI(redirectURI) {
		return Authorization{}, notRegistered()
	}
	if err := a.admitted(ctx, company, clientID); err != nil {
		return Authorization{}, err
	}
	out := Authorization{agent: found, redirectURI: redirectURI, state: f.Get("state"), challenge: f.Get("code_challenge"), UILocales: f.Get("ui_locales")}
	err = checkParameters(f)
	offered := company.SignIn.Scopes(directory.Direct)
	switch {
	case err != nil:
	case found.Document.Public:
		out.resource, out.scope, err = checkPlain(company, f, offered)
	default:
		out.scope, err = oauth.CheckRequestedScope(f.Get("scope"), offered)
	}
	if err != nil {
		return Authorization{}, returnError(company, redirectURI, out.state, err)
	}
	return out, nil
}

// checkPlain checks what a plain client signs in for: one MCP server, which has to be
// named (RFC 8707). One that names no scope asks for all there is, and the User decides.
func checkPlain(company *directory.Company, f oauth.Form, offered oauth.Scope) (string, oauth.Scope, error) {
	resource := f.Get("resource")
	if !slices.Contains(company.MCPURLs, resource) {
		return "", nil, problem.New(problem.Invalid, problem.InvalidTarget, Plain, "resource is not the url of an MCP server of this Company")
	}
	if !f.Has("scope") {
		return resource, offered, nil
	}
	scope, err := oauth.CheckRequestedScope(f.Get("scope"), offered)
	return resource, scope, err
}

func notRegistered() error {
	return problem.New(problem.Invalid, problem.InvalidRequest, ExactRedirect, "redirect_uri is none of the agent's redirect_uris")
}

// checkParameters checks what an agent that is known to have sent the request is told about.
func checkParameters(f oauth.Form) error {
	refuse := func(reason problem.Reason, detail string) error {
		return problem.New(problem.Invalid, reason, Parameters, "%s", detail)
	}
	switch {
	case f.Has("request"):
		return refuse(RequestNotSupported, "request objects are not supported")
	case f.Has("request_uri"):
		return refuse(RequestURINotSupported, "request_uri is not supported")
	case !f.Has("response_type"):
		return refuse(problem.InvalidRequest, "response_type is missing")
	case f.Get("response_type") != "code":
		return refuse(UnsupportedResponseType, "response_type is not code")
	case f.Has("response_mode") && f.Get("response_mode") != "query":
		return refuse(problem.InvalidRequest, "response_mode is not query")
	case len(f.Get("state")) > maxState:
		return refuse(problem.InvalidRequest, "state has more than 4096 characters")
	case slices.Contains(strings.Split(f.Get("prompt"), " "), "none"): // every sign-in asks the User
		return refuse(LoginRequired, "the User has to sign in")
	}
	return checkChallenge(f.Get("code_challenge"), f.Get("code_challenge_method"))
}

// checkChallenge asks for PKCE by S256. A method that is left out means plain
// (RFC 7636 section 4.3), which isn't taken.
func checkChallenge(challenge, method string) error {
	switch {
	case challenge == "":
		return problem.New(problem.Invalid, problem.InvalidRequest, Parameters, "code_challenge is missing")
	case method != "S256":
		return problem.New(problem.Invalid, problem.InvalidRequest, S256, "code_challenge_method is not S256")
	case len(challenge) != challengeLength || strings.ContainsFunc(challenge, notBase64URL):
		return problem.New(problem.Invalid, problem.InvalidRequest, S256, "code_challenge is no SHA-256 in base64url")
	}
	return nil
}

func notBase64URL(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// StartDirect begins the sign-in and returns it with the secret of the browser's
// cookie. locale is what the User is known to read, or empty.
func (a *App) StartDirect(ctx context.Context, company *directory.Company, r Authorization, locale string) (store.SignIn, string, error) {
	return a.start(ctx, company, store.SignIn{
		Kind: directory.Direct, ClientID: r.agent.Document.ClientID, AgentName: r.agent.Document.Name, AgentLogoURI: r.agent.Document.LogoURI,
		Scope: r.scope.String(), UILocale: locale, RedirectURI: r.redirectURI, State: r.state, CodeChallenge: r.challenge, Resource: r.resource,
	}, "")
}

// start stores a new sign-in. The cookie's secret carries note: what the browser may
// know and our database need not.
func (a *App) start(ctx context.Context, company *directory.Company, s store.SignIn, note string) (store.SignIn, string, error) {
	cookie := keys.RandomToken("pfb") + note
	s.ID, s.Stage, s.Version = ids.New(ids.SignIn), store.StageLogin, 1
	s.BrowserHash = keys.HashToken(company.Scope.CompanyID(), cookie)
	s.CreatedAt = a.Now()
	if limit := s.CreatedAt.Add(Lifetime); s.ExpiresAt.IsZero() || s.ExpiresAt.After(limit) {
		s.ExpiresAt = limit
	}
	if err := a.SignIns.Create(ctx, company.Scope, s); err != nil {
		return store.SignIn{}, "", err
	}
	return s, cookie, nil
}

// returnError sends an agent the error that err stands for. One that isn't the agent's
// business stays with us.
func returnError(company *directory.Company, redirectURI, state string, err error) error {
	p := problem.As(err)
	if p.Kind == problem.Internal || p.Kind == problem.Unavailable {
		return err
	}
	return &ReturnError{Cause: p, Location: location(company, redirectURI, state, url.Values{
		"error": {p.Reason.Wire()}, "error_description": {p.Detail},
	})}
}

// location is the redirect_uri with an answer. Every answer has iss (RFC 9207 section 2).
func location(company *directory.Company, redirectURI, state string, answer url.Values) string {
	if state != "" {
		answer.Set("state", state)
	}
	answer.Set("iss", company.Issuer.String())
	separator := "?"
	if strings.Contains(redirectURI, "?") { // RFC6749/3.1.2: its query is kept
		separator = "&"
	}
	return redirectURI + separator + answer.Encode()
}
