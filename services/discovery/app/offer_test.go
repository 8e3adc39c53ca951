package app_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// wantsEverySignIn is a Company with all that draft 0.1 has.
func wantsEverySignIn(s *discovery.Settings) error {
	s.CustomScopes = map[string]string{"orders": "See orders"}
	s.Direct = &discovery.SignIn{Scopes: []string{"poppy:read", "orders"}}
	s.Device = &discovery.SignIn{Scopes: []string{"poppy:read"}}
	s.Mediated = &discovery.Mediated{Scopes: []string{"poppy:read"}}
	return nil
}

// published reads the documents of a Company that has the domain noodle.example.
func (r *rig) published(t testing.TB, scope tenancy.Scope) (discovery.Document, map[string]any) {
	t.Helper()
	docs, err := r.Documents(t.Context(), scope)
	require.NoError(t, err)
	doc, err := discovery.ParseDocument(docs.ByDomain["noodle.example"], "noodle.example")
	require.NoError(t, err)
	require.NoError(t, discovery.CheckPublished(doc))
	meta, err := discovery.ParseMetadata(docs.Metadata, doc.Auth.Issuer)
	require.NoError(t, err)
	require.NoError(t, discovery.CheckPair(doc, meta))
	var raw map[string]any
	require.NoError(t, json.Unmarshal(docs.Metadata, &raw))
	return doc, raw
}

func TestDocuments_SignInThatIsSetUp(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#8", "poppy-0.1/3.1#9", "poppy-0.1/3.1#10", "poppy-0.1/3.1#11", "poppy-0.1/3.1#12", "poppy-0.1/3.1#13", "poppy-0.1/3.2#13", "poppy-0.1/3.2#14",
		"poppy-0.1/4.4#3", "poppy-0.1/4.4#20", "poppy-0.1/4.5#3", "poppy-0.1/4.6#3", "poppy-0.1/4.7#3")
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	r.verified(t, scope, "noodle.example")
	_, err := r.UpdateSettings(t.Context(), scope, "", false, wantsEverySignIn)
	require.NoError(t, err)
	r.connect(t, scope, byWebhook())
	doc, meta := r.published(t, scope)
	require.Equal(t, []string{"poppy:read", "orders"}, doc.Auth.Direct.Scopes)
	require.Equal(t, []string{"poppy:read"}, doc.Auth.Device.Scopes)
	require.Equal(t, &discovery.MediatedEndpoint{
		Endpoint: c.Issuer.SignInEndpoint(), Scopes: []string{"poppy:read"},
		Fields: []discovery.MediatedField{{Name: "email", Label: "Email"}, {Name: "pin", Label: "PIN", Secret: true}},
	}, doc.Auth.Mediated)
	require.Equal(t, "See orders", doc.Auth.CustomScopes["orders"])
	require.Equal(t, c.Issuer.AuthorizationEndpoint(), meta["authorization_endpoint"])
	require.Equal(t, c.Issuer.DeviceAuthorizationEndpoint(), meta["device_authorization_endpoint"])
}

// MD-04: for any settings and any connection, the documents, the metadata and what other
// services are told say the same.
func TestMD04_DocumentsMetadataAndSnapshotAgree(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4", "poppy-0.1/4.4#20", "poppy-0.1/4.5#3", "poppy-0.1/4.6#3")
	r := newRig(t)
	live, _ := r.company(t, "noodle")
	trial, _ := r.companyOfKind(t, "trial", app.Test)
	r.verified(t, live, "noodle.example")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	some := func(of ...string) []string {
		var out []string
		for _, s := range of {
			if dice.IntN(2) == 0 {
				out = append(out, s)
			}
		}
		return out
	}
	signIn := func(scopes []string) *discovery.SignIn {
		if len(scopes) == 0 {
			return nil
		}
		return &discovery.SignIn{Scopes: scopes}
	}
	seen := map[string]int{}
	for range 60 {
		scope := live
		if dice.IntN(4) == 0 {
			scope = trial
		}
		_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
			s.CustomScopes = map[string]string{"orders": "See orders", "stamps": "Collect stamps"}
			s.Direct, s.Device, s.Mediated = signIn(some("poppy:read", "orders")), signIn(some("poppy:write", "stamps")), nil
			if scopes := some("poppy:read", "poppy:write"); len(scopes) > 0 {
				s.Mediated = &discovery.Mediated{Scopes: scopes}
			}
			return nil
		})
		require.NoError(t, err)
		changes := []app.ConnectionChange{
			{Method: to(app.NoMethod)},
			{Method: to(app.NoMethod), CredentialCheck: &app.CredentialCheck{}},
			byOIDC(), byWebhook(),
			{Method: to(app.LoginHandoff), LoginURL: to("https://noodle.example/login")},
		}
		if scope == trial {
			changes = append(changes, app.ConnectionChange{Method: to(app.TestAccounts), TestAccounts: &[]app.NewTestAccount{mia()}})
		}
		r.connect(t, scope, changes[dice.IntN(len(changes))])

		s, err := r.Snapshot(t.Context(), scope)
		require.NoError(t, err)
		p := s.Published()
		hasMethod := s.Connection.Method != app.NoMethod
		hasCheck := s.Connection.CredentialCheck.URL != "" || s.Connection.Method == app.TestAccounts
		require.Equal(t, s.Settings.Direct != nil && hasMethod, p.Direct != nil)
		require.Equal(t, s.Settings.Device != nil && hasMethod, p.Device != nil)
		require.Equal(t, s.Settings.Mediated != nil && hasCheck, p.Mediated != nil)
		require.Equal(t, hasMethod || p.Mediated != nil, s.SignInSetUp())
		if scope == trial {
			continue
		}
		doc, meta := r.published(t, scope)
		require.Equal(t, p.Direct, doc.Auth.Direct)
		require.Equal(t, p.Device, doc.Auth.Device)
		want := []any{"urn:ietf:params:oauth:grant-type:jwt-bearer"}
		if p.Direct != nil {
			want = append(want, "authorization_code")
		}
		if p.Device != nil {
			want = append(want, "urn:ietf:params:oauth:grant-type:device_code")
		}
		if p.Direct != nil || p.Device != nil || p.Mediated != nil {
			want = append(want, "refresh_token")
		}
		require.Equal(t, want, meta["grant_types_supported"])
		require.Equal(t, p.Direct != nil, meta["authorization_endpoint"] != nil)
		require.Equal(t, p.Device != nil, meta["device_authorization_endpoint"] != nil)
		require.Equal(t, p.Mediated != nil, doc.Auth.Mediated != nil)
		if p.Mediated != nil {
			require.Equal(t, p.Mediated.Fields, doc.Auth.Mediated.Fields)
			require.Equal(t, s.Connection.Fields(), doc.Auth.Mediated.Fields)
			require.Equal(t, p.Mediated.Scopes, doc.Auth.Mediated.Scopes)
		}
		seen[fmt.Sprint(p.Direct != nil, p.Device != nil, p.Mediated != nil)]++
	}
	require.Greater(t, len(seen), 3, "the cases differ: %v", seen)
}

