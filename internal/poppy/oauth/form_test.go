package oauth_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func parseRequest(t testing.TB, pairs ...string) (oauth.TokenRequest, error) {
	t.Helper()
	f, err := oauth.ParseForm(form(pairs...))
	require.NoError(t, err)
	return oauth.ParseTokenRequest(f)
}

func TestCheckFormContentType_FormsOnly(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#9")
	clausetest.Refuses(t, "poppy-0.1/4.2#9")
	for _, accepted := range []string{
		"application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=UTF-8", " Application/X-WWW-Form-URLEncoded;",
	} {
		require.NoError(t, oauth.CheckFormContentType(accepted))
	}
	for _, refused := range []string{"", "application/json", "multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded, a/b"} {
		requireProblem(t, oauth.CheckFormContentType(refused), problem.InvalidRequest, oauth.FormBody)
	}
}

func TestParseForm_Decodes(t *testing.T) {
	f, err := oauth.ParseForm([]byte("a=1+2&b=%C3%a9%26%3D&c=&d&&e=x=y&%66=z"))
	require.NoError(t, err)
	for name, want := range map[string]string{"a": "1 2", "b": "é&=", "c": "", "d": "", "e": "x=y", "f": "z", "g": ""} {
		require.Equal(t, want, f.Get(name))
		require.Equal(t, want != "", f.Has(name))
	}
	empty, err := oauth.ParseForm(nil)
	require.NoError(t, err)
	require.False(t, empty.Has("a"))
}

func TestGW08_RepeatedFormParametersRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#66", "poppy-0.1/4.2#d26")
	for _, body := range []string{
		"client_id=a&client_id=b", "client_id=a&client_id=a", "scope=a&scope=b", "grant_type=x&grant_type=y", "scope=&scope=a", "scope&scope=a",
		"client%5Fid=a&client_id=b", "unknown=1&unknown=2", "resource=a&resource=b&scope=a&scope=b",
	} {
		_, err := oauth.ParseForm([]byte(body))
		requireProblem(t, err, problem.InvalidRequest, oauth.NoRepeats)
	}
}

func TestParseForm_SeveralResources(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#60")
	for _, body := range []string{"resource=a&resource=b", "resource=a&x=1&resource=a", "resource=a&resource="} {
		_, err := oauth.ParseForm([]byte(body))
		requireProblem(t, err, problem.InvalidTarget, oauth.OneResource)
	}
}

func TestParseForm_RefusesUnsoundText(t *testing.T) {
	for name, body := range map[string]string{
		"NUL": "a=%00", "NUL in a name": "a%00=1", "raw NUL": "a=\x00", "bad UTF-8": "a=%ff", "raw bad UTF-8": "a=\xff", "surrogate": "a=%ed%a0%80",
		"broken escape": "a=%", "short escape": "a=%2", "no escape": "a=%zz", "broken name": "%=1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oauth.ParseForm([]byte(body))
			requireProblem(t, err, problem.InvalidRequest, oauth.FormBody)
		})
	}
}

func TestParseForm_Limits(t *testing.T) {
	_, err := oauth.ParseForm([]byte("a=" + strings.Repeat("b", oauth.MaxForm-2)))
	require.NoError(t, err)
	_, err = oauth.ParseForm([]byte("a=" + strings.Repeat("b", oauth.MaxForm-1)))
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprint("p", i), "1")
	}
	_, err = oauth.ParseForm(form(many[:200]...))
	require.NoError(t, err)
	_, err = oauth.ParseForm(form(many...))
	requireProblem(t, err, problem.InvalidRequest, oauth.FormBody)
}

func TestParseTokenRequest_SessionStart(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#11", "poppy-0.1/4.2#12", "poppy-0.1/4.2#13", "poppy-0.1/4.2#7")
	r, err := parseRequest(t, sessionStart()...)
	require.NoError(t, err)
	require.Equal(t, oauth.TokenRequest{
		Grant: oauth.GrantJWTBearer, Assertion: "a.b.c", Client: oauth.ClientCredentials{ClientID: clientID, Assertion: "d.e.f"},
	}, r)
	r, err = parseRequest(t, append(sessionStart(), "session_id", "ses_2Lm0", "scope", "poppy:read", "resource", "https://mcp.example.com/mcp", "future", "1")...)
	require.NoError(t, err)
	require.Equal(t, "ses_2Lm0", r.SessionID)
	require.Equal(t, oauth.Scope{"poppy:read"}, r.Scope)
	require.Equal(t, "https://mcp.example.com/mcp", r.Resource)
}

