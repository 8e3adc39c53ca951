package discovery_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// conversationsOnly is a Company with nothing but the conversation protocol.
func conversationsOnly() discovery.Settings {
	return discovery.Settings{
		OrganizationName: "Harbor Goods",
		Conversations:    discovery.Conversations{Enabled: true},
	}
}

// everything uses every setting there is.
func everything() discovery.Settings {
	s := conversationsOnly()
	s.Conversations.OwnResource = true
	s.APIs = []discovery.API{
		{Type: discovery.OpenAPI, URL: "https://api.harbor.example/openapi.json", Description: "Orders <&> returns", Resource: "https://api.harbor.example"},
		{Type: discovery.MCP, URL: "https://mcp.harbor.example/mcp", Description: "Product search"},
	}
	s.BrowserSessionEndpoint = "https://harbor.example/poppy/browser-session"
	s.Direct = &discovery.SignIn{Scopes: []string{"poppy:read", "poppy:write", "addresses"}}
	s.Device = &discovery.SignIn{Scopes: []string{"poppy:read", "poppy:write"}}
	s.Mediated = &discovery.Mediated{
		Fields: []discovery.MediatedField{{Name: "email", Label: "Email"}, {Name: "password", Label: "Password", Secret: true}},
		Scopes: []string{"poppy:read"},
	}
	s.CustomScopes = map[string]string{"addresses": "Manage saved addresses", "wishlist": "See the wish list"}
	s.Extensions = map[string]json.RawMessage{
		"operations":            json.RawMessage(`{"version":"1","endpoint":"https://api.harbor.example/poppy/operations"}`),
		"harbor.example/wrap":   json.RawMessage(`{"version":"2","paper":["red","blue"]}`),
		"other.example/loyalty": json.RawMessage(`{"version":"1"}`),
	}
	return s
}

func checked(t testing.TB, s discovery.Settings) discovery.CheckedSettings {
	t.Helper()
	c, err := discovery.CheckSettings(s)
	require.NoError(t, err)
	return c
}

