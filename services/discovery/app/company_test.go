package app_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

func TestCreateCompany_DefaultIssuer(t *testing.T) {
	r := newRig(t)
	_, c := r.company(t, "noodle-bar")
	require.Equal(t, "https://noodle-bar.poppyfield.example", c.Issuer.String())
	require.Equal(t, app.SettingUp, c.State)
	got, err := r.CreateCompany(t.Context(), app.NewCompany{Slug: "other-bar", Kind: "live"})
	require.NoError(t, err)
	require.Equal(t, "other bar", got.DisplayName)
}

func TestCreateCompany_NamesTheFieldAtFault(t *testing.T) {
	r := newRig(t)
	r.company(t, "taken")
	for name, c := range map[string]struct {
		in     app.NewCompany
		reason problem.Reason
		field  string
	}{
		"no slug":        {app.NewCompany{Kind: "live"}, problem.InvalidRequest, "company.slug"},
		"taken slug":     {app.NewCompany{Slug: "taken", Issuer: "https://x.example", Kind: "live"}, problem.AlreadyExists, "company.slug"},
		"taken issuer":   {app.NewCompany{Slug: "x", Issuer: "https://taken.poppyfield.example", Kind: "live"}, problem.AlreadyExists, "company.issuer"},
		"http issuer":    {app.NewCompany{Slug: "x", Issuer: "http://x.example", Kind: "live"}, problem.InvalidRequest, "company.issuer"},
		"trailing slash": {app.NewCompany{Slug: "x", Issuer: "https://x.example/", Kind: "live"}, problem.InvalidRequest, "company.issuer"},
		"control char":   {app.NewCompany{Slug: "x", DisplayName: "a\x00b", Kind: "live"}, problem.InvalidRequest, "company.display_name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.CreateCompany(t.Context(), c.in)
			requireReason(t, err, c.reason, c.field)
		})
	}
}

func TestUpdateCompany_IssuerIsFinalOncePublished(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#1")
	clausetest.Refuses(t, "poppy-0.1/3.2#1")
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	to := func(s string) app.CompanyChange { return app.CompanyChange{Issuer: &s} }
	got, err := r.UpdateCompany(t.Context(), scope, to("https://other.example/t/noodle"))
	require.NoError(t, err)
	require.Equal(t, "https://other.example/t/noodle", got.Issuer.String())
	_, err = r.UpdateCompany(t.Context(), scope, to("https://other.example/"))
	requireReason(t, err, problem.InvalidRequest, "company.issuer")

	_, err = r.Publish(t.Context(), scope, false)
	require.NoError(t, err)
	_, err = r.UpdateCompany(t.Context(), scope, to(c.Issuer.String()))
	requireReason(t, err, problem.IssuerPublished, "company.issuer")
	// Neither does a disabled Company get another one.
	_, err = r.SetEnabled(t.Context(), scope, false)
	require.NoError(t, err)
	_, err = r.UpdateCompany(t.Context(), scope, to(c.Issuer.String()))
	requireReason(t, err, problem.IssuerPublished, "company.issuer")
	_, err = r.UpdateCompany(t.Context(), scope, to("https://other.example/t/noodle"))
	require.NoError(t, err, "the same one is no change")
}

func TestUpdateCompany_NameGoesIntoTheDocuments(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#3")
	clausetest.Refuses(t, "poppy-0.1/3.1#3")
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	name := "Nudelbar"
	got, err := r.UpdateCompany(t.Context(), scope, app.CompanyChange{DisplayName: &name, ETag: resource.ETag(c.Version)})
	require.NoError(t, err)
	require.Equal(t, "Nudelbar", got.DisplayName)
	require.Equal(t, []string{c.ID}, r.told())
	for _, bad := range []string{"", "   ", "a\x1bb", strings.Repeat("x", 201)} {
		_, err = r.UpdateCompany(t.Context(), scope, app.CompanyChange{DisplayName: &bad})
		requireReason(t, err, problem.InvalidRequest, "company.display_name")
	}
	require.Equal(t, "Nudelbar", r.state(t, scope).DisplayName)
	require.Empty(t, r.told())
	_, err = r.UpdateCompany(t.Context(), scope, app.CompanyChange{DisplayName: &name, ETag: resource.ETag(c.Version)})
	requireReason(t, err, problem.EtagMismatch)
}