// grants gives, for each other grant, its own parameters.
func grants() map[oauth.GrantType][]string {
	return map[oauth.GrantType][]string{
		oauth.GrantAuthorizationCode: {"code", "c", "redirect_uri", "https://agent.example/cb", "code_verifier", "v", "session_id", "ses_1"},
		oauth.GrantDeviceCode:        {"device_code", "d", "session_id", "ses_1"},
		oauth.GrantRefreshToken:      {"refresh_token", "pat_1"},
	}
}

func TestParseTokenRequest_OtherGrants(t *testing.T) {
	credentials := without(without(sessionStart(), "grant_type"), "assertion")
	for grant, own := range grants() {
		pairs := slices.Concat([]string{"grant_type", string(grant)}, own, credentials)
		r, err := parseRequest(t, pairs...)
		require.NoError(t, err)
		require.Equal(t, grant, r.Grant)
		require.Equal(t, len(own)/2, countSet(r))
		r, err = parseRequest(t, slices.Concat(pairs, []string{"scope", "not  a scope"})...)
		if grant == oauth.GrantRefreshToken {
			requireProblem(t, err, problem.InvalidScope, oauth.ScopeSyntax)
		} else {
			require.NoError(t, err, "the User's approval decides, the parameter is not of this grant")
			require.Empty(t, r.Scope)
		}
		for i := 0; i < len(own); i += 2 {
			_, err := parseRequest(t, without(pairs, own[i])...)
			if own[i] == "redirect_uri" {
				require.NoError(t, err, "judged together with the code")
				continue
			}
			requireProblem(t, err, problem.InvalidRequest, oauth.Required)
		}
	}
}

func countSet(r oauth.TokenRequest) int {
	n := 0
	for _, v := range []string{r.Code, r.RedirectURI, r.CodeVerifier, r.SessionID, r.DeviceCode, r.RefreshToken, r.Assertion, r.Resource} {
		if v != "" {
			n++
		}
	}
	return n
}

func TestParseTokenRequest_GrantType(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#65", "poppy-0.1/4.2#66")
	for _, grant := range []string{"client_credentials", "password", "JWT-bearer", "implicit", "refresh_token "} {
		_, err := parseRequest(t, append(without(sessionStart(), "grant_type"), "grant_type", grant)...)
		requireProblem(t, err, problem.UnsupportedGrantType, oauth.GrantOffered)
	}
	_, err := parseRequest(t, without(sessionStart(), "grant_type")...)
	requireProblem(t, err, problem.InvalidRequest, oauth.Required)
	_, err = parseRequest(t, without(sessionStart(), "assertion")...)
	requireProblem(t, err, problem.InvalidRequest, oauth.Required)
}

func TestPK16_ClientAuthenticationMissing(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#13", "poppy-0.1/4.2#7")
	for _, name := range []string{"client_id", "client_assertion", "client_assertion_type"} {
		_, err := parseRequest(t, without(sessionStart(), name)...)
		requireProblem(t, err, problem.InvalidClient, oauth.ClientAuthorized)
		_, err = parseRequest(t, append(without(sessionStart(), name), name, "")...)
		requireProblem(t, err, problem.InvalidClient, oauth.ClientAuthorized)
	}
	_, err := parseRequest(t, append(without(sessionStart(), "client_assertion_type"), "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer")...)
	requireProblem(t, err, problem.InvalidClient, oauth.ClientAuthorized)
	_, err = parseRequest(t, append(sessionStart(), "client_secret", "s3cr3t")...)
	requireProblem(t, err, problem.InvalidRequest, oauth.ClientAuthorized)
	require.NotContains(t, err.Error(), "s3cr3t")
}

