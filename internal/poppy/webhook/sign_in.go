package webhook

import (
	"time"
)

// The types of the webhooks that ask whether a User is who they say they are.
const (
	EventCredentials = "sign_in.credentials"
	EventCode        = "sign_in.code"
)

// SignInCheck is what a Company is asked about one sign-in: about credentials, or,
// where Credentials is nil, about a one-time code. It holds secrets of the User.
type SignInCheck struct {
	At          time.Time
	Company     string // resource name, "companies/cmp_…"
	Subject     SignInSubject
	Credentials map[string]string // by field name
	Code        string
	State       string // the Company's own, of the answer that asked for the code
}

// SignInSubject says what a sign-in is about.
type SignInSubject struct {
	SignInID  string
	Type      string // "direct", "device" or "mediated"
	Scopes    []string
	Agent     DeliveryAgent
	UserID    string // empty where the User signs in on our page
	SessionID string // likewise
}

type wireSignInCheck struct {
	Type      string         `json:"type"`
	Timestamp string         `json:"timestamp"`
	Data      wireSignInData `json:"data"`
}

type wireSignInData struct {
	Company     string            `json:"company"`
	SignIn      wireSignIn        `json:"sign_in"`
	Agent       DeliveryAgent     `json:"agent"`
	User        *wireUser         `json:"user"`
	Session     *wireID           `json:"session"`
	Credentials map[string]string `json:"credentials,omitzero"`
	Code        *string           `json:"code,omitempty"`
	State       *string           `json:"state,omitempty"`
}

type wireSignIn struct {
	ID     string   `json:"id"`
	Type   string   `json:"type"`
	Scopes []string `json:"scopes"`
}

type wireID struct {
	ID string `json:"id"`
}

// BuildSignInCheck makes the body of a check. Every member of its type is always there.
func BuildSignInCheck(c SignInCheck) ([]byte, error) {
	s := c.Subject
	w := wireSignInCheck{
		Type:      EventCredentials,
		Timestamp: c.At.UTC().Format(timeLayout),
		Data: wireSignInData{
			Company:     c.Company,
			SignIn:      wireSignIn{ID: s.SignInID, Type: s.Type, Scopes: s.Scopes},
			Agent:       s.Agent,
			Credentials: c.Credentials,
		},
	}
	if w.Data.SignIn.Scopes == nil {
		w.Data.SignIn.Scopes = []string{}
	}
	if s.UserID != "" {
		w.Data.User = &wireUser{ID: s.UserID}
	}
	if s.SessionID != "" {
		w.Data.Session = &wireID{ID: s.SessionID}
	}
	if c.Credentials == nil {
		w.Type, w.Data.Code, w.Data.State = EventCode, &c.Code, &c.State
	}
	return encode(w)
}
