package discovery_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	organizationPart = `"protocol_version":"0.1","organization":{"name":"Harbor Goods","domain":"harbor.example"}`
	authPart         = `"auth":{"issuer":"https://auth.harbor.example"}`
	agentPart        = `"agent":{"protocols":[{"type":"poppy","endpoint":"https://api.harbor.example/poppy/conversations"}]}`
)

// document joins members into a JSON object.
func document(parts ...string) []byte { return []byte("{" + strings.Join(parts, ",") + "}") }

func wholeDocument() []byte { return document(organizationPart, authPart, agentPart) }

// fullDocument has every member of section 3 and some of nobody's.
func fullDocument() []byte {
	return []byte(`{
	"protocol_version": "0.1",
	"organization": { "name": "Harbor Goods", "domain": "harbor.example", "url": "https://www.harbor.example" },
	"description": "not in the protocol",
	"auth": {
		"issuer": "https://auth.harbor.example",
		"direct": { "scopes": ["poppy:read", "poppy:write", "addresses"] },
		"device": { "scopes": ["poppy:read", "poppy:write"] },
		"mediated": {
			"endpoint": "https://auth.harbor.example/sign-in",
			"fields": [{ "name": "email", "label": "Email", "secret": false }, { "name": "password", "label": "Password", "secret": true }],
			"scopes": ["poppy:read"]
		},
		"custom_scopes": { "addresses": "Manage saved addresses" }
	},
	"agent": { "protocols": [
		{ "type": "a2a", "endpoint": 5 },
		{ "type": "poppy", "endpoint": "https://api.harbor.example/poppy/conversations", "resource": "https://api.harbor.example/poppy/conversations" }
	] },
	"web": { "browser_session_endpoint": "https://harbor.example/poppy/browser-session", "url": "https://www.harbor.example" },
	"apis": [
		{ "type": "openapi", "url": "https://api.harbor.example/openapi.json", "description": "Orders and returns" },
		{ "type": "mcp", "url": "https://mcp.harbor.example/mcp" }
	],
	"extensions": { "operations": { "version": "1", "endpoint": "https://api.harbor.example/poppy/operations" }, "harbor.example/wrap": { "version": "1", "x": 1 } }
}`)
}

func TestParseDocument_Full(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#4", "poppy-0.1/3#8", "poppy-0.1/3.1#22", "poppy-0.1/3.3#8", "poppy-0.1/3.3#10", "poppy-0.1/3.3#11",
		"poppy-0.1/7.1#3", "poppy-0.1/7.1#4")
	doc, err := discovery.ParseDocument(fullDocument(), "www.harbor.example")
	require.NoError(t, err)
	require.NoError(t, discovery.CheckPublished(doc))
	require.Empty(t, doc.Findings)
	require.Equal(t, "Harbor Goods", doc.Name)
	require.Equal(t, "harbor.example", doc.Domain.String())
	require.Equal(t, []string{"poppy:read", "poppy:write", "addresses"}, doc.Auth.Direct.Scopes)
	require.Equal(t, []string{"poppy:read", "poppy:write"}, doc.Auth.Device.Scopes)
	require.Equal(t, []string{"poppy:read"}, doc.Auth.Mediated.Scopes)
	require.True(t, doc.Auth.Mediated.Fields[1].Secret)
	require.Equal(t, map[string]string{"addresses": "Manage saved addresses"}, doc.Auth.CustomScopes)
	p, ok := doc.Conversation()
	require.True(t, ok)
	require.Equal(t, "https://api.harbor.example/poppy/conversations", p.Endpoint)
	require.Len(t, doc.APIs, 2)
	require.Equal(t, "1", doc.Extensions["operations"].Version)
	require.JSONEq(t, `{"version":"1","x":1}`, string(doc.Extensions["harbor.example/wrap"].Raw))
}

