package discovery_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func requireReason(t testing.TB, err error, reason problem.Reason, fields ...string) {
	t.Helper()
	require.True(t, problem.Is(err, reason), "%v", err)
	var got []string
	for _, f := range problem.As(err).Fields {
		got = append(got, f.Path)
	}
	if fields != nil {
		require.Equal(t, fields, got)
	}
}

func TestCreateCompany_Answer(t *testing.T) {
	r := newRig(t)
	c := r.setUp(t, "noodle", "")
	got, err := r.companies.GetCompany(c.ctx(t), &adminv1.GetCompanyRequest{Name: c.name})
	require.NoError(t, err)
	require.Equal(t, "https://noodle.poppyfield.example", got.GetIssuer())
	require.Equal(t, adminv1.CompanyState_COMPANY_STATE_SETTING_UP, got.GetState())
	require.Equal(t, adminv1.CompanyKind_COMPANY_KIND_LIVE, got.GetKind())
	require.Equal(t, "operatorKeys/k1", got.GetCreator())
	require.Nil(t, got.GetPublishTime())
	require.NotEmpty(t, got.GetEtag())
	_, err = r.companies.CreateCompany(t.Context(), &adminv1.CreateCompanyRequest{Company: &adminv1.Company{Slug: "noodle"}})
	requireReason(t, err, problem.AlreadyExists)
	_, err = r.companies.CreateCompany(t.Context(), &adminv1.CreateCompanyRequest{Company: &adminv1.Company{Slug: "No Slug"}})
	requireReason(t, err, problem.InvalidRequest, "company.slug")
}

func TestMT03_OtherCompanysNamesAreNotThere(t *testing.T) {
	r := newRig(t)
	a, b := r.company(t, "a", ""), r.company(t, "b", "")
	theirs := r.verify(t, b, "b.example")
	missing := b.name + "/domains/dom_missing"
	before, err := r.companies.GetCompany(b.ctx(t), &adminv1.GetCompanyRequest{Name: b.name})
	require.NoError(t, err)
	ctx := a.ctx(t)
	calls := map[string]func(name string) error{
		"GetCompany": func(string) error {
			_, err := r.companies.GetCompany(ctx, &adminv1.GetCompanyRequest{Name: b.name})
			return err
		},
		"PublishCompany": func(string) error {
			_, err := r.companies.PublishCompany(ctx, &adminv1.PublishCompanyRequest{Name: b.name})
			return err
		},
		"DisableCompany": func(string) error {
			_, err := r.companies.DisableCompany(ctx, &adminv1.DisableCompanyRequest{Name: b.name})
			return err
		},
		"EnableCompany": func(string) error {
			_, err := r.companies.EnableCompany(ctx, &adminv1.EnableCompanyRequest{Name: b.name})
			return err
		},
		"UpdateCompany": func(string) error {
			_, err := r.companies.UpdateCompany(ctx, &adminv1.UpdateCompanyRequest{Company: &adminv1.Company{Name: b.name, DisplayName: "mine"}})
			return err
		},
		"GetSettings": func(string) error {
			_, err := r.companies.GetDiscoverySettings(ctx, &adminv1.GetDiscoverySettingsRequest{Name: b.name + "/discoverySettings"})
			return err
		},
		"UpdateSettings": func(string) error {
			_, err := r.companies.UpdateDiscoverySettings(ctx, &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: &adminv1.DiscoverySettings{Name: b.name + "/discoverySettings", OrganizationName: "mine"}})
			return err
		},
		"GetLimits": func(string) error {
			_, err := r.companies.GetLimits(ctx, &adminv1.GetLimitsRequest{Name: b.name + "/limits"})
			return err
		},
		"UpdateLimits": func(string) error {
			_, err := r.companies.UpdateLimits(ctx, &adminv1.UpdateLimitsRequest{Limits: &adminv1.Limits{Name: b.name + "/limits", RequestsPerMinute: 1}})
			return err
		},
		"CreateDomain": func(string) error {
			_, err := r.domains.CreateDomain(ctx, &adminv1.CreateDomainRequest{Parent: b.name, Domain: &adminv1.Domain{Domain: "x.example"}})
			return err
		},
		"ListDomains": func(string) error {
			_, err := r.domains.ListDomains(ctx, &adminv1.ListDomainsRequest{Parent: b.name})
			return err
		},
		"GetDomain": func(name string) error {
			_, err := r.domains.GetDomain(ctx, &adminv1.GetDomainRequest{Name: name})
			return err
		},
		"CheckDomain": func(name string) error {
			_, err := r.domains.CheckDomain(ctx, &adminv1.CheckDomainRequest{Name: name})
			return err
		},
		"DeleteDomain": func(name string) error {
			_, err := r.domains.DeleteDomain(ctx, &adminv1.DeleteDomainRequest{Name: name})
			return err
		},
	}
	for name, call := range calls {
		theirErr, missingErr := call(theirs), call(missing)
		requireReason(t, theirErr, problem.NotFoundReason)
		require.Equal(t, problem.As(missingErr), problem.As(theirErr), name)
		// Their id under the caller's own name isn't there either.
		if own := a.name + theirs[len(b.name):]; name == "GetDomain" || name == "CheckDomain" || name == "DeleteDomain" {
			requireReason(t, call(own), problem.NotFoundReason)
		}
	}
	after, err := r.companies.GetCompany(b.ctx(t), &adminv1.GetCompanyRequest{Name: b.name})
	require.NoError(t, err)
	require.True(t, proto.Equal(before, after), "nothing changed")
	require.Equal(t, http.StatusOK, r.get(t, documentURL(t, b, "b.example")).Code)
}

