package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	slug        = "noodle-bar"
	displayName = "Noodle Bar"

	backendWebhook = "BACKEND_KIND_WEBHOOK"
	backendStream  = "BACKEND_KIND_STREAM"

	secretFile = "backend-secret"
	keyFile    = "api-key"
)

// Result is what the setup arrived at.
type Result struct {
	Company        string // companies/cmp_…
	Issuer         string // https origin that identifies the Company (Poppy 3.2)
	Domain         string
	Accounts       string // issuer of the shop's own identity provider
	RedirectTarget string // where poppy.json is hosted
	APIKey         string // the Company's own key to the admin API
	BackendSecret  string // whsec_…
}

// Resources of the admin API, with the members that the setup reads.
type (
	company struct {
		Name        string `json:"name,omitempty"`
		Slug        string `json:"slug,omitempty"`
		DisplayName string `json:"display_name,omitempty"`
		Kind        string `json:"kind,omitempty"`
		State       string `json:"state,omitempty"`
		Issuer      string `json:"issuer,omitempty"`
	}
	domain struct {
		Name           string        `json:"name,omitempty"`
		Domain         string        `json:"domain,omitempty"`
		State          string        `json:"state,omitempty"`
		RedirectTarget string        `json:"redirect_target,omitempty"`
		Observations   []observation `json:"observations,omitempty"`
	}
	observation struct {
		Method string `json:"method"`
		Seen   string `json:"seen"`
		Detail string `json:"detail"`
	}
	discoverySettings struct {
		OrganizationName     string            `json:"organization_name"`
		ConversationsEnabled bool              `json:"conversations_enabled"`
		CustomScopes         map[string]string `json:"custom_scopes"`
		DirectScopes         []string          `json:"direct_scopes"`
		DeviceScopes         []string          `json:"device_scopes"`
		MediatedScopes       []string          `json:"mediated_scopes"`
		APIs                 []api             `json:"apis"`
		MCPRegistration      bool              `json:"mcp_registration"`
	}
	api struct {
		Type        string    `json:"type"`
		URL         string    `json:"url"`
		Description string    `json:"description"`
		Rules       []apiRule `json:"rules"`
	}
	apiRule struct {
		Path   string   `json:"path"`
		Scopes []string `json:"scopes"`
	}
	backend struct {
		Kind  string `json:"kind,omitempty"`
		URL   string `json:"url,omitempty"`
		State string `json:"state,omitempty"`
	}
	backendSecret struct {
		Name       string `json:"name"`
		Kind       string `json:"kind"`
		Secret     string `json:"secret"`
		Prefix     string `json:"prefix"`
		ExpireTime string `json:"expire_time"`
	}
	apiKey struct {
		Key string `json:"key"`
	}
	inboxSettings struct {
		QueueWithoutPresence bool                  `json:"queue_without_presence"`
		Words                map[string]inboxWords `json:"words,omitempty"`
	}
	inboxWords struct {
		Nobody       string `json:"nobody,omitempty"`
		NobodyJoined string `json:"nobody_joined,omitempty"`
	}
)

// onboarding brings the Company to where it should be, whatever was there before: each
// step looks first and changes only what differs.
type onboarding struct {
	cfg    Config
	api    *adminClient
	parts  *parts // told what they need as soon as it is known
	result Result
}

// setup onboards the shop through the public admin API. It may be run again at any
// time. The website has to be up, since the check of the domain looks at its redirect.
func setup(ctx context.Context, cfg Config, p *parts) (Result, error) {
	o := &onboarding{
		cfg: cfg, parts: p,
		api: &adminClient{origin: strings.TrimSuffix(cfg.APIOrigin, "/"), key: cfg.OperatorKey, http: newHTTPClient(cfg.Roots, cfg.Hosts)},
	}
	defer o.api.http.CloseIdleConnections()
	o.result.Domain, o.result.Accounts = cfg.Domain, cfg.origin(cfg.AccountsDomain)
	state := ""
	var dom domain
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"company", func() (err error) { state, err = o.company(ctx); return err }},
		{"domain", func() (err error) { dom, err = o.domain(ctx); return err }},
		{"backend", func() error { return o.backend(ctx) }},
		{"backend secret", func() error { return o.backendSecret(ctx) }},
		{"sign-in", func() error { return o.signIn(ctx) }},
		{"page design", func() error { return o.design(ctx) }},
		{"discovery settings", func() error { return o.settings(ctx) }},
		{"publish", func() error { return o.publish(ctx, state) }},
		{"API key", func() error { return o.apiKey(ctx) }},
		{"inbox", func() error { return o.inbox(ctx) }},
		{"domain check", func() error { return o.verify(ctx, dom) }},
		{"browser sessions", func() error { return o.browsers(ctx) }},
	} {
		if err := step.do(); err != nil {
			return o.result, fmt.Errorf("setting up the demo Company, %s: %w", step.what, err)
		}
	}
	return o.result, nil
}