func TestParseDocument_SmallForms(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#6", "poppy-0.1/3.1#15", "poppy-0.1/3.1#18", "poppy-0.1/3.1#20")
	for name, raw := range map[string][]byte{
		"conversation only": wholeDocument(),
		"web only":          document(organizationPart, `"web":{}`),
		"mcp only":          document(organizationPart, authPart, `"apis":[{"type":"mcp","url":"https://harbor.example/mcp"}]`),
		"empty apis":        document(organizationPart, authPart, agentPart, `"apis":[]`, `"web":{"url":"https://www.harbor.example"}`),
	} {
		doc, err := discovery.ParseDocument(raw, "harbor.example")
		require.NoError(t, err, name)
		require.NoError(t, discovery.CheckPublished(doc), name)
	}
}

func TestPJ02_ParseDocument_WrongSpeaker(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#4", "poppy-0.1/3.1#5")
	clausetest.Refuses(t, "poppy-0.1/3.1#4")
	for _, host := range []string{"harbor.example", "www.harbor.example", "HARBOR.example", "Www.Harbor.Example."} {
		_, err := discovery.ParseDocument(wholeDocument(), host)
		require.NoError(t, err, host)
	}
	for _, host := range []string{"shop.harbor.example", "harbor.platform.example", "harbor.test", "xn--harbr-jua.example"} {
		_, err := discovery.ParseDocument(wholeDocument(), host)
		require.True(t, problem.Is(err, discovery.DomainMismatch), "%s: %v", host, err)
		require.Contains(t, problem.As(err).Detail, `"harbor.example"`)
	}
	idn := document(`"protocol_version":"0.1","organization":{"name":"B","domain":"bücher.example"}`, authPart, agentPart)
	doc, err := discovery.ParseDocument(idn, "xn--bcher-kva.example")
	require.NoError(t, err)
	require.Error(t, discovery.CheckPublished(doc)) // the publisher's form is the A-label
	upper := document(`"protocol_version":"0.1","organization":{"name":"B","domain":"www.Harbor.example"}`, authPart, agentPart)
	doc, err = discovery.ParseDocument(upper, "harbor.example")
	require.NoError(t, err)
	require.True(t, problem.Is(discovery.CheckPublished(doc), discovery.InvalidDocument))
	_, err = discovery.ParseDocument(wholeDocument(), "127.0.0.1")
	require.Error(t, err)
}

func TestPJ05_ParseDocument_Version(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#1")
	clausetest.Refuses(t, "poppy-0.1/3.1#1", "poppy-0.1/3.1#2")
	with := func(version string) []byte {
		return []byte(strings.Replace(string(wholeDocument()), `"0.1"`, version, 1))
	}
	for _, v := range []string{`"0.1"`, `"0.2"`, `"0.10"`} {
		doc, err := discovery.ParseDocument(with(v), "harbor.example")
		require.NoError(t, err, v)
		require.Equal(t, strings.Trim(v, `"`), doc.ProtocolVersion)
	}
	for _, v := range []string{`"1.0"`, `"1.1"`, `"10.0"`} {
		_, err := discovery.ParseDocument(with(v), "harbor.example")
		require.True(t, problem.Is(err, discovery.UnsupportedVersion), v)
		require.Contains(t, problem.As(err).Detail, strings.Trim(v, `"`))
	}
	for _, v := range []string{`"1"`, `1.0`, `0.1`, `"v0.1"`, `"0.1.0"`, `""`, `null`, `"0."`, `".1"`, `"0.01"`, `"00.1"`, `" 0.1"`, `"0.1\n"`, `["0.1"]`} {
		_, err := discovery.ParseDocument(with(v), "harbor.example")
		require.True(t, problem.Is(err, discovery.InvalidDocument), v)
	}
	// The version is judged before members whose meaning may have changed.
	_, err := discovery.ParseDocument([]byte(`{"protocol_version":"1.0","organization":7}`), "harbor.example")
	require.True(t, problem.Is(err, discovery.UnsupportedVersion))
}