func TestSC03_GrammarOfScope(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#23")
	clausetest.Refuses(t, "poppy-0.1/4.4#23")
	s, err := oauth.ParseScope("poppy:read poppy:write !#[]~")
	require.NoError(t, err)
	require.Equal(t, oauth.Scope{"poppy:read", "poppy:write", "!#[]~"}, s)
	require.Equal(t, "poppy:read poppy:write !#[]~", s.String())
	require.True(t, s.Contains("poppy:write"))
	require.True(t, s.Covers(oauth.Scope{"poppy:write"}))
	require.True(t, s.Covers(nil))
	require.False(t, s.Covers(oauth.Scope{"poppy:write", "addresses"}))
	empty, err := oauth.ParseScope("")
	require.NoError(t, err)
	require.Empty(t, empty)
	require.Empty(t, empty.String())
	for _, bad := range []string{
		"a  b", " a", "a ", " ", "a\tb", "a\nb", "a b a", "poppy:read poppy:read", `a"b`, `a\b`, "é", "a\u00a0b", "a,b\x7f",
		strings.Repeat("a", 4097),
	} {
		_, err := oauth.ParseScope(bad)
		requireProblem(t, err, problem.InvalidScope, oauth.ScopeSyntax)
	}
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprint("s", i))
	}
	_, err = oauth.ParseScope(strings.Join(many, " "))
	requireProblem(t, err, problem.InvalidScope, oauth.ScopeSyntax)
	_, err = parseRequest(t, append(sessionStart(), "scope", "a  b")...)
	requireProblem(t, err, problem.InvalidScope, oauth.ScopeSyntax)
}

func TestSC03_ScopeOfASignInRequest(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#12", "poppy-0.1/4.4#23")
	clausetest.Refuses(t, "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26")
	allowed := oauth.Scope{"poppy:read", "addresses"}
	for _, requested := range []string{"poppy:read", "addresses", "addresses poppy:read"} {
		s, err := oauth.CheckRequestedScope(requested, allowed)
		require.NoError(t, err)
		require.Equal(t, requested, s.String())
	}
	for requested, id := range map[string]clause.ID{
		"":                        oauth.ScopeRequired,
		" ":                       oauth.ScopeSyntax,
		"poppy:read  addresses":   oauth.ScopeSyntax,
		"poppy:read poppy:read":   oauth.ScopeSyntax,
		"poppy:read\taddresses":   oauth.ScopeSyntax,
		"poppy:read poppy:write":  oauth.ScopeAvailable,
		"poppy:admin":             oauth.ScopeKnown,
		"poppy:read foo":          oauth.ScopeKnown,
		"POPPY:READ":              oauth.ScopeKnown,
		"poppy:read,addresses":    oauth.ScopeKnown,
		"addresses poppy:read ":   oauth.ScopeSyntax,
		"openid poppy:read":       oauth.ScopeKnown,
		strings.Repeat("a", 4097): oauth.ScopeSyntax,
	} {
		_, err := oauth.CheckRequestedScope(requested, allowed)
		requireProblem(t, err, problem.InvalidScope, id)
	}
	_, err := oauth.CheckRequestedScope("poppy:read", nil)
	requireProblem(t, err, problem.InvalidScope, oauth.ScopeAvailable)
}

func TestCheckNoTokenInQuery_CredentialsRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#45")
	clausetest.Refuses(t, "poppy-0.1/4.3#45", "poppy-0.1/4.3#d26")
	for _, query := range []string{"", "cursor=evt_1&wait=5", "&&", "%zz=1"} {
		require.NoError(t, oauth.CheckNoTokenInQuery(query))
	}
	for _, query := range []string{"access_token=s3cr3t", "wait=1&Access_Token=s3cr3t", "access%5Ftoken=s3cr3t", "dpop=s3cr3t", "DPoP=s3cr3t", "client_assertion=s3cr3t", "access_token"} {
		err := oauth.CheckNoTokenInQuery(query)
		requireProblem(t, err, problem.InvalidRequest, oauth.NoTokenInURL)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

func FuzzParseForm(f *testing.F) {
	f.Add(form(sessionStart()...))
	f.Add([]byte("a=%C3%A9+b&scope=a%20b&resource=x&resource=y"))
	f.Add([]byte("%00=&a=%"))
	f.Fuzz(func(t *testing.T, body []byte) {
		parsed, err := oauth.ParseForm(body)
		if err != nil {
			return
		}
		values, err := url.ParseQuery(strings.ReplaceAll(string(body), ";", "%3B"))
		require.NoError(t, err)
		for name, v := range values {
			require.Len(t, v, 1)
			require.Equal(t, v[0], parsed.Get(name))
		}
		if r, err := oauth.ParseTokenRequest(parsed); err == nil {
			require.NotEmpty(t, r.Client.ClientID)
			require.NotEmpty(t, r.Client.Assertion)
		}
	})
}
