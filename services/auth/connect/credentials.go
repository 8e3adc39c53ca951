package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// Credentials checks what Users type: at their Company by its signed webhook, or
// against the Company's test accounts. It keeps nothing of it.
type Credentials struct {
	send relayv1.SignInServiceClient
	keys *keys.Ring
}

// NewCredentials makes a Credentials that reaches Companies by send.
func NewCredentials(send relayv1.SignInServiceClient, ring *keys.Ring) *Credentials {
	return &Credentials{send: send, keys: ring}
}

// Fields returns what the Company's Users are asked for.
func (c *Credentials) Fields(company *directory.Company) []discovery.MediatedField {
	switch s := company.SignIn; {
	case s == nil:
		return nil
	case len(s.CredentialFields) == 0 && s.Method == directory.TestAccounts:
		return []discovery.MediatedField{{Name: "username", Label: "Username"}, {Name: "password", Label: "Password", Secret: true}}
	default:
		return s.CredentialFields
	}
}

// Check asks whether the values of fields are right. id names the check: it is the
// webhook-id, one to a call, without a dot.
func (c *Credentials) Check(ctx context.Context, company *directory.Company, id string, subject Subject, fields map[string]string) (Verdict, error) {
	if byTestAccounts(company, subject) {
		return c.checkTestAccount(company, fields)
	}
	return c.ask(ctx, company, &relayv1.CheckCredentialsRequest{
		Id: id, Subject: about(subject),
		What: &relayv1.CheckCredentialsRequest_Credentials{Credentials: &relayv1.Credentials{Fields: fields}},
	})
}

// CheckCode asks whether a one-time code is right. state is that of the Verdict that
// asked for the code; one that asks for another try has it again, or a new one.
func (c *Credentials) CheckCode(ctx context.Context, company *directory.Company, id string, subject Subject, state, code string) (Verdict, error) {
	if byTestAccounts(company, subject) {
		return c.checkTestCode(company, state, code)
	}
	v, err := c.ask(ctx, company, &relayv1.CheckCredentialsRequest{
		Id: id, Subject: about(subject),
		What: &relayv1.CheckCredentialsRequest_Code{Code: &relayv1.OneTimeCode{Code: code, State: state}},
	})
	if v.Outcome == CodeRequired && v.State == "" {
		v.State = state
	}
	return v, err
}

// byTestAccounts reports whether made-up accounts answer. A Company with a credential
// check has it asked in Mediated Sign-In, whatever its pages do.
func byTestAccounts(company *directory.Company, subject Subject) bool {
	s := company.SignIn
	if s == nil || s.Method != directory.TestAccounts {
		return false
	}
	return subject.SignIn != string(directory.Mediated) || s.CredentialCheckURL == ""
}

func about(s Subject) *relayv1.SignInSubject {
	return &relayv1.SignInSubject{
		SignInId: s.SignInID, ClientId: s.ClientID, AgentName: s.AgentName, UserId: s.UserID, SessionId: s.SessionID, Scopes: s.Scopes, SignIn: s.SignIn,
	}
}

func (c *Credentials) ask(ctx context.Context, company *directory.Company, req *relayv1.CheckCredentialsRequest) (Verdict, error) {
	if company.SignIn == nil || company.SignIn.CredentialCheckURL == "" {
		return Verdict{}, unavailable("settings", "the company has no credential check")
	}
	req.Url = company.SignIn.CredentialCheckURL
	got, err := c.send.CheckCredentials(tenancy.Into(ctx, company.Scope), req)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			err = context.Canceled
		}
		return Verdict{}, fmt.Errorf("%w: credential check: %w", ErrUnavailable, err)
	}
	switch got.GetOutcome() {
	case relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_COMPLETE:
		if got.GetAccount() == "" { // nobody is signed in to no account, whatever the way it came about
			return Verdict{}, unavailable("credential check", "no account")
		}
		return Verdict{Outcome: Complete, Account: Account{ID: got.GetAccount(), Label: got.GetAccountLabel()}}, nil
	case relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_CODE_REQUIRED:
		return Verdict{Outcome: CodeRequired, SentTo: got.GetSentTo(), State: got.GetState(), Lifetime: got.GetExpiresIn().AsDuration()}, nil
	case relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_FAILED:
		return Verdict{Outcome: Failed}, nil
	case relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_UNAVAILABLE, relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_UNSPECIFIED:
	}
	return Verdict{}, unavailable("credential check", got.GetReason())
}