func TestBuildDocument_SignedOutOnly(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#8", "poppy-0.1/3#9", "poppy-0.1/3.1#1", "poppy-0.1/3.1#15", "poppy-0.1/7.1#2", "poppy-0.1/7.1#5")
	raw, err := discovery.BuildDocument(checked(t, conversationsOnly()), issuer(t, "https://host.example/t/harbor"), domain(t, "harbor.example"))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"protocol_version": "0.1",
		"organization": {"name": "Harbor Goods", "domain": "harbor.example"},
		"auth": {"issuer": "https://host.example/t/harbor"},
		"agent": {"protocols": [{"type": "poppy", "endpoint": "https://host.example/t/harbor/poppy/conversations"}]}
	}`, string(raw))
}

func TestBuildDocument_PassesItsOwnParser(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#3", "poppy-0.1/3.1#4", "poppy-0.1/3.1#6", "poppy-0.1/3.1#8", "poppy-0.1/3.1#9",
		"poppy-0.1/3.1#10", "poppy-0.1/3.1#11", "poppy-0.1/3.1#12", "poppy-0.1/3.1#13", "poppy-0.1/3.1#16", "poppy-0.1/3.1#17",
		"poppy-0.1/3.1#19", "poppy-0.1/3.1#21", "poppy-0.1/3.1#23", "poppy-0.1/3.1#24", "poppy-0.1/3.2#8", "poppy-0.1/3.3#2",
		"poppy-0.1/3.3#3", "poppy-0.1/3.3#6", "poppy-0.1/6#1")
	for name, s := range map[string]discovery.Settings{"least": conversationsOnly(), "most": everything()} {
		for _, at := range []string{"https://poppy.harbor.example", "https://host.example:8443/t/harbor"} {
			c, i := checked(t, s), issuer(t, at)
			raw, err := discovery.BuildDocument(c, i, domain(t, "bücher.example"))
			require.NoError(t, err, name)
			doc, err := discovery.ParseDocument(raw, "www.xn--bcher-kva.example")
			require.NoError(t, err, name)
			require.NoError(t, discovery.CheckPublished(doc))
			metadata, err := discovery.BuildMetadata(c, i, []discovery.Domain{domain(t, "bücher.example")})
			require.NoError(t, err)
			meta, err := discovery.ParseMetadata(metadata, doc.Auth.Issuer)
			require.NoError(t, err, name)
			require.NoError(t, discovery.CheckPair(doc, meta))

			p, ok := doc.Conversation()
			require.True(t, ok)
			require.Equal(t, i.ConversationsEndpoint(), p.Endpoint)
			require.Equal(t, c.Settings().APIs, doc.APIs)
			require.Equal(t, s.Direct, doc.Auth.Direct)
			require.Len(t, doc.Extensions, len(s.Extensions))
		}
	}
}

func TestBuildDocument_Deterministic(t *testing.T) {
	c, i, d := checked(t, everything()), issuer(t, "https://poppy.harbor.example"), domain(t, "harbor.example")
	first, err := discovery.BuildDocument(c, i, d)
	require.NoError(t, err)
	require.Contains(t, string(first), "Orders <&> returns")
	for range 20 {
		again, err := discovery.BuildDocument(checked(t, everything()), i, d)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	a, b := domain(t, "a.example"), domain(t, "b.example")
	one, err := discovery.BuildMetadata(c, i, []discovery.Domain{a, b, a})
	require.NoError(t, err)
	two, err := discovery.BuildMetadata(c, i, []discovery.Domain{b, a})
	require.NoError(t, err)
	require.Equal(t, one, two)
}

func TestMD04_BuildMetadata_PromisesWhatIsOffered(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#2", "poppy-0.1/3.2#5", "poppy-0.1/3.2#9", "poppy-0.1/3.2#11", "poppy-0.1/3.2#12",
		"poppy-0.1/3.2#13", "poppy-0.1/3.2#14", "poppy-0.1/3.2#d10")
	i := issuer(t, "https://poppy.harbor.example")
	raw, err := discovery.BuildMetadata(checked(t, conversationsOnly()), i, []discovery.Domain{domain(t, "harbor.example"), domain(t, "harbor.co.example")})
	require.NoError(t, err)
	require.JSONEq(t, `{
		"issuer": "https://poppy.harbor.example",
		"token_endpoint": "https://poppy.harbor.example/oauth/token",
		"revocation_endpoint": "https://poppy.harbor.example/oauth/revoke",
		"poppy_domains": ["harbor.co.example", "harbor.example"],
		"response_types_supported": [],
		"grant_types_supported": ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
		"token_endpoint_auth_methods_supported": ["private_key_jwt"],
		"token_endpoint_auth_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "PS256", "RS256"],
		"revocation_endpoint_auth_methods_supported": ["private_key_jwt"],
		"revocation_endpoint_auth_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "PS256", "RS256"],
		"dpop_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "PS256", "RS256"],
		"client_id_metadata_document_supported": true
	}`, string(raw))

	raw, err = discovery.BuildMetadata(checked(t, everything()), i, nil)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(raw, &m))
	require.Equal(t, []any{}, m["poppy_domains"])
	require.Equal(t, "https://poppy.harbor.example/oauth/authorize", m["authorization_endpoint"])
	require.Equal(t, "https://poppy.harbor.example/oauth/device", m["device_authorization_endpoint"])
	require.Equal(t, []any{"code"}, m["response_types_supported"])
	require.Equal(t, []any{"S256"}, m["code_challenge_methods_supported"])
	require.Equal(t, true, m["authorization_response_iss_parameter_supported"])
	require.Equal(t, []any{"addresses", "poppy:read", "poppy:write"}, m["scopes_supported"])
	require.Len(t, m["grant_types_supported"], 4)
}

func TestBuild_UncheckedValues(t *testing.T) {
	_, err := discovery.BuildDocument(discovery.CheckedSettings{}, issuer(t, "https://a.example"), domain(t, "b.example"))
	require.Equal(t, problem.Internal, problem.As(err).Kind)
	_, err = discovery.BuildDocument(checked(t, conversationsOnly()), discovery.Issuer{}, domain(t, "b.example"))
	require.Equal(t, problem.Internal, problem.As(err).Kind)
	_, err = discovery.BuildDocument(checked(t, conversationsOnly()), issuer(t, "https://a.example"), discovery.Domain{})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
	_, err = discovery.BuildMetadata(checked(t, conversationsOnly()), discovery.Issuer{}, nil)
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

func TestBuildDocument_TooLarge(t *testing.T) {
	s := conversationsOnly()
	s.Extensions = map[string]json.RawMessage{}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		s.Extensions[n+".example/x"] = json.RawMessage(`{"version":"1","x":"` + strings.Repeat("x", 15<<10) + `"}`)
	}
	_, err := discovery.BuildDocument(checked(t, s), issuer(t, "https://a.example"), domain(t, "b.example"))
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
}

// broken applies change to everything() and returns the paths that CheckSettings names.
func broken(t *testing.T, change func(*discovery.Settings)) []string {
	t.Helper()
	s := everything()
	change(&s)
	_, err := discovery.CheckSettings(s)
	require.True(t, problem.Is(err, problem.InvalidRequest), "%v", err)
	var paths []string
	for _, f := range problem.As(err).Fields {
		paths = append(paths, f.Path)
	}
	return paths
}

func TestPJ09_CheckSettings_ReservedNames(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#14", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6")
	require.Equal(t, []string{"custom_scopes.POPPY:x", "custom_scopes.poppy:admin"}, broken(t, func(s *discovery.Settings) {
		s.CustomScopes["poppy:admin"] = "Everything"
		s.CustomScopes["POPPY:x"] = "Everything"
	}))
	for name, raw := range map[string]string{
		"loyalty": `{"version":"1"}`, "localhost/x": `{"version":"1"}`, "/x": `{"version":"1"}`, "Example.com/x": `{"version":"1"}`, "1.2.3.4/x": `{"version":"1"}`,
	} {
		require.Equal(t, []string{"extensions." + name}, broken(t, func(s *discovery.Settings) {
			s.Extensions[name] = json.RawMessage(raw)
		}))
	}
	for _, raw := range []string{`{}`, `{"version":1}`, `{"version":null}`, `{"version":""}`, `{"Version":"1"}`} {
		require.Equal(t, []string{"extensions.a.example/x.version"}, broken(t, func(s *discovery.Settings) {
			s.Extensions["a.example/x"] = json.RawMessage(raw)
		}), raw)
	}
	for _, raw := range []string{``, `[]`, `"1"`, `{"version":"1","version":"2"}`, `{"version":"1"}{}`, `{"version":"` + strings.Repeat("1", 17<<10) + `"}`} {
		require.Equal(t, []string{"extensions.a.example/x"}, broken(t, func(s *discovery.Settings) {
			s.Extensions["a.example/x"] = json.RawMessage(raw)
		}))
	}
	require.Equal(t, []string{"extensions.operations.endpoint"}, broken(t, func(s *discovery.Settings) {
		s.Extensions["operations"] = json.RawMessage(`{"version":"1"}`)
	}))
}

func TestCheckSettings_FieldRules(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#3", "poppy-0.1/3.1#8", "poppy-0.1/3.1#9", "poppy-0.1/3.1#11", "poppy-0.1/3.1#12",
		"poppy-0.1/3.1#17", "poppy-0.1/3.1#19", "poppy-0.1/3.1#20", "poppy-0.1/3.1#24", "poppy-0.1/6#2")
	for want, change := range map[string]func(*discovery.Settings){
		"organization_name":    func(s *discovery.Settings) { s.OrganizationName = " " },
		"apis[0].type":         func(s *discovery.Settings) { s.APIs[0].Type = "grpc" },
		"apis[1].url":          func(s *discovery.Settings) { s.APIs[1].URL = "http://mcp.example/" },
		"apis[0].resource":     func(s *discovery.Settings) { s.APIs[0].Resource = "https://a.example/#x" },
		"apis[1].resource":     func(s *discovery.Settings) { s.APIs[1].Resource = "https://other.example" },
		"apis[0].base_urls[0]": func(s *discovery.Settings) { s.APIs[0].BaseURLs = []string{"https://api.example/a/../b"} },
		"apis[0].base_urls[1]": func(s *discovery.Settings) {
			s.APIs[0].BaseURLs = []string{"https://api.example", "http://api.example"}
		},
		"apis[1].base_urls":     func(s *discovery.Settings) { s.APIs[1].BaseURLs = []string{"https://mcp.example"} },
		"apis[0].rules[0].path": func(s *discovery.Settings) { s.APIs[0].Rules = []access.Rule{{Path: "orders"}} },
		"apis[0].rules[1].scopes[0]": func(s *discovery.Settings) {
			s.APIs[0].Rules = []access.Rule{{Path: "/", Scopes: []string{"poppy:read", "wishlist"}}, {Path: "/**", Scopes: []string{"orders"}}}
		},
		"apis[0].description":      func(s *discovery.Settings) { s.APIs[0].Description = strings.Repeat("é", 1001) },
		"browser_session_endpoint": func(s *discovery.Settings) { s.BrowserSessionEndpoint = "javascript:alert(1)" },
		"direct.scopes":            func(s *discovery.Settings) { s.Direct.Scopes = nil },
		"direct.scopes[1]":         func(s *discovery.Settings) { s.Direct.Scopes = []string{"poppy:read", "orders"} },
		"device.scopes[1]":         func(s *discovery.Settings) { s.Device.Scopes = []string{"poppy:read", "poppy:read"} },
		"mediated.fields":          func(s *discovery.Settings) { s.Mediated.Fields = nil },
		"mediated.fields[1].name":  func(s *discovery.Settings) { s.Mediated.Fields[1].Name = "email" },
		"mediated.scopes":          func(s *discovery.Settings) { s.Mediated.Scopes = nil },
		"custom_scopes.a b":        func(s *discovery.Settings) { s.CustomScopes["a b"] = "x" },
		"custom_scopes.wishlist":   func(s *discovery.Settings) { s.CustomScopes["wishlist"] = "a\x1bb" },
		"apis": func(s *discovery.Settings) {
			for range 50 {
				s.APIs = append(s.APIs, s.APIs[1])
			}
		},
		"conversations.enabled": func(s *discovery.Settings) {
			s.Conversations.Enabled, s.APIs, s.BrowserSessionEndpoint = false, nil, ""
		},
	} {
		require.Equal(t, []string{want}, broken(t, change))
	}
}

// Where calls go and what they need is between the Company and us.
func TestBuildDocument_LeavesOutWhatCallsAreJudgedBy(t *testing.T) {
	with := everything()
	with.APIs[0].BaseURLs = []string{"https://internal.harbor.example"}
	with.APIs[0].Rules = []access.Rule{{Path: "/secret", SignIn: true}}
	var documents []string
	for _, s := range []discovery.Settings{everything(), with} {
		raw, err := discovery.BuildDocument(checked(t, s), issuer(t, "https://host.example/t/harbor"), domain(t, "harbor.example"))
		require.NoError(t, err)
		documents = append(documents, string(raw))
	}
	require.Equal(t, documents[0], documents[1])
	apis := checked(t, with).APIs()
	require.Equal(t, with.APIs[0].Rules, apis[0].Rules)
	require.Equal(t, []string{"https://internal.harbor.example"}, apis[0].Bases)
	require.Equal(t, apis[1].URL, apis[1].Resource, "an mcp entry's own URL")
}

func TestCheckSettings_NamesEveryFieldAtOnce(t *testing.T) {
	require.Equal(t, []string{"organization_name", "apis[0].url", "device.scopes"}, broken(t, func(s *discovery.Settings) {
		s.OrganizationName, s.APIs[0].URL, s.Device.Scopes = "", "", nil
	}))
}

func TestCheckedSettings_AreACopy(t *testing.T) {
	s := everything()
	c := checked(t, s)
	s.APIs[0].URL, s.Direct.Scopes[0], s.CustomScopes["poppy:x"] = "http://x", "x", "x"
	s.Extensions["operations"][0] = 'x'
	got := c.Settings()
	require.Equal(t, everything(), got)
	got.Mediated.Fields[0].Name = "x"
	require.Equal(t, everything(), c.Settings())

	i := issuer(t, "https://poppy.harbor.example")
	require.Equal(t, []string{"https://mcp.harbor.example/mcp"}, c.MCPResources())
	require.Equal(t, []string{"https://api.harbor.example", "https://mcp.harbor.example/mcp", i.ConversationsEndpoint()}, c.Resources(i))
}

func TestSettings_SurviveStorageAsJSON(t *testing.T) {
	raw, err := json.Marshal(everything())
	require.NoError(t, err)
	var back discovery.Settings
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, everything(), back)
}