func TestUpdateCompany_Mask(t *testing.T) {
	r := newRig(t)
	c := r.setUp(t, "noodle", "")
	update := func(in *adminv1.Company, paths ...string) (*adminv1.Company, error) {
		in.Name = c.name
		return r.companies.UpdateCompany(c.ctx(t), &adminv1.UpdateCompanyRequest{Company: in, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	got, err := update(&adminv1.Company{DisplayName: "New", Issuer: "https://x.example"}, "display_name")
	require.NoError(t, err)
	require.Equal(t, "New", got.GetDisplayName())
	require.Equal(t, "https://noodle.poppyfield.example", got.GetIssuer())
	got, err = update(&adminv1.Company{Issuer: "https://x.example"})
	require.NoError(t, err)
	require.Equal(t, "New", got.GetDisplayName())
	require.Equal(t, "https://x.example", got.GetIssuer())
	_, err = update(&adminv1.Company{}, "display_name")
	requireReason(t, err, problem.InvalidRequest, "company.display_name")
	_, err = update(&adminv1.Company{Slug: "x"}, "slug")
	requireReason(t, err, problem.InvalidRequest, "update_mask")
}

func TestDiscoverySettings_ComeBackAsSet(t *testing.T) {
	r := newRig(t)
	c := r.setUp(t, "noodle", "")
	want := &adminv1.DiscoverySettings{
		Name: c.name + "/discoverySettings", OrganizationName: "Nudelbar", ConversationsEnabled: true, ConversationsResource: true,
		Apis:                   []*adminv1.Api{{Type: "openapi", Url: "https://a.example/o.json", Description: "d", Resource: "https://a.example"}},
		BrowserSessionEndpoint: "https://a.example/session", CustomScopes: map[string]string{"orders": "See orders"},
		Extensions:         map[string]*adminv1.Extension{"a.example/x": {Version: "2", FieldsJson: `{"a":[1,2]}`}, "a.example/y": {Version: "1"}},
		RequiredExtensions: []string{"a.example/y"},
	}
	got, err := r.companies.UpdateDiscoverySettings(c.ctx(t), &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: want, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}})
	require.NoError(t, err)
	again, err := r.companies.GetDiscoverySettings(c.ctx(t), &adminv1.GetDiscoverySettingsRequest{Name: want.GetName()})
	require.NoError(t, err)
	require.True(t, proto.Equal(got, again))
	got.Etag, got.UpdateTime = "", nil
	require.True(t, proto.Equal(want, got), "%v", got)

	// A mask clears what it names and isn't set.
	got, err = r.companies.UpdateDiscoverySettings(c.ctx(t), &adminv1.UpdateDiscoverySettingsRequest{
		DiscoverySettings: &adminv1.DiscoverySettings{Name: want.GetName()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"apis", "extensions", "required_extensions", "conversations_resource"}},
	})
	require.NoError(t, err)
	require.Empty(t, got.GetApis())
	require.Empty(t, got.GetExtensions())
	require.Empty(t, got.GetRequiredExtensions())
	require.False(t, got.GetConversationsResource())
	require.Equal(t, "Nudelbar", got.GetOrganizationName())
}

