package cimd_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

const clientID = "https://agent.example/agent.json"

func agent(t testing.TB) cimd.ClientID {
	t.Helper()
	id, err := cimd.ParseClientID(clientID)
	require.NoError(t, err)
	return id
}

// members are those of the example document of Poppy 4.1.
func members() map[string]any {
	return map[string]any{
		"client_id":                  clientID,
		"client_name":                "Example Agent",
		"logo_uri":                   "https://cdn.example/logo.png",
		"jwks_uri":                   "https://agent.example/jwks.json",
		"redirect_uris":              []any{"https://agent.example/oauth/callback"},
		"token_endpoint_auth_method": "private_key_jwt",
		"extensions":                 map[string]any{"operations": map[string]any{"version": "1"}},
	}
}

// with returns the example with members changed; a nil value leaves one out.
func with(changes map[string]any) map[string]any {
	m := members()
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func parse(t testing.TB, m map[string]any) (cimd.Document, error) {
	t.Helper()
	body, err := json.Marshal(m)
	require.NoError(t, err)
	return cimd.ParseDocument(agent(t), "application/json", body)
}

func TestParseDocument_Example(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#5", "poppy-0.1/4.1#6", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9",
		"poppy-0.1/4.1#12", "poppy-0.1/4.1#d11", "poppy-0.1/3.3#9")
	d, err := parse(t, members())
	require.NoError(t, err)
	require.Equal(t, cimd.Document{
		ClientID: clientID, Name: "Example Agent", LogoURI: "https://cdn.example/logo.png", JWKSURI: "https://agent.example/jwks.json",
		RedirectURIs: []string{"https://agent.example/oauth/callback"}, Extensions: map[string]string{"operations": "1"},
	}, d)
	require.True(t, d.HasRedirectURI("https://agent.example/oauth/callback"))
	require.False(t, d.HasRedirectURI("https://agent.example/oauth/callback/"))
}

func TestParseDocument_OptionalMembers(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#13", "poppy-0.1/3.3#10", "poppy-0.1/3.3#11")
	d, err := parse(t, map[string]any{"client_id": clientID, "jwks_uri": "https://agent.example:8443/keys", "future": map[string]any{"a": 1}})
	require.NoError(t, err)
	require.Equal(t, cimd.Document{ClientID: clientID, Name: "agent.example", JWKSURI: "https://agent.example:8443/keys"}, d)
	d, err = parse(t, with(map[string]any{"redirect_uris": []any{}, "extensions": map[string]any{
		"agent.example/x": map[string]any{"version": "2", "more": true}, "bad": "1", "worse": map[string]any{"version": 1},
	}}))
	require.NoError(t, err)
	require.Empty(t, d.RedirectURIs)
	require.Equal(t, map[string]string{"agent.example/x": "2"}, d.Extensions)
}

func TestCI08_ContentType(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#d43")
	body, err := json.Marshal(members())
	require.NoError(t, err)
	for _, accepted := range []string{
		"application/json", "application/json;charset=utf-8", "Application/JSON ; charset=UTF-8", "application/cimd+json", "application/x.y+json; a=b",
	} {
		_, err := cimd.ParseDocument(agent(t), accepted, body)
		require.NoError(t, err, accepted)
	}
	for _, refused := range []string{
		"", "text/html", "text/html; charset=utf-8", "text/json", "application/octet-stream", "text/plain", "application/jsonp", "application/json-seq",
		"json", "+json", "application/+json", "application/json, text/html", "text/html;application/json", "a/b/c+json", "application/ x+json",
	} {
		_, err := cimd.ParseDocument(agent(t), refused, body)
		requireInvalidClient(t, err, cimd.DocumentForm)
	}
}

func TestCI10_DocumentNamesAnotherSpelling(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#7")
	for _, other := range []any{
		"https://Agent.example/agent.json", "https://agent.example:443/agent.json", clientID + "/", clientID + "?", "https://evil.example/agent.json", "", 7, nil,
	} {
		_, err := parse(t, with(map[string]any{"client_id": other}))
		requireInvalidClient(t, err, cimd.SameClientID)
	}
}