func TestPJ06_ParseDocument_Incomplete(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#3", "poppy-0.1/3.1#4", "poppy-0.1/3.1#6", "poppy-0.1/3.1#7", "poppy-0.1/3.1#8", "poppy-0.1/3.1#9",
		"poppy-0.1/3.1#10", "poppy-0.1/3.1#11", "poppy-0.1/3.1#12", "poppy-0.1/3.1#13", "poppy-0.1/3.1#16", "poppy-0.1/3.1#17",
		"poppy-0.1/3.1#19", "poppy-0.1/3.1#20", "poppy-0.1/3.1#21")
	mediated := func(m string) string { return `"auth":{"issuer":"https://a.example","mediated":` + m + `}` }
	version := `"protocol_version":"0.1"`
	for _, c := range []struct {
		path string
		raw  []byte
	}{
		{"organization", document(version, authPart, agentPart)},
		{"organization.domain", document(version, `"organization":{"name":"H"}`, authPart, agentPart)},
		{"organization.domain", document(version, `"organization":{"name":"H","domain":"10.0.0.1"}`, authPart, agentPart)},
		{"organization.name", document(version, `"organization":{"domain":"harbor.example"}`, authPart, agentPart)},
		{"organization.name", document(version, `"organization":{"name":5,"domain":"harbor.example"}`, authPart, agentPart)},
		{"auth", document(organizationPart, agentPart)},
		{"auth", document(organizationPart, `"apis":[]`)},
		{"auth", document(organizationPart, `"web":{"browser_session_endpoint":"https://harbor.example/b"}`)},
		{"auth", document(organizationPart, agentPart, `"auth":"https://a.example"`)},
		{"auth.issuer", document(organizationPart, agentPart, `"auth":{}`)},
		{"auth.issuer", document(organizationPart, agentPart, `"auth":{"issuer":"http://a.example"}`)},
		{"auth.issuer", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example?x"}`)},
		{"auth.direct", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example","direct":true}`)},
		{"auth.direct.scopes", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example","direct":{}}`)},
		{"auth.device.scopes", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example","device":{"scopes":[1]}}`)},
		{"auth.mediated.endpoint", document(organizationPart, agentPart, mediated(`{"fields":[],"scopes":[]}`))},
		{"auth.mediated.fields", document(organizationPart, agentPart, mediated(`{"endpoint":"https://a.example/s","scopes":[]}`))},
		{"auth.mediated.scopes", document(organizationPart, agentPart, mediated(`{"endpoint":"https://a.example/s","fields":[]}`))},
		{"auth.mediated.fields[0]", document(organizationPart, agentPart, mediated(`{"endpoint":"https://a.example/s","fields":[{"name":"p","label":"P","secret":"yes"}],"scopes":[]}`))},
		{"auth.custom_scopes", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example","custom_scopes":["x"]}`)},
		{"auth.custom_scopes.x", document(organizationPart, agentPart, `"auth":{"issuer":"https://a.example","custom_scopes":{"x":1}}`)},
		{"agent", document(organizationPart, authPart)},
		{"agent.protocols", document(organizationPart, authPart, `"agent":{}`)},
		{"agent.protocols", document(organizationPart, authPart, `"agent":[]`)},
		{"agent.protocols[0].type", document(organizationPart, authPart, `"agent":{"protocols":["poppy"]}`)},
		{"agent.protocols[0].endpoint", document(organizationPart, authPart, `"agent":{"protocols":[{"type":"poppy"}]}`)},
		{"agent.protocols[0].resource", document(organizationPart, authPart, `"agent":{"protocols":[{"type":"poppy","endpoint":"https://a.example","resource":1}]}`)},
		{"web", document(organizationPart, authPart, `"web":true`)},
		{"web.browser_session_endpoint", document(organizationPart, authPart, `"web":{"browser_session_endpoint":"//a.example"}`)},
		{"apis", document(organizationPart, authPart, `"apis":{}`)},
		{"apis[0].type", document(organizationPart, authPart, `"apis":[{"url":"https://a.example"}]`)},
		{"apis[0].url", document(organizationPart, authPart, `"apis":[{"type":"openapi"}]`)},
		{"apis[0].url", document(organizationPart, authPart, `"apis":[{"type":"mcp","url":"https://user:pw@a.example"}]`)},
		{"extensions", document(organizationPart, authPart, agentPart, `"extensions":["operations"]`)},
	} {
		_, err := discovery.ParseDocument(c.raw, "harbor.example")
		require.True(t, problem.Is(err, discovery.InvalidDocument), "%s: %v", c.raw, err)
		require.Equal(t, c.path, problem.As(err).Fields[0].Path, "%s", c.raw)
		require.NotEmpty(t, problem.As(err).Clause)
	}
}

func TestPJ09_ParseDocument_ReservedNamesAreFindings(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.3#10", "poppy-0.1/6#8")
	clausetest.Refuses(t, "poppy-0.1/3.1#14", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6", "poppy-0.1/6#2", "poppy-0.1/7.1#1")
	raw := document(organizationPart,
		`"auth":{"issuer":"https://a.example","custom_scopes":{"poppy:admin":"All","orders":"Orders"}}`,
		`"agent":{"protocols":[]}`,
		`"apis":[{"type":"grpc","url":5},{"type":"mcp","url":"https://a.example/mcp"}]`,
		`"extensions":{"loyalty":{"version":"1"},"operations":{"version":1},"a.example/ok":{"version":"3"},"b.example/x":7}`)
	doc, err := discovery.ParseDocument(raw, "harbor.example")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"orders": "Orders"}, doc.Auth.CustomScopes)
	require.Len(t, doc.APIs, 1)
	require.Len(t, doc.Extensions, 2) // the unknown plain name has a version, so a reader may ignore or support it
	require.NotContains(t, doc.Extensions, "operations")
	_, hasConversation := doc.Conversation()
	require.False(t, hasConversation)

	err = discovery.CheckPublished(doc)
	require.True(t, problem.Is(err, discovery.InvalidDocument))
	var paths []string
	for _, f := range doc.Findings {
		paths = append(paths, f.Path)
	}
	require.ElementsMatch(t, []string{
		"auth.custom_scopes.poppy:admin", "agent.protocols", "apis[0].type", "extensions.loyalty",
		"extensions.operations.version", "extensions.operations.endpoint", "extensions.b.example/x.version",
	}, paths)
}

func TestGW08_ParseDocument_UnsoundJSON(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3#8")
	for _, raw := range []string{
		``, `null`, `[]`, `"x"`, `{`, `<!doctype html>`, string(wholeDocument()) + `{}`,
		`{"protocol_version":"0.1","organization":{"name":"H","domain":"harbor.example","domain":"evil.example"}}`,
		`{"protocol_version":"0.1","protocol_version":"0.1"}`,
		"{\"protocol_version\":\"0.1\xff\"}", `{"x":"\ud800"}`, strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40),
	} {
		_, err := discovery.ParseDocument([]byte(raw), "harbor.example")
		require.True(t, problem.Is(err, discovery.InvalidDocument), raw)
	}
	_, err := discovery.ParseDocument(append(wholeDocument(), make([]byte, discovery.MaxDocument)...), "harbor.example")
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
}

func TestPJ01_CheckServed_SoftNotFound(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#1")
	clausetest.Refuses(t, "poppy-0.1/3#1")
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/poppy+json"} {
		require.NoError(t, discovery.CheckServed(200, contentType, wholeDocument()))
	}
	for _, c := range []struct {
		status            int
		contentType, body string
	}{
		{200, "text/html", "<html></html>"},
		{200, "application/json", "\ufeff\n <!doctype html>"},
		{200, "text/html", string(wholeDocument())},
		{200, "", string(wholeDocument())},
		{200, "application/json", " \n"},
		{404, "application/json", string(wholeDocument())},
		{204, "application/json", string(wholeDocument())},
		{302, "application/json", string(wholeDocument())},
	} {
		err := discovery.CheckServed(c.status, c.contentType, []byte(c.body))
		require.True(t, problem.Is(err, discovery.NotPublished), "%+v", c)
	}
}

func FuzzParseDocument(f *testing.F) {
	f.Add(wholeDocument(), "harbor.example")
	f.Add(fullDocument(), "www.harbor.example")
	f.Add(document(organizationPart, `"web":{}`), "harbor.example")
	f.Add([]byte(`{"protocol_version":"1.0"}`), "a.example")
	f.Add([]byte(`{"a":1,"a":2}`), "a.example")
	f.Fuzz(func(t *testing.T, raw []byte, host string) {
		doc, err := discovery.ParseDocument(raw, host)
		if err != nil {
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		require.False(t, doc.Domain.IsZero())
		require.NotEmpty(t, doc.Name)
		if doc.HasAgent {
			require.NotNil(t, doc.Auth)
		}
	})
}
