package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Disconnecting is the rule that Users can disconnect agents.
const Disconnecting clause.ID = "poppy-0.1/4.9#17"

const (
	linkLifetime = 15 * time.Minute
	linkFor      = "connected agents link"
	maxLink      = 4096
)

// A Link opens the page of connected agents for the User of one account.
type Link struct {
	Account string    `json:"account"`
	Embed   bool      `json:"embed,omitempty"`  // in a frame on the Company's own sites
	Locale  string    `json:"locale,omitempty"` // empty: the browser's
	Expires time.Time `json:"expires"`
}

// LinkURL makes the URL of a link that is good for 15 minutes, and says until when. The
// link is sealed, which proves that it is ours and hides the account from whoever reads
// it in a log.
func (a *App) LinkURL(company *directory.Company, l Link) (string, time.Time, error) {
	l.Expires = a.Now().Add(linkLifetime).Truncate(time.Second)
	plain, err := json.Marshal(l)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("link: %w", err)
	}
	sealed, err := a.Keys.Seal(company.Scope.CompanyID(), linkFor, "", plain)
	if err != nil {
		return "", time.Time{}, err
	}
	q := url.Values{"link": {base64.RawURLEncoding.EncodeToString(sealed)}}
	return company.Issuer.ConnectedAgentsURL() + "?" + q.Encode(), l.Expires, nil
}

// OpenLink reads the link of such a URL. One that is not ours, another Company's or too
// old is LINK_EXPIRED; the last is returned all the same, to show that where it would be.
func (a *App) OpenLink(company *directory.Company, raw string) (Link, error) {
	bad := problem.New(problem.Forbidden, LinkExpired, Disconnecting, "the link is no longer good")
	if len(raw) > maxLink {
		return Link{}, bad
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(raw)
	if err != nil {
		return Link{}, bad
	}
	plain, err := a.Keys.Open(company.Scope.CompanyID(), linkFor, "", sealed)
	if err != nil {
		return Link{}, bad
	}
	var l Link
	if json.Unmarshal(plain, &l) != nil || l.Account == "" {
		return Link{}, bad
	}
	if !a.Now().Before(l.Expires) {
		return l, bad
	}
	return l, nil
}

// Connected lists what is connected to the link's account.
func (a *App) Connected(ctx context.Context, company *directory.Company, l Link) ([]*sessionsv1.Connection, error) {
	got, err := a.Connections.ListConnections(tenancy.Into(ctx, company.Scope), &sessionsv1.ListConnectionsRequest{AccountId: l.Account})
	return got.GetConnections(), err
}

// Disconnect ends what the link's account granted to the agent of one of its grants, or
// with an empty id to all agents (Poppy 4.9). What has ended already is no error.
func (a *App) Disconnect(ctx context.Context, company *directory.Company, l Link, grantID string) error {
	_, err := a.Connections.Disconnect(tenancy.Into(ctx, company.Scope), &sessionsv1.DisconnectRequest{AccountId: l.Account, GrantId: grantID})
	return err
}