func TestCI15_FieldsThatSpoilTheDocument(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#6", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9", "poppy-0.1/4.1#d11", "poppy-0.1/4.1#d43")
	for _, c := range []struct {
		name    string
		changes map[string]any
		want    clause.ID
	}{
		{"shared secret", map[string]any{"client_secret": "s3cr3t"}, cimd.SameDomain},
		{"empty shared secret", map[string]any{"client_secret": ""}, cimd.SameDomain},
		{"expiry of a shared secret", map[string]any{"client_secret_expires_at": 0}, cimd.SameDomain},
		{"no authentication", map[string]any{"token_endpoint_auth_method": "none"}, cimd.SameDomain},
		{"basic authentication", map[string]any{"token_endpoint_auth_method": "client_secret_basic"}, cimd.SameDomain},
		{"shared-secret JWT", map[string]any{"token_endpoint_auth_method": "client_secret_jwt"}, cimd.SameDomain},
		{"method not a string", map[string]any{"token_endpoint_auth_method": []any{"private_key_jwt"}}, cimd.SameDomain},
		{"inline keys", map[string]any{"jwks": map[string]any{"keys": []any{}}}, cimd.SameDomain},
		{"inline keys alone", map[string]any{"jwks": map[string]any{"keys": []any{}}, "jwks_uri": nil}, cimd.SameDomain},
		{"no jwks_uri", map[string]any{"jwks_uri": nil}, cimd.SameDomain},
		{"jwks_uri not a string", map[string]any{"jwks_uri": 1}, cimd.SameDomain},
		{"jwks_uri by http", map[string]any{"jwks_uri": "http://agent.example/jwks.json"}, cimd.SameDomain},
		{"jwks_uri on another host", map[string]any{"jwks_uri": "https://keys.agent.example/jwks.json"}, cimd.SameDomain},
		{"jwks_uri on the parent", map[string]any{"jwks_uri": "https://example/jwks.json"}, cimd.SameDomain},
		{"jwks_uri with userinfo", map[string]any{"jwks_uri": "https://agent.example@evil.example/"}, cimd.SameDomain},
		{"jwks_uri with a fragment", map[string]any{"jwks_uri": "https://agent.example/jwks.json#a"}, cimd.SameDomain},
		{"redirect_uris not a list", map[string]any{"redirect_uris": "https://agent.example/cb"}, cimd.SameDomain},
		{"redirect_uris of numbers", map[string]any{"redirect_uris": []any{1}}, cimd.SameDomain},
		{"redirect_uri with a fragment", map[string]any{"redirect_uris": []any{"https://agent.example/cb#x"}}, cimd.SameDomain},
		{"redirect_uri on another host", map[string]any{"redirect_uris": []any{"https://agent.example/cb", "https://evil.example/cb"}}, cimd.SameDomain},
		{"redirect_uri with an odd host", map[string]any{"redirect_uris": []any{"https://agent.example./cb"}}, cimd.SameDomain},
		{"name not a string", map[string]any{"client_name": map[string]any{"en": "A"}}, cimd.DocumentForm},
		{"extensions not an object", map[string]any{"extensions": []any{"operations"}}, cimd.DocumentForm},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := parse(t, with(c.changes))
			requireInvalidClient(t, err, c.want)
			require.Zero(t, d)
			require.NotContains(t, err.Error(), "s3cr3t")
		})
	}
}

func TestCI15_RedirectURIsMayBeMissing(t *testing.T) {
	for _, none := range []any{nil, []any{}} {
		d, err := parse(t, with(map[string]any{"redirect_uris": none}))
		require.NoError(t, err)
		require.False(t, d.HasRedirectURI(""))
	}
}

func TestCI15_NamesAreCleanedAndShort(t *testing.T) {
	for in, want := range map[string]string{
		"Bank\u202etnegA":                   "BanktnegA",
		"\u2066A\u2069 \u200fB\u0007":       "A B",
		" \t Two\n\n words ":                "Two words",
		"<script>alert(1)</script>":         "<script>alert(1)</script>",
		"\u202e\u200b":                      "agent.example",
		"":                                  "agent.example",
		strings.Repeat("é", 201):            strings.Repeat("é", 200),
		strings.Repeat("a", 199) + " b":     strings.Repeat("a", 199),
		strings.Repeat("name ", 50) + "end": strings.TrimSpace(strings.Repeat("name ", 40)),
	} {
		d, err := parse(t, with(map[string]any{"client_name": in}))
		require.NoError(t, err)
		require.Equal(t, want, d.Name)
		require.LessOrEqual(t, utf8.RuneCountInString(d.Name), 200)
	}
	_, err := parse(t, with(map[string]any{"client_name": strings.Repeat("a", 1<<20)}))
	requireInvalidClient(t, err, cimd.DocumentForm)
}