func (o *onboarding) company(ctx context.Context) (string, error) {
	query := url.Values{"page_size": {"200"}}
	for {
		var page struct {
			Companies []company `json:"companies"`
			Next      string    `json:"next_page_token"`
		}
		if err := o.api.call(ctx, http.MethodGet, "/v1/companies", query, nil, &page); err != nil {
			return "", err
		}
		for _, c := range page.Companies {
			if c.Slug == slug {
				o.result.Company, o.result.Issuer = c.Name, c.Issuer
				return c.State, nil
			}
		}
		if page.Next == "" {
			break
		}
		query.Set("page_token", page.Next)
	}
	var made company
	err := o.api.call(ctx, http.MethodPost, "/v1/companies", requestID(),
		company{Slug: slug, DisplayName: displayName, Kind: "COMPANY_KIND_TEST"}, &made)
	if err != nil {
		return "", err
	}
	o.result.Company, o.result.Issuer = made.Name, made.Issuer
	return made.State, nil
}

func (o *onboarding) domain(ctx context.Context) (domain, error) {
	var page struct {
		Domains []domain `json:"domains"`
	}
	parent := "/v1/" + o.result.Company + "/domains"
	if err := o.api.call(ctx, http.MethodGet, parent, url.Values{"page_size": {"200"}}, nil, &page); err != nil {
		return domain{}, err
	}
	var dom domain
	for _, d := range page.Domains {
		if d.Domain == o.cfg.Domain {
			dom = d
		}
	}
	if dom.Name == "" {
		if err := o.api.call(ctx, http.MethodPost, parent, requestID(), domain{Domain: o.cfg.Domain}, &dom); err != nil {
			return domain{}, err
		}
	}
	o.result.RedirectTarget = dom.RedirectTarget
	o.parts.site.SetTarget(dom.RedirectTarget)
	return dom, nil
}

func (o *onboarding) settings(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/discoverySettings"
	want := wantedSettings(o.cfg.origin(o.cfg.Domain) + mcpPath)
	var have discoverySettings
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil {
		return err
	}
	if have.same(want) {
		return nil
	}
	query := requestID()
	query.Set("update_mask", "organization_name,conversations_enabled,custom_scopes,direct_scopes,device_scopes,mediated_scopes,apis,mcp_registration")
	return o.api.call(ctx, http.MethodPatch, at, query, want, nil)
}

func (o *onboarding) backend(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/backend"
	var have backend
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil && !hasStatus(err, http.StatusNotFound) {
		return err
	}
	want := backend{Kind: backendWebhook, URL: o.cfg.BackendURL}
	mask := "kind,url"
	if o.cfg.StreamAddress != "" {
		want, mask = backend{Kind: backendStream}, "kind"
	}
	if have.Kind != want.Kind || want.URL != "" && have.URL != want.URL {
		query := requestID()
		query.Set("update_mask", mask)
		if err := o.api.call(ctx, http.MethodPatch, at, query, want, &have); err != nil {
			return err
		}
	}
	if have.State == "BACKEND_STATE_DISABLED" {
		return o.api.call(ctx, http.MethodPost, at+":enable", nil, requestBody(requestID()), nil)
	}
	return nil
}

// backendSecret keeps the secret that is stored here as long as it still signs, and
// asks for a new one otherwise: the API shows a secret only when it is made.
func (o *onboarding) backendSecret(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/backend"
	kept, err := readPrivate(filepath.Join(o.cfg.DataDir, secretFile))
	if err != nil {
		return err
	}
	if kept != "" {
		var page struct {
			Secrets []backendSecret `json:"secrets"`
		}
		if err := o.api.call(ctx, http.MethodGet, at+"/secrets", nil, nil, &page); err != nil {
			return err
		}
		for _, s := range page.Secrets {
			if s.Kind == "SECRET_KIND_HMAC" && s.ExpireTime == "" && s.Prefix != "" && strings.HasPrefix(kept, s.Prefix) {
				o.result.BackendSecret = kept
				return o.parts.mail.setSecret(kept)
			}
		}
	}
	var made backendSecret
	body := requestBody(requestID())
	body["kind"] = "SECRET_KIND_HMAC"
	if err := o.api.call(ctx, http.MethodPost, at+":rotateSecret", nil, body, &made); err != nil {
		return err
	}
	if err := writePrivate(filepath.Join(o.cfg.DataDir, secretFile), made.Secret); err != nil {
		return err
	}
	o.result.BackendSecret = made.Secret
	return o.parts.mail.setSecret(made.Secret)
}

