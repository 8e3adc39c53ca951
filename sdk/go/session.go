package poppy

import (
	"context"
	"slices"
	"time"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Session is who a request comes from: a User at the Company, through a Personal Agent.
type Session struct {
	Name      string // companies/{company}/sessions/{id}
	ClientID  string // of the agent
	AgentName string
	User      string // the agent's User ID; unique only together with ClientID
	SignedIn  bool
	Account   string // that the User proved to be theirs; empty while signed out
	Scopes    []string
	ExpiresAt time.Time // until when this is so at the latest
}

// Has reports whether the User has granted a scope.
func (s *Session) Has(scope string) bool { return slices.Contains(s.Scopes, scope) }

func sessionOf(s *adminv1.AgentSession) *Session {
	if s == nil {
		return nil
	}
	return &Session{
		Name: s.GetSession(), ClientID: s.GetClientId(), AgentName: s.GetAgentName(), User: s.GetUser(), SignedIn: s.GetSignedIn(),
		Account: s.GetAccount(), Scopes: s.GetScopes(), ExpiresAt: s.GetExpireTime().AsTime(),
	}
}

type sessionKey struct{}

// SessionFrom returns the Session of a request that Handler or an interceptor let through.
func SessionFrom(ctx context.Context) (*Session, bool) {
	s, ok := ctx.Value(sessionKey{}).(*Session)
	return s, ok
}

func withSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}
