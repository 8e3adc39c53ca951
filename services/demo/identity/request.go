package identity

import (
	"slices"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// A request is an authentication request on its way. The store hands out copies.
type request struct {
	id      string
	browser string // only the browser that began it goes on with it
	csrf    string
	asked   oidc.AuthRequest
	created time.Time

	account  string // empty until the customer signed in
	signedIn time.Time
}

var _ op.AuthRequest = (*request)(nil)

func (r *request) GetID() string                      { return r.id }
func (r *request) GetACR() string                     { return "" }
func (r *request) GetAudience() []string              { return []string{r.asked.ClientID} }
func (r *request) GetAuthTime() time.Time             { return r.signedIn }
func (r *request) GetClientID() string                { return r.asked.ClientID }
func (r *request) GetNonce() string                   { return r.asked.Nonce }
func (r *request) GetRedirectURI() string             { return r.asked.RedirectURI }
func (r *request) GetResponseType() oidc.ResponseType { return r.asked.ResponseType }
func (r *request) GetResponseMode() oidc.ResponseMode { return r.asked.ResponseMode }
func (r *request) GetScopes() []string                { return r.asked.Scopes }
func (r *request) GetState() string                   { return r.asked.State }
func (r *request) GetSubject() string                 { return r.account }
func (r *request) Done() bool                         { return r.account != "" }

func (r *request) GetAMR() []string {
	if !r.Done() {
		return nil
	}
	return []string{"pwd"}
}

func (r *request) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: r.asked.CodeChallenge, Method: r.asked.CodeChallengeMethod}
}

// takes says whether a sign-in at signedIn is good enough for the request, or whether
// the customer has to sign in again.
func (r *request) takes(signedIn, now time.Time) bool {
	if slices.Contains(r.asked.Prompt, oidc.PromptLogin) || slices.Contains(r.asked.Prompt, oidc.PromptSelectAccount) {
		return false
	}
	if age := r.asked.MaxAge; age != nil {
		return *age > 0 && now.Sub(signedIn) <= time.Duration(*age)*time.Second
	}
	return true
}
