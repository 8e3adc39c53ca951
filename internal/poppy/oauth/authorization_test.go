package oauth_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func TestDP23_SchemeIsReadWithoutCase(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#1", "poppy-0.1/4.3#3")
	for value, want := range map[string]oauth.Authorization{
		"DPoP st_a.B-c~d+e/f_==": {Scheme: oauth.DPoP, Token: "st_a.B-c~d+e/f_=="},
		"dpop st_1":              {Scheme: oauth.DPoP, Token: "st_1"},
		"DPOP  st_1 ":            {Scheme: oauth.DPoP, Token: "st_1"},
		"Bearer st_1":            {Scheme: oauth.Bearer, Token: "st_1"},
		"bEaRer st_1":            {Scheme: oauth.Bearer, Token: "st_1"},
	} {
		got, err := oauth.ParseAuthorization([]string{value})
		require.NoError(t, err, value)
		require.Equal(t, want, got)
	}
}

func TestPS02_ExactlyOneCredential(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#1", "poppy-0.1/4.3#3", "poppy-0.1/4.3#d26")
	for _, c := range []struct {
		values []string
		want   problem.Reason
	}{
		{nil, problem.InvalidToken},
		{[]string{""}, problem.InvalidToken},
		{[]string{`Digest realm="DPoP abc", x`}, problem.InvalidToken},
		{[]string{"Basic YTpi"}, problem.InvalidToken},
		{[]string{"st_1"}, problem.InvalidToken},
		{[]string{"DPoP\tst_1"}, problem.InvalidToken},
		{[]string{"DPoP,Bearer st_1"}, problem.InvalidToken},
		{[]string{"DPoPx st_1"}, problem.InvalidToken},
		{[]string{"DPoP st_1", "DPoP st_1"}, problem.InvalidRequest},
		{[]string{"DPoP st_1", "Bearer st_2"}, problem.InvalidRequest},
		{[]string{"Bearer a, DPoP b"}, problem.InvalidRequest},
		{[]string{"DPoP a,b"}, problem.InvalidRequest},
		{[]string{"DPoP a b"}, problem.InvalidRequest},
		{[]string{"DPoP DPoP a"}, problem.InvalidRequest},
		{[]string{`DPoP token="a"`}, problem.InvalidRequest},
		{[]string{"DPoP a=b"}, problem.InvalidRequest},
		{[]string{"DPoP"}, problem.InvalidRequest},
		{[]string{"DPoP "}, problem.InvalidRequest},
		{[]string{"DPoP =="}, problem.InvalidRequest},
		{[]string{"DPoP a\x00"}, problem.InvalidRequest},
		{[]string{"DPoP tokén"}, problem.InvalidRequest},
	} {
		got, err := oauth.ParseAuthorization(c.values)
		require.True(t, problem.Is(err, c.want), "%q: %v", c.values, err)
		require.Zero(t, got)
	}
}

func TestPK17_OversizedAuthorizationRefused(t *testing.T) {
	for _, token := range []string{strings.Repeat(".", 1<<20), strings.Repeat("a", jose.MaxJWT)} {
		_, err := oauth.ParseAuthorization([]string{"DPoP " + token})
		requireProblem(t, err, problem.InvalidRequest, oauth.TokenInHeader)
	}
	_, err := oauth.ParseAuthorization([]string{"DPoP " + strings.Repeat("a", jose.MaxJWT-5)})
	require.NoError(t, err)
}

func TestParseAuthorization_ErrorsHoldNoToken(t *testing.T) {
	for _, value := range []string{"DPoP s3cr3t,x", "Basic s3cr3t", "s3cr3t"} {
		_, err := oauth.ParseAuthorization([]string{value})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

func FuzzParseAuthorization(f *testing.F) {
	for _, seed := range []string{"DPoP a.b.c", "bearer x==", "Digest a=\"DPoP b\"", "DPoP a, DPoP b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		a, err := oauth.ParseAuthorization([]string{value})
		if err != nil {
			return
		}
		require.Contains(t, []oauth.Scheme{oauth.DPoP, oauth.Bearer}, a.Scheme)
		require.NotEmpty(t, a.Token)
		require.NotContains(t, a.Token, ",")
		require.Contains(t, value, a.Token)
	})
}