func TestPJ09_DiscoverySettings_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#14", "poppy-0.1/3.1#21", "poppy-0.1/3.3#5")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	before := r.fetch(t, documentURL(t, c, "noodle.example"))
	for field, s := range map[string]*adminv1.DiscoverySettings{
		"discovery_settings.custom_scopes.poppy:admin":               {CustomScopes: map[string]string{"poppy:admin": "All"}},
		"discovery_settings.extensions.loyalty":                      {Extensions: map[string]*adminv1.Extension{"loyalty": {Version: "1"}}},
		"discovery_settings.extensions.a.example/x.fields_json":      {Extensions: map[string]*adminv1.Extension{"a.example/x": {Version: "1", FieldsJson: `[1]`}}},
		"discovery_settings.browser_session_endpoint":                {BrowserSessionEndpoint: "http://noodle.example"},
		"discovery_settings.apis[0].url":                             {Apis: []*adminv1.Api{{Type: "mcp", Url: "x"}}},
		"discovery_settings.extensions.operations.endpoint":          {Extensions: map[string]*adminv1.Extension{"operations": {Version: "1"}}},
		"discovery_settings.extensions.noodle.example/y.fields_json": {Extensions: map[string]*adminv1.Extension{"noodle.example/y": {Version: "1", FieldsJson: `null`}}},
	} {
		s.Name = c.name + "/discoverySettings"
		_, err := r.companies.UpdateDiscoverySettings(c.ctx(t), &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: s})
		requireReason(t, err, problem.InvalidRequest, field)
	}
	r.dir.Forget()
	require.Equal(t, before, r.fetch(t, documentURL(t, c, "noodle.example")))
}

func TestLimits_InForceAndBounds(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "")
	name := c.name + "/limits"
	got, err := r.companies.GetLimits(c.ctx(t), &adminv1.GetLimitsRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, time.Hour, got.GetSessionTokenLifetime().AsDuration(), "the installation's default")
	got, err = r.companies.UpdateLimits(c.ctx(t), &adminv1.UpdateLimitsRequest{Limits: &adminv1.Limits{Name: name, AnswerDeadline: durationpb.New(45 * time.Second), RequestsPerMinute: 9}})
	require.NoError(t, err)
	require.Equal(t, 45*time.Second, got.GetAnswerDeadline().AsDuration())
	require.Equal(t, int32(9), got.GetRequestsPerMinute())
	snap, err := r.api.GetCompanySnapshot(c.ctx(t), &directoryv1.GetCompanySnapshotRequest{})
	require.NoError(t, err)
	require.Equal(t, 45*time.Second, snap.GetAnswerDeadline().AsDuration())
	require.Equal(t, int32(600), snap.GetSessionStartsPerMinute())
	for field, l := range map[string]*adminv1.Limits{
		"limits.answer_deadline":           {AnswerDeadline: durationpb.New(time.Hour)},
		"limits.event_retention":           {EventRetention: durationpb.New(-time.Hour)},
		"limits.session_idle_lifetime":     {SessionIdleLifetime: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"limits.session_starts_per_minute": {SessionStartsPerMinute: 1 << 30},
	} {
		l.Name = name
		_, err := r.companies.UpdateLimits(c.ctx(t), &adminv1.UpdateLimitsRequest{Limits: l})
		requireReason(t, err, problem.InvalidRequest, field)
	}
	// Named by the mask and left out: the default again.
	got, err = r.companies.UpdateLimits(c.ctx(t), &adminv1.UpdateLimitsRequest{Limits: &adminv1.Limits{Name: name}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"answer_deadline"}}})
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, got.GetAnswerDeadline().AsDuration())
	require.Equal(t, int32(9), got.GetRequestsPerMinute())
}

