package mediated_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/mediated"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const secret = "hunter2-s3cr3t"

func fields() []string { return []string{"email", "password"} }

func requireProblem(t *testing.T, err error, reason problem.Reason, id clause.ID) {
	t.Helper()
	require.Error(t, err)
	p := problem.As(err)
	require.Equal(t, reason, p.Reason, "%v", err)
	require.Equal(t, id, p.Clause, "%v", err)
	require.NotContains(t, err.Error(), secret)
	for _, f := range p.Fields {
		require.NotContains(t, f.Path+f.Detail, secret)
	}
}

func TestParseRequest(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#4", "poppy-0.1/4.7#8", "poppy-0.1/4.7#10", "poppy-0.1/3.3#11")
	r, err := mediated.ParseRequest([]byte(`{"scope":"poppy:read","credentials":{"email":"mia@example.com","password":"é \" p"},"future":{"a":[1]}}`), fields())
	require.NoError(t, err)
	require.Equal(t, "poppy:read", r.Scope())
	require.Equal(t, map[string]string{"email": "mia@example.com", "password": `é " p`}, r.Credentials())
	for _, none := range []string{`{"credentials":{"email":"m","password":"p"}}`, `{"scope":null,"credentials":{"email":"m","password":"p"}}`} {
		r, err = mediated.ParseRequest([]byte(none), fields())
		require.NoError(t, err)
		require.Empty(t, r.Scope(), "whether it is needed is judged with the Company's scopes")
	}
}

func TestParseRequest_Malformed(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#4", "poppy-0.1/4.7#8", "poppy-0.1/4.7#10", "poppy-0.1/4.7#d32", "poppy-0.1/4.7#24")
	for body, id := range map[string]clause.ID{
		``:              mediated.JSONBody,
		`null`:          mediated.JSONBody,
		`[]`:            mediated.JSONBody,
		`"` + secret:    mediated.JSONBody,
		`{"scope":"a"`:  mediated.JSONBody,
		`{"scope":"a"}`: mediated.JSONBody,
		`{"scope":"a","scope":"b","credentials":{"email":"m","password":"` + secret + `"}}`:                      mediated.JSONBody,
		`{"scope":"a","credentials":null}`:                                                                       mediated.JSONBody,
		`{"scope":"a","credentials":["` + secret + `"]}`:                                                         mediated.JSONBody,
		`{"scope":"a","credentials":"` + secret + `"}`:                                                           mediated.JSONBody,
		`{"scope":"a","credentials":{}}`:                                                                         mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m"}}`:                                                              mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m","password":""}}`:                                                mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m","password":null}}`:                                              mediated.AllFields,
		`{"scope":"a","credentials":{"email":7,"password":"` + secret + `"}}`:                                    mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m","password":["` + secret + `"]}}`:                                mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m","password":"` + strings.Repeat("x", 4097) + `"}}`:               mediated.AllFields,
		`{"scope":"a","credentials":{"email":"m","password":"p","` + secret + `":"x"}}`:                          mediated.KnownField,
		`{"scope":"a","credentials":{"email":"m","Password":"` + secret + `"}}`:                                  mediated.KnownField,
		`{"scope":"a","credentials":{"email":"m","password":"p","password":"` + secret + `"}}`:                   mediated.JSONBody,
		`{"scope":"a","credentials":{"email":"m\u0000","password":"` + secret + `"}}`:                            mediated.JSONBody,
		`{"scope":"a","credentials":{"email":"\ud800","password":"` + secret + `"}}`:                             mediated.JSONBody,
		"{\"scope\":\"a\",\"credentials\":{\"email\":\"\xff\",\"password\":\"" + secret + "\"}}":                 mediated.JSONBody,
		`{"scope":"a","credentials":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`:                mediated.JSONBody,
		`{"scope":"a","credentials":{"email":"m","password":"p"}} {"credentials":{"password":"` + secret + `"}}`: mediated.JSONBody,
	} {
		_, err := mediated.ParseRequest([]byte(body), fields())
		requireProblem(t, err, problem.InvalidRequest, id)
	}
	for _, scope := range []string{`7`, `["poppy:read"]`, `{}`, `true`} {
		_, err := mediated.ParseRequest([]byte(`{"scope":`+scope+`,"credentials":{"email":"m","password":"p"}}`), fields())
		requireProblem(t, err, problem.InvalidScope, oauth.ScopeSyntax)
	}
	_, err := mediated.ParseRequest([]byte(`{"scope":"`+strings.Repeat("a", mediated.MaxBody)+`"}`), fields())
	requireProblem(t, err, problem.RequestTooLarge, mediated.JSONBody)
}

func TestParseCode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#14")
	clausetest.Refuses(t, "poppy-0.1/4.7#14", "poppy-0.1/4.7#d32")
	code, err := mediated.ParseCode([]byte(`{"code":"123 456","credentials":{"password":"x"}}`))
	require.NoError(t, err)
	require.Equal(t, "123 456", code)
	for _, body := range []string{
		``, `{}`, `{"code":""}`, `{"code":123456}`, `{"code":null}`, `{"code":["` + secret + `"]}`, `"` + secret + `"`, `{"Code":"` + secret + `"}`,
		`{"code":"1","code":"` + secret + `"}`, `{"code":"` + strings.Repeat("1", 65) + `"}`,
	} {
		_, err := mediated.ParseCode([]byte(body))
		requireProblem(t, err, problem.InvalidRequest, mediated.CodeBody)
	}
	_, err = mediated.ParseCode([]byte(`{"code":"` + strings.Repeat("1", mediated.MaxBody) + `"}`))
	requireProblem(t, err, problem.RequestTooLarge, mediated.CodeBody)
}

func TestEncode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#13", "poppy-0.1/4.7#21")
	at := time.Date(2026, 10, 2, 17, 15, 0, 999, time.FixedZone("", -7*3600))
	got, err := mediated.EncodeCodeRequired("sgn_1", `Text to "…71"`, at)
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"code_required","sign_in_id":"sgn_1","code":{"sent_to":"Text to \"…71\""},"expires_at":"2026-10-03T00:15:00Z"}`, string(got))
	got, err = mediated.EncodeEnd(mediated.Expired)
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"expired"}`, string(got))
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"scope":"poppy:read","credentials":{"email":"m","password":"p"}}`))
	f.Add([]byte(`{"code":"123456"}`))
	f.Add([]byte(`{"credentials":{"email":"\ud83d\ude00","password":"\\"},"scope":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := mediated.ParseRequest(body, fields())
		if err == nil {
			require.Len(t, r.Credentials(), 2)
			require.NotEmpty(t, r.Credentials()["email"])
			require.NotEmpty(t, r.Credentials()["password"])
			require.NoError(t, jsonx.Check(body, jsonx.MaxDepth))
		}
		if code, err := mediated.ParseCode(body); err == nil {
			require.NotEmpty(t, code)
		}
	})
}
