package app

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Joined is what a browser gets that joined a Session.
type Joined struct {
	Cookie   string
	Lifetime time.Duration
	ReturnTo string
}

// JoinBrowser takes the browser that posted f into a Session (Poppy 5). The Company has
// to have a browser session endpoint. What can be told without the agent's documents is
// checked first, and the jti is claimed last.
func (a *App) JoinBrowser(ctx context.Context, company *directory.Company, f oauth.Form) (Joined, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	claimed, err := oauth.ParseBrowserAssertion(f.Get("assertion"), company.Browser.Endpoint, a.Now())
	if err != nil {
		return Joined{}, err
	}
	agent, err := a.Agents.Agent(ctx, claimed.ClientID())
	if err != nil {
		return Joined{}, oursFirst(err)
	}
	c := client{agent: agent, id: claimed.ClientID()}
	checked, err := withKeys(ctx, a, &c, claimed.Check)
	if err != nil {
		return Joined{}, err
	}
	returnTo, named := checked.ReturnTo()
	if !named {
		returnTo = discovery.SiteRoot(company.Browser.Endpoint, company.Domains)
	}
	if err := discovery.CheckReturnTo(returnTo, company.Domains); err != nil {
		return Joined{}, err
	}
	got, err := a.Sessions.JoinBrowser(ctx, &sessionsv1.JoinBrowserRequest{
		ClientId: checked.ClientID(), UserId: checked.UserID(), SessionId: checked.SessionID(),
		Once: &sessionsv1.OnceKey{
			Kind: replay.KindBrowserAssertion, Owner: checked.ClientID(), Jti: checked.JTI(),
			IssueTime: timestamppb.New(checked.IssuedAt()), Until: timestamppb.New(checked.ReplayUntil()),
		},
	})
	if err != nil {
		return Joined{}, err
	}
	return Joined{Cookie: got.GetCookie(), Lifetime: got.GetExpiresIn().AsDuration(), ReturnTo: returnTo}, nil
}