func TestPublish_DisableEnable(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	host := c.Issuer.Hostname()
	onAir := func() int {
		on, err := r.SnapshotsOnHost(t.Context(), host)
		require.NoError(t, err)
		return len(on)
	}
	require.Zero(t, onAir(), "not before it is published")

	// One that was never published comes back to where it was.
	got, err := r.SetEnabled(t.Context(), scope, false)
	require.NoError(t, err)
	require.Equal(t, app.Disabled, got.State)
	_, err = r.Publish(t.Context(), scope, false)
	requireReason(t, err, problem.FailedPrecondition)
	_, err = r.Publish(t.Context(), scope, true)
	requireReason(t, err, problem.FailedPrecondition)
	got, err = r.SetEnabled(t.Context(), scope, true)
	require.NoError(t, err)
	require.Equal(t, app.SettingUp, got.State)

	got, err = r.Publish(t.Context(), scope, false)
	require.NoError(t, err)
	require.Equal(t, app.Active, got.State)
	first := *got.PublishedAt
	require.Equal(t, 1, onAir())
	r.clock.Advance(time.Hour)
	got, err = r.Publish(t.Context(), scope, false)
	require.NoError(t, err)
	require.Equal(t, first, *got.PublishedAt, "published once")

	_, err = r.SetEnabled(t.Context(), scope, false)
	require.NoError(t, err)
	require.Zero(t, onAir())
	r.told()
	got, err = r.SetEnabled(t.Context(), scope, true)
	require.NoError(t, err)
	require.Equal(t, app.Active, got.State)
	require.Equal(t, 1, onAir())
	require.Equal(t, []string{c.ID}, r.told())
	got, err = r.SetEnabled(t.Context(), scope, true)
	require.NoError(t, err)
	require.Equal(t, app.Active, got.State)
}

func TestPublish_ValidateOnlyChangesNothing(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	before := r.state(t, scope)
	r.told()
	_, err := r.Publish(t.Context(), scope, true)
	require.NoError(t, err)
	require.Equal(t, before, r.state(t, scope))
	require.Empty(t, r.told())
	require.Equal(t, app.SettingUp, c.State)
}

func TestPJ06_PJ09_UpdateSettings_NamesTheFieldsAtFault(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#13", "poppy-0.1/3.1#14", "poppy-0.1/3.1#17", "poppy-0.1/3.1#19", "poppy-0.1/3.1#20",
		"poppy-0.1/3.1#21", "poppy-0.1/3.1#23", "poppy-0.1/3.1#24", "poppy-0.1/3.3#3", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6")
	for name, c := range map[string]struct {
		change func(*discovery.Settings)
		fields []string
	}{
		"nothing to offer": {func(s *discovery.Settings) { s.Conversations.Enabled = false }, []string{"conversations.enabled"}},
		"endpoint is http": {func(s *discovery.Settings) { s.BrowserSessionEndpoint = "http://noodle.example/x" }, []string{"browser_session_endpoint"}},
		"two APIs wrong": {func(s *discovery.Settings) {
			s.APIs = []discovery.API{{Type: "rest", URL: "https://a.example"}, {Type: discovery.MCP, URL: "ftp://a.example", Resource: "https://b.example"}}
		}, []string{"apis[0].type", "apis[1].url", "apis[1].resource"}},
		"resource is no URL": {func(s *discovery.Settings) {
			s.APIs = []discovery.API{{Type: discovery.OpenAPI, URL: "https://a.example/o.json", Resource: "orders"}}
		}, []string{"apis[0].resource"}},
		"reserved scope":         {func(s *discovery.Settings) { s.CustomScopes = map[string]string{"poppy:admin": "Everything"} }, []string{"custom_scopes.poppy:admin"}},
		"scope without text":     {func(s *discovery.Settings) { s.CustomScopes = map[string]string{"orders": ""} }, []string{"custom_scopes.orders"}},
		"plain extension":        {extension("loyalty", `{"version":"1"}`), []string{"extensions.loyalty"}},
		"number as version":      {extension("noodle.example/x", `{"version":1}`), []string{"extensions.noodle.example/x.version"}},
		"operations, no address": {extension("operations", `{"version":"1"}`), []string{"extensions.operations.endpoint"}},
		"required extension": {func(s *discovery.Settings) {
			extension("noodle.example/x", `{"version":"1"}`)(s)
			s.RequiredExtensions = []string{"noodle.example/x", "operations", "noodle.example/x"}
		}, []string{"required_extensions[1]", "required_extensions[2]"}},
		"long name": {func(s *discovery.Settings) { s.OrganizationName = strings.Repeat("x", 201) }, []string{"organization_name"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			scope, _ := r.company(t, "noodle")
			before := r.state(t, scope)
			change := func(s *discovery.Settings) error { c.change(s); return nil }
			var want []string
			for _, f := range c.fields {
				want = append(want, "discovery_settings."+f)
			}
			_, err := r.UpdateSettings(t.Context(), scope, "", false, change)
			requireReason(t, err, problem.InvalidRequest, want...)
			_, err = r.UpdateSettings(t.Context(), scope, "", true, change)
			requireReason(t, err, problem.InvalidRequest, want...)
			require.Equal(t, before, r.state(t, scope))
			require.Empty(t, r.told())
		})
	}
}

