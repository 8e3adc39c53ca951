package browser

import (
	"net/http"
	"slices"
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
		s.showConnected(w, r, c, raw, link, nil)
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
	before, err := s.app.Connected(r.Context(), c, link)
	if err == nil {
		err = s.app.Disconnect(r.Context(), c, link, grant)
	}
	if err != nil {
		s.failLink(w, r, c, link, err)
		return
	}
	s.showConnected(w, r, c, raw, link, before)
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

// showConnected shows what is connected; before is what was until now.
func (s *Site) showConnected(w http.ResponseWriter, r *http.Request, c *directory.Company, raw string, l signin.Link, before []*sessionsv1.Connection) {
	list, err := s.app.Connected(r.Context(), c, l)
	if err != nil {
		s.failLink(w, r, c, l, err)
		return
	}
	lang := s.language(r, l.Locale)
	page := pages.ConnectedAgents{Form: pages.Form{Action: c.Issuer.ConnectedAgentsURL(), Token: raw}}
	now := byAgent(list)
	for _, of := range now {
		page.Agents = append(page.Agents, rowOf(lang, c, of))
	}
	for _, was := range byAgent(before) {
		if !slices.ContainsFunc(now, func(of []*sessionsv1.Connection) bool { return of[0].GetClientId() == was[0].GetClientId() }) {
			page.Ended++
		}
	}
	s.write(w, r, c, http.StatusOK, lang, page, framedBy(c, l))
}

// byAgent puts the connections of an agent together: Users disconnect agents, whatever
// number of times they connected them (poppy-0.1/4.9#18).
func byAgent(list []*sessionsv1.Connection) [][]*sessionsv1.Connection {
	var out [][]*sessionsv1.Connection
	for _, in := range list {
		i := slices.IndexFunc(out, func(of []*sessionsv1.Connection) bool { return of[0].GetClientId() == in.GetClientId() })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], in)
	}
	return out
}

// rowOf is the row of an agent: all that it may do, since when and until when. The
// newest connection comes first.
func rowOf(lang language.Tag, c *directory.Company, of []*sessionsv1.Connection) pages.ConnectedAgent {
	row := pages.ConnectedAgent{ID: of[0].GetGrantId(), Name: of[0].GetAgentName(), Host: hostOf(of[0].GetClientId()), Expires: timeOf(of[0].GetExpireTime())}
	var all oauth.Scope
	for _, in := range of {
		// What can't be read any more was granted all the same.
		scope, err := oauth.ParseScope(in.GetScope())
		if err != nil {
			scope = oauth.Scope{in.GetScope()}
		}
		for _, name := range scope {
			if !all.Contains(name) {
				all = append(all, name)
			}
		}
		row.Connected = timeOf(in.GetCreateTime())
		if used := timeOf(in.GetLastUsedTime()); used.After(row.LastUsed) {
			row.LastUsed = used
		}
		if ends := timeOf(in.GetExpireTime()); ends.IsZero() || !row.Expires.IsZero() && ends.After(row.Expires) {
			row.Expires = ends
		}
	}
	row.Scopes = scopeTexts(lang, c, all)
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
		o.FrameAncestors = append(o.FrameAncestors, "https://"+domain+":*", "https://*."+domain+":*")
	}
	return o
}