func (o *onboarding) publish(ctx context.Context, state string) error {
	if state != "COMPANY_STATE_SETTING_UP" {
		return nil // published before, or taken off the air by an operator who meant it
	}
	var c company
	err := o.api.call(ctx, http.MethodPost, "/v1/"+o.result.Company+":publish", nil, requestBody(requestID()), &c)
	if err == nil && c.Issuer != "" {
		o.result.Issuer = c.Issuer
	}
	return err
}

func (o *onboarding) apiKey(ctx context.Context) error {
	file := filepath.Join(o.cfg.DataDir, keyFile)
	kept, err := readPrivate(file)
	if err != nil {
		return err
	}
	if kept != "" {
		own := &adminClient{origin: o.api.origin, key: kept, http: o.api.http}
		var me struct {
			Company string `json:"company"`
		}
		err := own.call(ctx, http.MethodGet, "/v1/me", nil, nil, &me)
		if err == nil && me.Company == o.result.Company {
			o.result.APIKey = kept
			return nil
		}
		var refused *apiError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	var made apiKey
	err = o.api.call(ctx, http.MethodPost, "/v1/"+o.result.Company+"/apiKeys", requestID(),
		map[string]any{"display_name": "Noodle Bar's own key", "scopes": []string{"*"}}, &made)
	if err != nil {
		return err
	}
	o.result.APIKey = made.Key
	return writePrivate(file, made.Key)
}

// inbox lets handoffs wait for somebody to look in, whether or not the desk is open.
func (o *onboarding) inbox(ctx context.Context) error {
	o.parts.agent.desk.open(o.result.Company, &adminClient{
		origin: o.api.origin, key: o.result.APIKey, http: newHTTPClient(o.cfg.Roots, o.cfg.Hosts),
	})
	at := "/v1/" + o.result.Company + "/inbox/settings"
	var have inboxSettings
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil {
		return err
	}
	if have.QueueWithoutPresence && have.Words["en"].NobodyJoined != "" {
		return nil
	}
	query := requestID()
	query.Set("update_mask", "queue_without_presence,words")
	return o.api.call(ctx, http.MethodPatch, at, query, wantedInbox(), nil)
}

func wantedInbox() inboxSettings {
	phone := "030 555 0142"
	return inboxSettings{QueueWithoutPresence: true, Words: map[string]inboxWords{
		"en": {
			Nobody:       "Nobody of our team is there now. You reach us by phone at " + phone + ".",
			NobodyJoined: "Everybody of our team is busy, sorry. You reach us by phone at " + phone + ".",
		},
		"de": {
			Nobody:       "Gerade ist niemand aus unserem Team da. Du erreichst uns unter " + phone + ".",
			NobodyJoined: "Alle aus unserem Team haben zu tun, leider. Du erreichst uns unter " + phone + ".",
		},
	}}
}

// verify asks for checks until the domain counts as the Company's.
func (o *onboarding) verify(ctx context.Context, dom domain) error {
	for try := range 20 {
		if dom.State == "DOMAIN_STATE_VERIFIED" {
			return nil
		}
		if try > 0 {
			if err := clock.Wait(ctx, min(time.Duration(try)*250*time.Millisecond, 2*time.Second)); err != nil {
				return err
			}
		}
		if err := o.api.call(ctx, http.MethodPost, "/v1/"+dom.Name+":check", nil, map[string]any{}, &dom); err != nil {
			return err
		}
	}
	if dom.State == "DOMAIN_STATE_VERIFIED" {
		return nil
	}
	seen := make([]string, len(dom.Observations))
	for i, ob := range dom.Observations {
		seen[i] = fmt.Sprintf("%s saw %q: %s", ob.Method, ob.Seen, ob.Detail)
	}
	return fmt.Errorf("%s is %s; %s", dom.Domain, dom.State, strings.Join(seen, "; "))
}

func requestBody(v url.Values) map[string]any {
	return map[string]any{"request_id": v.Get("request_id")}
}
