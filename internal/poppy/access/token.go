package access

import (
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses of which token a service takes.
const (
	BearerOnlyMCP clause.ID = "poppy-0.1/4.3#32"
	DPoPElsewhere clause.ID = "poppy-0.1/4.3#33"
	ForResource   clause.ID = "poppy-0.1/4.3#39"
)

// Token is what was issued, as far as it decides which service takes it.
type Token struct {
	JKT      string // thumbprint of the bound key, empty for a Bearer token
	Resource string // the only service it is for, empty for all that insist on none
}

// Service is what a request with a token is for.
type Service struct {
	Resource string // that tokens have to be issued for, empty for any
	MCP      bool
}

// CheckToken says whether a service takes a token that was sent with a scheme.
func CheckToken(t Token, scheme oauth.Scheme, s Service) error {
	switch {
	case scheme == oauth.Bearer && t.JKT != "":
		// RFC9449/7.2: a bound token is never taken as a Bearer token.
		return refuseToken(DPoPElsewhere, "the Session Token is bound to a key; send it with the DPoP scheme and a proof")
	case scheme == oauth.DPoP && t.JKT == "":
		return refuseToken(BearerOnlyMCP, "the Session Token is a Bearer token")
	case scheme == oauth.Bearer && !s.MCP:
		return refuseToken(BearerOnlyMCP, "Bearer tokens are accepted at MCP servers only")
	case t.Resource != s.Resource:
		return refuseToken(ForResource, "the Session Token was issued for another service")
	}
	return nil
}

func refuseToken(id clause.ID, detail string) error {
	return problem.New(problem.Unauthenticated, problem.InvalidToken, id, "%s", detail)
}