func TestParseDocument_LogoIsDroppedUnlessHTTPS(t *testing.T) {
	for _, logo := range []any{"http://agent.example/l.png", "data:image/png;base64,AA", "javascript:alert(1)", "https://u:p@a.example/l", "//a/l", "", 1, nil} {
		d, err := parse(t, with(map[string]any{"logo_uri": logo}))
		require.NoError(t, err)
		require.Empty(t, d.LogoURI)
	}
}

func TestCO03_DangerousRedirectSchemesRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#9", "poppy-0.1/4.1#d11", "poppy-0.1/4.1#d43")
	for _, uris := range [][]any{
		{"javascript:alert(1)//"},
		{"http://agent.example/cb"},
		{"https://agent.example/cb", "custom:/x"},
		{"data:text/html,x"},
		{"javascript://agent.example/%0aalert(1)"},
		{"https:agent.example/cb"},
		{"//agent.example/cb"},
		{""},
		{"HTTPS://agent.example/cb"},
	} {
		_, err := parse(t, with(map[string]any{"redirect_uris": uris}))
		requireInvalidClient(t, err, cimd.SameDomain)
	}
}

func TestGW08_RepeatedMembersRefused(t *testing.T) {
	for _, body := range []string{
		`{"client_id":"` + clientID + `","jwks_uri":"https://agent.example/a","jwks_uri":"https://agent.example/b"}`,
		`{"client_id":"` + clientID + `","jwks_uri":"https://agent.example/a","x":{"a":1,"a":2}}`,
		`[]`, `{`, `<html>`, ``, `{"client_id":"\u0000"}`,
	} {
		_, err := cimd.ParseDocument(agent(t), "application/json", []byte(body))
		requireInvalidClient(t, err, cimd.DocumentForm)
	}
}

func TestParseDocument_TooLarge(t *testing.T) {
	body, err := json.Marshal(members())
	require.NoError(t, err)
	body = append(body, strings.Repeat(" ", cimd.MaxDocument-len(body))...)
	_, err = cimd.ParseDocument(agent(t), "application/json", body)
	require.NoError(t, err)
	_, err = cimd.ParseDocument(agent(t), "application/json", append(body, ' '))
	requireInvalidClient(t, err, cimd.DocumentForm)
}

func TestPK10_PrivateKeyIsNamedAsTheReason(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#10", "poppy-0.1/4.1#d9")
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	public := s.PublicJWK("a")
	private := []byte(string(public[:len(public)-1]) + `,"d":"c2VjcmV0"}`)
	_, err = cimd.ParseKeySet(jose.PublicKeySet(public, private))
	requireInvalidClient(t, err, cimd.PublicKeysOnly)
	require.ErrorContains(t, err, "publishes a private or symmetric key")
	require.NotContains(t, err.Error(), "c2VjcmV0")
}

func TestParseKeySet_FormOfTheSet(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#10")
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	set, err := cimd.ParseKeySet(jose.PublicKeySet(s.PublicJWK("a")))
	require.NoError(t, err)
	require.Equal(t, 1, set.Len())
	for _, body := range []string{`<html>`, `{}`, `{"keys":[]}` + strings.Repeat(" ", jose.MaxKeySet)} {
		_, err := cimd.ParseKeySet([]byte(body))
		requireInvalidClient(t, err, cimd.KeySetForm)
	}
}

func FuzzParseDocument(f *testing.F) {
	body, err := json.Marshal(members())
	require.NoError(f, err)
	f.Add("application/json", body)
	f.Add("application/x+json;a", []byte(`{"client_id":"`+clientID+`","jwks_uri":"https://agent.example/"}`))
	f.Add("text/html", []byte(`<html>`))
	id := agent(f)
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		d, err := cimd.ParseDocument(id, contentType, body)
		if err != nil {
			require.Zero(t, d)
			return
		}
		require.Equal(t, clientID, d.ClientID)
		require.NotEmpty(t, d.Name)
		for _, uri := range append(d.RedirectURIs, d.JWKSURI) {
			require.True(t, strings.HasPrefix(strings.ToLower(uri), "https://agent.example"), uri)
		}
	})
}

func FuzzParseClientID(f *testing.F) {
	for _, seed := range []string{clientID, "https://a.example:8443/?x", "https://[::1]/", "https://a/%2e%2e/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := cimd.ParseClientID(s)
		if err != nil {
			return
		}
		require.Equal(t, s, id.String())
		require.NotEmpty(t, id.Host())
		require.NotContains(t, s, "#")
	})
}
