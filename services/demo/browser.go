package demo

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// joinPath is where Poppyfield takes personal agents' browsers in, on the shop's own host
// and below its issuer.
const joinPath = "/poppy/browser-session"

// agentVisit is a visit of a personal agent's browser.
type agentVisit struct {
	Agent    string   `json:"agent_name"`
	ClientID string   `json:"client_id"`
	SignedIn bool     `json:"signed_in"`
	Account  string   `json:"account"`
	Scopes   []string `json:"scopes"`
}

// may reports whether the User has granted the scope.
func (v *agentVisit) may(scope string) bool {
	return v != nil && v.SignedIn && slices.Contains(v.Scopes, scope)
}

// visits is the part of the website that personal agents' browsers meet: it forwards
// those that join a Session, and shows who is visiting.
type visits struct {
	site *Website
	log  *slog.Logger
	door atomic.Pointer[door]
}

// door is what there is once the Company is set up.
type door struct {
	join http.Handler
	// check says whose visit it is by the cookies of a request; nil for an ordinary one.
	check func(ctx context.Context, cookies string) (*agentVisit, error)
}

func newVisits(site *Website, log *slog.Logger) *visits { return &visits{site: site, log: log} }

// open lets agents' browsers in.
func (v *visits) open(d door) { v.door.Store(&d) }

func (v *visits) mount(mux *http.ServeMux) {
	mux.HandleFunc("POST "+joinPath, v.join)
	mux.HandleFunc("GET /visit", v.show)
}

func (v *visits) join(w http.ResponseWriter, r *http.Request) {
	d := v.door.Load()
	if d == nil {
		http.NotFound(w, r)
		return
	}
	d.join.ServeHTTP(w, r)
}

// visitView is the content of the page that says who is visiting.
type visitView struct {
	Agent *agentVisit // nil for an ordinary visitor
	// Orders and Address are the account's, where the agent may see them.
	MayRead bool
	Orders  []Order
	Address string
}

func (v *visits) show(w http.ResponseWriter, r *http.Request) {
	page := &visitView{}
	cookies := strings.Join(r.Header.Values("Cookie"), "; ")
	if d := v.door.Load(); d != nil && cookies != "" {
		agent, err := d.check(r.Context(), cookies)
		if err != nil {
			v.log.WarnContext(r.Context(), "whose visit it is can't be told", "error", err)
			http.Error(w, "Please try again in a moment.", http.StatusServiceUnavailable)
			return
		}
		page.Agent = agent
	}
	if page.MayRead = page.Agent.may(scopeRead); page.MayRead {
		page.Orders = v.site.local(v.site.shop.ordersOf(page.Agent.Account, v.site.now()))
	}
	if page.Agent.may(scopeAddresses) {
		page.Address = v.site.shop.address(page.Agent.Account)
	}
	v.site.write(w, http.StatusOK, "visit.html", view{Visit: page}, "")
}

// doorOf forwards to the Company's issuer, and asks the admin API with the Company's own key.
func doorOf(cfg Config, r Result) (door, error) {
	to, err := url.Parse(r.Issuer)
	if err != nil {
		return door{}, err
	}
	client := newHTTPClient(cfg.Roots, cfg.Hosts)
	api := &adminClient{origin: strings.TrimSuffix(cfg.APIOrigin, "/"), key: r.APIKey, http: client}
	return door{
		join: &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(to)
				p.SetXForwarded()
			},
			Transport: client.Transport,
			ErrorLog:  slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
		},
		check: func(ctx context.Context, cookies string) (*agentVisit, error) {
			var got struct {
				Session *agentVisit `json:"session"`
			}
			err := api.call(ctx, http.MethodPost, "/v1/"+r.Company+":checkBrowserSession", nil, map[string]any{"cookie_header": cookies}, &got)
			return got.Session, err
		},
	}, nil
}

// browserSettings are those discovery settings that need the domain to be verified.
type browserSettings struct {
	Endpoint string         `json:"browser_session_endpoint,omitempty"`
	Cookie   *browserCookie `json:"browser_cookie,omitempty"`
}

type browserCookie struct {
	Name   string `json:"name,omitempty"`
	Domain string `json:"domain,omitempty"`
}

// browsers lets personal agents' browsers in on the shop's own host.
func (o *onboarding) browsers(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/discoverySettings"
	want := browserSettings{Endpoint: o.cfg.origin(o.cfg.Domain) + joinPath, Cookie: &browserCookie{}}
	var have browserSettings
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil {
		return err
	}
	if have.Endpoint == want.Endpoint && have.Cookie != nil && *have.Cookie == *want.Cookie {
		return nil
	}
	query := requestID()
	query.Set("update_mask", "browser_session_endpoint,browser_cookie")
	return o.api.call(ctx, http.MethodPatch, at, query, want, nil)
}
