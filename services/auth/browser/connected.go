package browser

import (
	"net/http"
	"time"

	"golang.org/x/text/language"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/web/pages"
)

// allGrants is what the button below all rows sends.
const allGrants = "*"

// connectedAgents shows the User what is connected to their account (Poppy 4.9). The
// link is what lets them in; there is no cookie, so that it works in a frame.
func (s *Site) connectedAgents(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := oauth.ParseForm([]byte(r.URL.RawQuery))
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	raw := form.Get("link")
	if link, ok := s.openLink(w, r, c, raw); ok {
		s.showConnected(w, r, c, raw, link, 0)
	}
}

// disconnectAgents ends what the User wants ended. The link stands for the form's token
// too: no other site has it.
func (s *Site) disconnectAgents(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := readAnswer(w, r, c)
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	raw := form.get("link")
	link, ok := s.openLink(w, r, c, raw)
	if !ok {
		return
	}
	grant := form.get("grant")
	if grant == "" {
		s.failLink(w, r, c, link, problem.New(problem.Invalid, problem.InvalidRequest, signin.Disconnecting, "grant is missing"))
		return
	}
	if grant == allGrants {
		grant = ""
	}
	ended, err := s.app.Disconnect(r.Context(), c, link, grant)
	if err != nil {
		s.failLink(w, r, c, link, err)
		return
	}
	s.showConnected(w, r, c, raw, link, ended)
}

func (s *Site) openLink(w http.ResponseWriter, r *http.Request, c *directory.Company, raw string) (signin.Link, bool) {
	link, err := s.app.OpenLink(c, raw)
	if err != nil {
		s.failLink(w, r, c, link, err)
		return link, false
	}
	return link, true
}

func (s *Site) failLink(w http.ResponseWriter, r *http.Request, c *directory.Company, l signin.Link, err error) {
	s.failWith(w, r, c, s.language(r, l.Locale), err, pages.Failure{}, framedBy(c, l))
}

func (s *Site) showConnected(w http.ResponseWriter, r *http.Request, c *directory.Company, raw string, l signin.Link, ended int) {
	list, err := s.app.Connected(r.Context(), c, l)
	if err != nil {
		s.failLink(w, r, c, l, err)
		return
	}
	lang := s.language(r, l.Locale)
	page := pages.ConnectedAgents{Form: pages.Form{Action: c.Issuer.ConnectedAgentsURL(), Token: raw}, Ended: ended}
	for _, connection := range list {
		page.Agents = append(page.Agents, rowOf(lang, c, connection))
	}
	s.write(w, r, c, http.StatusOK, lang, page, framedBy(c, l))
}

func rowOf(lang language.Tag, c *directory.Company, in *sessionsv1.Connection) pages.ConnectedAgent {
	row := pages.ConnectedAgent{
		ID: in.GetGrantId(), Name: in.GetAgentName(), Host: hostOf(in.GetClientId()),
		Connected: timeOf(in.GetCreateTime()), LastUsed: timeOf(in.GetLastUsedTime()), Expires: timeOf(in.GetExpireTime()),
	}
	// What can't be read any more was granted all the same.
	scope, err := oauth.ParseScope(in.GetScope())
	if err != nil {
		scope = oauth.Scope{in.GetScope()}
	}
	row.Scopes = scopeTexts(lang, c, scope)
	return row
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// framedBy lets the Company's own sites show the page in a frame where the link says so.
func framedBy(c *directory.Company, l signin.Link) pages.Options {
	var o pages.Options
	if !l.Embed {
		return o
	}
	for _, domain := range c.Domains {
		o.FrameAncestors = append(o.FrameAncestors, "https://"+domain, "https://*."+domain)
	}
	return o
}