func TestGetCompanySnapshot_InEveryState(t *testing.T) {
	r := newRig(t)
	c := r.setUp(t, "noodle", "")
	active := func() bool {
		snap, err := r.api.GetCompanySnapshot(c.ctx(t), &directoryv1.GetCompanySnapshotRequest{})
		require.NoError(t, err)
		require.Equal(t, c.scope.CompanyID(), snap.GetCompanyId())
		require.Equal(t, c.issuer.String(), snap.GetIssuer())
		return snap.GetActive()
	}
	require.False(t, active(), "being set up")
	r.publish(t, c)
	require.True(t, active())
	_, err := r.companies.DisableCompany(c.ctx(t), &adminv1.DisableCompanyRequest{Name: c.name})
	require.NoError(t, err)
	require.False(t, active(), "disabled")
	_, err = r.api.GetCompanySnapshot(t.Context(), &directoryv1.GetCompanySnapshotRequest{})
	require.Equal(t, problem.Internal, problem.As(err).Kind, "no Company is named")
}

func TestLists_PageByPage(t *testing.T) {
	r := newRig(t)
	var first tenant
	for i := range 5 {
		c := r.setUp(t, "c"+strconv.Itoa(i), "")
		if i == 0 {
			first = c
		}
		r.register(t, first, "d"+strconv.Itoa(i)+".example")
	}
	companies, domains := map[string]bool{}, map[string]bool{}
	token := ""
	for {
		got, err := r.companies.ListCompanies(t.Context(), &adminv1.ListCompaniesRequest{PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, c := range got.GetCompanies() {
			companies[c.GetName()] = true
		}
		if token = got.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Len(t, companies, 5)
	for {
		got, err := r.domains.ListDomains(first.ctx(t), &adminv1.ListDomainsRequest{Parent: first.name, PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, d := range got.GetDomains() {
			domains[d.GetDomain()] = true
		}
		if got.GetNextPageToken() == "" {
			break
		}
		token = got.GetNextPageToken()
	}
	require.Len(t, domains, 5)
	_, err := r.companies.ListCompanies(t.Context(), &adminv1.ListCompaniesRequest{PageToken: token})
	requireReason(t, err, problem.InvalidRequest, "page_token")
	_, err = r.companies.ListCompanies(t.Context(), &adminv1.ListCompaniesRequest{PageToken: "garbage"})
	requireReason(t, err, problem.InvalidRequest, "page_token")
}

func TestStart_ProvesDueDomains(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "")
	d := r.register(t, c, "noodle.example")
	require.Equal(t, documentURL(t, c, "noodle.example"), d.GetRedirectTarget())
	r.mu.Lock()
	r.pages["https://noodle.example/.well-known/poppy.json"] = &relayv1.FetchResponse{Status: 302, Headers: map[string]string{"Location": d.GetRedirectTarget()}}
	r.mu.Unlock()
	require.NoError(t, r.service.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.service.Stop(t.Context())) })
	require.Eventually(t, func() bool {
		return r.get(t, d.GetRedirectTarget()).Code == http.StatusOK
	}, 20*time.Second, 2*time.Millisecond)
	got, err := r.domains.GetDomain(c.ctx(t), &adminv1.GetDomainRequest{Name: d.GetName()})
	require.NoError(t, err)
	require.Equal(t, adminv1.ProofMethod_PROOF_METHOD_REDIRECT, got.GetProofMethod())
	require.Len(t, got.GetObservations(), 2)
	require.Equal(t, "the redirect is there", got.GetObservations()[1].GetDetail())
	require.True(t, got.GetObservations()[1].GetOk())
	require.Equal(t, "there is no TXT record at _poppyfield.noodle.example", got.GetObservations()[0].GetDetail())
}

func TestStop_WithoutStart(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.service.Stop(t.Context()))
}