func extension(name, entry string) func(*discovery.Settings) {
	return func(s *discovery.Settings) { s.Extensions = map[string]json.RawMessage{name: json.RawMessage(entry)} }
}

func TestUpdateSettings_RefusesDocumentsTooLargeToServe(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
		s.Extensions = map[string]json.RawMessage{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			s.Extensions[name+".example/x"] = json.RawMessage(`{"version":"1","x":"` + strings.Repeat("x", 15000) + `"}`)
		}
		return nil
	})
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
	require.Empty(t, r.state(t, scope).Settings.Extensions)
}

func TestUpdateSettings_ETagAndValidateOnly(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	rename := func(s *discovery.Settings) error { s.OrganizationName = "Nudelbar GmbH"; return nil }
	r.clock.Advance(time.Minute)
	r.told()

	got, err := r.UpdateSettings(t.Context(), scope, resource.ETag(c.Version), true, rename)
	require.NoError(t, err)
	require.Equal(t, "Nudelbar GmbH", got.Settings.OrganizationName, "shown as it would be")
	require.Equal(t, c.Version, r.state(t, scope).Version)
	require.Empty(t, r.state(t, scope).Settings.OrganizationName)
	require.Empty(t, r.told())

	got, err = r.UpdateSettings(t.Context(), scope, resource.ETag(c.Version), false, rename)
	require.NoError(t, err)
	require.Equal(t, r.clock.Now(), got.SettingsAt)
	require.Equal(t, c.Version+1, got.Version)
	require.Equal(t, []string{c.ID}, r.told())
	for _, validateOnly := range []bool{true, false} {
		_, err = r.UpdateSettings(t.Context(), scope, resource.ETag(c.Version), validateOnly, keep)
		requireReason(t, err, problem.EtagMismatch)
	}
}

func TestDocuments_OneEachOfEveryVerifiedDomain(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#d1", "poppy-0.1/3.2#2", "poppy-0.1/3.2#5")
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	for _, name := range []string{"noodle.example", "noodle.co.example", "shop.noodle.example"} {
		d := r.domain(t, scope, name)
		r.net.txt[app.TXTName(d.Domain)] = []string{d.TXTValue()}
		_, err := r.CheckDomain(t.Context(), scope, d.ID)
		require.NoError(t, err)
	}
	r.domain(t, scope, "unproven.example")
	docs, err := r.Documents(t.Context(), scope)
	require.NoError(t, err)
	require.Len(t, docs.ByDomain, 3)
	meta, err := discovery.ParseMetadata(docs.Metadata, c.Issuer.String())
	require.NoError(t, err)
	require.Equal(t, []string{"noodle.co.example", "noodle.example", "shop.noodle.example"}, meta.PoppyDomains)
	for name, raw := range docs.ByDomain {
		doc, err := discovery.ParseDocument(raw, name)
		require.NoError(t, err)
		require.Equal(t, "Noodle Bar", doc.Name)
		require.NoError(t, discovery.CheckPair(doc, meta))
	}
}

func TestDocuments_AllDomainsFitIntoTheMetadata(t *testing.T) {
	c, err := discovery.CheckSettings(discovery.Settings{OrganizationName: "x", Conversations: discovery.Conversations{Enabled: true}})
	require.NoError(t, err)
	i, err := discovery.ParseIssuer("https://" + strings.Repeat(strings.Repeat("h", 60)+".", 4) + "example")
	require.NoError(t, err)
	var domains []discovery.Domain
	for n := range app.MaxDomains {
		label := string(rune('a'+n%26)) + string(rune('a'+n/26))
		d, err := discovery.ParseDomain(label + strings.Repeat("d", 60) + "." + strings.Repeat(strings.Repeat("d", 62)+".", 2) + strings.Repeat("d", 61) + ".dd")
		require.NoError(t, err)
		domains = append(domains, d)
	}
	_, err = discovery.BuildMetadata(c, i, domains)
	require.NoError(t, err)
}
