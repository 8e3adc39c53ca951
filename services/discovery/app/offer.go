package app

import (
	"maps"
	"slices"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// wanted returns what c wants to publish, whether or not it is set up.
func (c Company) wanted() discovery.Settings {
	settings := c.Settings
	if settings.OrganizationName == "" {
		settings.OrganizationName = c.DisplayName
	}
	return settings
}

// Published returns the settings with those types of sign-in that are set up, and no
// others (Poppy 4.4), and with our browser session endpoint only where its domain is the
// Company's (Poppy 5). Documents, metadata and everybody who asks the directory go by it.
func (s Snapshot) Published() discovery.Settings {
	out := s.wanted()
	if discovery.CheckBrowserSession(out, s.Issuer, s.Domains) != nil { // its domain was given up
		out.BrowserCookie = nil
		if out.Conversations.Enabled || len(out.APIs) > 0 { // else there would be no document left to serve
			out.BrowserSessionEndpoint = ""
		}
	}
	if s.Connection.Method == NoMethod { // poppy-0.1/4.4#3
		out.Direct, out.Device = nil, nil
	}
	if out.Mediated != nil {
		fields := s.Connection.Fields()
		if len(fields) == 0 {
			out.Mediated = nil
			return out
		}
		out.Mediated = &discovery.Mediated{Fields: fields, Scopes: out.Mediated.Scopes}
	}
	return out
}

// Fields are what the User is asked for where we check credentials: on our form, and in
// Mediated Sign-In. Without any there is no Mediated Sign-In.
func (c Connection) Fields() []discovery.MediatedField {
	switch {
	case c.Method == TestAccounts:
		return testFields()
	case c.CredentialCheck.URL != "":
		return c.CredentialCheck.Fields
	default:
		return nil
	}
}

// testFields are what test accounts are asked for.
func testFields() []discovery.MediatedField {
	return []discovery.MediatedField{{Name: "username", Label: "User name"}, {Name: "password", Label: "Password", Secret: true}}
}

// SignInSetUp reports whether Users can sign in, or could if their sign-in had scopes.
func (s Snapshot) SignInSetUp() bool {
	p := s.Published()
	return s.Connection.Method != NoMethod || p.Direct != nil || p.Device != nil || p.Mediated != nil
}

// ScopeTexts returns what Users are told, by scope and then by language: the design's
// texts, and where those have none for any language, the scope's published description.
func (s Snapshot) ScopeTexts() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, scope := range append(slices.Sorted(maps.Keys(s.Settings.CustomScopes)), oauth.ReadScope, oauth.WriteScope) {
		texts := maps.Clone(s.Design.ScopeTexts[scope])
		if description := s.Settings.CustomScopes[scope]; description != "" && texts[""] == "" {
			if texts == nil {
				texts = map[string]string{}
			}
			texts[""] = description
		}
		if len(texts) > 0 {
			out[scope] = texts
		}
	}
	return out
}

// checkScopesStay fails where a scope of the Company's own is taken away that a type of
// sign-in still grants.
func checkScopesStay(before, after discovery.Settings) error {
	var at *problem.Error
	for _, scope := range slices.Sorted(maps.Keys(before.CustomScopes)) {
		if _, stays := after.CustomScopes[scope]; stays {
			continue
		}
		for _, t := range []struct {
			field    string
			was, now []string
		}{
			{"direct_scopes", scopes(before.Direct), scopes(after.Direct)},
			{"device_scopes", scopes(before.Device), scopes(after.Device)},
			{"mediated_scopes", mediatedScopes(before), mediatedScopes(after)},
		} {
			if !slices.Contains(t.was, scope) || !slices.Contains(t.now, scope) {
				continue
			}
			if at == nil {
				at = problem.New(problem.Conflict, problem.FailedPrecondition, "poppy-0.1/4.4#20", "the scope %s is in use by %s: take it out there first, or with the same request", scope, t.field)
			}
			at = at.WithField("discovery_settings.custom_scopes."+scope, "in use by "+t.field)
		}
	}
	if at == nil {
		return nil
	}
	return at
}

func scopes(s *discovery.SignIn) []string {
	if s == nil {
		return nil
	}
	return s.Scopes
}

func mediatedScopes(s discovery.Settings) []string {
	if s.Mediated == nil {
		return nil
	}
	return s.Mediated.Scopes
}