func TestPJ06_UpdateSettings_ScopesOfSignIn(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#8", "poppy-0.1/3.1#9", "poppy-0.1/3.1#12", "poppy-0.1/4.4#17", "poppy-0.1/4.4#20")
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	for field, spoil := range map[string]func(*discovery.Settings){
		"direct_scopes":      func(s *discovery.Settings) { s.Direct.Scopes = nil },
		"direct_scopes[0]":   func(s *discovery.Settings) { s.Direct.Scopes = []string{"unknown"} },
		"direct_scopes[1]":   func(s *discovery.Settings) { s.Direct.Scopes = []string{"poppy:read", "poppy:read"} },
		"device_scopes":      func(s *discovery.Settings) { s.Device.Scopes = nil },
		"device_scopes[0]":   func(s *discovery.Settings) { s.Device.Scopes = []string{"poppy:admin"} },
		"mediated_scopes":    func(s *discovery.Settings) { s.Mediated.Scopes = nil },
		"mediated_scopes[0]": func(s *discovery.Settings) { s.Mediated.Scopes = []string{"POPPY:READ"} },
	} {
		_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
			if err := wantsEverySignIn(s); err != nil {
				return err
			}
			spoil(s)
			return nil
		})
		requireReason(t, err, problem.InvalidRequest, "discovery_settings."+field)
	}
	require.Nil(t, r.state(t, scope).Settings.Direct)
}

func TestUpdateSettings_ScopeInUseStays(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#16")
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
		s.CustomScopes = map[string]string{"orders": "See orders", "stamps": "Collect stamps", "idle": "Nobody grants it"}
		s.Direct = &discovery.SignIn{Scopes: []string{"orders"}}
		s.Mediated = &discovery.Mediated{Scopes: []string{"orders", "stamps"}}
		return nil
	})
	require.NoError(t, err)
	without := func(also func(*discovery.Settings), names ...string) error {
		_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
			left := map[string]string{}
			for name, text := range s.CustomScopes {
				if !slices.Contains(names, name) {
					left[name] = text
				}
			}
			s.CustomScopes = left
			also(s)
			return nil
		})
		return err
	}
	err = without(func(*discovery.Settings) {}, "orders", "idle")
	requireReason(t, err, problem.FailedPrecondition, "discovery_settings.custom_scopes.orders", "discovery_settings.custom_scopes.orders")
	require.Contains(t, problem.As(err).Detail, "the scope orders is in use by direct_scopes")
	requireReason(t, without(func(s *discovery.Settings) { s.Direct = nil }, "stamps"), problem.FailedPrecondition, "discovery_settings.custom_scopes.stamps")
	require.NoError(t, without(func(*discovery.Settings) {}, "idle"))
	require.NoError(t, without(func(s *discovery.Settings) { s.Direct, s.Mediated = nil, nil }, "orders", "stamps"), "with the same request")
}

func TestScopeTexts_OfTheDesignThenOfTheSettings(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#16")
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	_, err := r.UpdateSettings(t.Context(), scope, "", false, func(s *discovery.Settings) error {
		s.CustomScopes = map[string]string{"orders": "See orders", "stamps": "Collect stamps", "points": "See points"}
		return nil
	})
	require.NoError(t, err)
	_, err = r.UpdateDesign(t.Context(), scope, app.DesignChange{ScopeTexts: &map[string]map[string]string{
		"poppy:read": {"": "Look at your account", "de": "Ihr Konto ansehen"}, "stamps": {"de": "Stempel sammeln"}, "points": {"": "Your points"}, "gone": {"": "Was once"},
	}})
	require.NoError(t, err)
	s, err := r.Snapshot(t.Context(), scope)
	require.NoError(t, err)
	require.Equal(t, map[string]map[string]string{
		"poppy:read": {"": "Look at your account", "de": "Ihr Konto ansehen"}, "orders": {"": "See orders"},
		"stamps": {"": "Collect stamps", "de": "Stempel sammeln"}, "points": {"": "Your points"},
	}, s.ScopeTexts())
	require.Equal(t, map[string]string{"de": "Stempel sammeln"}, s.Design.ScopeTexts["stamps"], "what is stored stays as it is")
}
