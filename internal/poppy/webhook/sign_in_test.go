package webhook_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

func signInCheck() webhook.SignInCheck {
	return webhook.SignInCheck{
		At: time.Date(2026, 12, 2, 9, 30, 0, 0, time.UTC), Company: "companies/cmp_1",
		Subject: webhook.SignInSubject{
			SignInID: "sgn_1", Type: "mediated", Scopes: []string{"poppy:read"},
			Agent:  webhook.DeliveryAgent{ClientID: "https://agent.example/agent.json", Name: "Example <Agent>"},
			UserID: "usr_1", SessionID: "ses_1",
		},
		Credentials: map[string]string{"password": `s"é`, "email": "mia@example.com"},
	}
}

func TestBuildSignInCheck_Credentials(t *testing.T) {
	raw, err := webhook.BuildSignInCheck(signInCheck())
	require.NoError(t, err)
	requireBytes(t, `{"type":"sign_in.credentials","timestamp":"2026-12-02T09:30:00.000Z","data":{"company":"companies/cmp_1",`+
		`"sign_in":{"id":"sgn_1","type":"mediated","scopes":["poppy:read"]},`+
		`"agent":{"client_id":"https://agent.example/agent.json","name":"Example <Agent>"},"user":{"id":"usr_1"},"session":{"id":"ses_1"},`+
		`"credentials":{"email":"mia@example.com","password":"s\"é"}}}`, raw)
}

func TestBuildSignInCheck_Code(t *testing.T) {
	c := signInCheck()
	c.Credentials, c.Code, c.State = nil, "123456", "opaque"
	raw, err := webhook.BuildSignInCheck(c)
	require.NoError(t, err)
	require.Contains(t, string(raw), `{"type":"sign_in.code",`)
	require.True(t, strings.HasSuffix(string(raw), `"session":{"id":"ses_1"},"code":"123456","state":"opaque"}}`), "%s", raw)
}

func TestBuildSignInCheck_SameShapeForLess(t *testing.T) {
	c := signInCheck()
	c.Subject = webhook.SignInSubject{SignInID: "sgn_1", Type: "direct"}
	c.Credentials = map[string]string{}
	raw, err := webhook.BuildSignInCheck(c)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(raw), `"sign_in":{"id":"sgn_1","type":"direct","scopes":[]},`+
		`"agent":{"client_id":"","name":""},"user":null,"session":null,"credentials":{}}}`), "%s", raw)
	c.Credentials = nil
	raw, err = webhook.BuildSignInCheck(c)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(raw), `"session":null,"code":"","state":""}}`), "%s", raw)
}

func TestParseSignInAnswer_Results(t *testing.T) {
	for body, want := range map[string]webhook.SignInAnswer{
		`{"result":"complete","account":"acc-1","account_label":"mia@example.com","later":[1]}`: {
			Result: webhook.SignInComplete, Account: "acc-1", AccountLabel: "mia@example.com",
		},
		`{"result":"complete","account":"` + strings.Repeat("é", 255) + `","account_label":null}`: {
			Result: webhook.SignInComplete, Account: strings.Repeat("é", 255),
		},
		`{"result":"code_required","sent_to":"Text to …71","state":"opaque","expires_in":600}`: {
			Result: webhook.SignInCodeRequired, SentTo: "Text to …71", State: "opaque", Lifetime: 10 * time.Minute,
		},
		`{"result":"code_required"}`:                         {Result: webhook.SignInCodeRequired},
		`{"result":"code_required","expires_in":3601}`:       {Result: webhook.SignInCodeRequired, Lifetime: time.Hour},
		`{"result":"code_required","account":"acc-1"}`:       {Result: webhook.SignInCodeRequired},
		`{"result":"failed","account":5,"message":"locked"}`: {Result: webhook.SignInFailed},
	} {
		for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/problem+json"} {
			got, err := webhook.ParseSignInAnswer(200, contentType, []byte(body))
			require.NoError(t, err, body)
			require.Equal(t, want, got)
		}
	}
}

func TestParseSignInAnswer_Refused(t *testing.T) {
	for _, body := range []string{
		``, ` `, `{}`, `[]`, `"complete"`, `true`, `{"result":null}`, `{"result":true}`, `{"result":"Complete"}`, `{"result":"complete "}`, `{"result":"ok"}`,
		`{"Result":"complete","account":"a"}`, `{"result":"complete"}`, `{"result":"complete","account":""}`, `{"result":"complete","account":null}`,
		`{"result":"complete","account":7}`, `{"result":"complete","account":["a"]}`, `{"result":"complete","account":"a\nb"}`, `{"result":"complete","account":"a\u0000"}`,
		`{"result":"complete","account":"` + strings.Repeat("a", 256) + `"}`, `{"result":"complete","account":"a","account_label":5}`,
		`{"result":"complete","account":"a","account_label":"` + strings.Repeat("a", 256) + `"}`, `{"result":"complete","account":"a","account_label":"\u0007"}`,
		`{"result":"failed","result":"complete","account":"a"}`, `{"result":"complete","account":"a","account":"b"}`, `{"result":"complete","account":"\ud800"}`,
		`{"result":"complete","account":"a"} {}`, `{"result":"complete","account":"a"`,
		`{"result":"code_required","sent_to":1}`, `{"result":"code_required","sent_to":"a\u001b[2J"}`, `{"result":"code_required","sent_to":"` + strings.Repeat("x", 256) + `"}`,
		`{"result":"code_required","state":{}}`, `{"result":"code_required","state":"` + strings.Repeat("x", 4097) + `"}`,
		`{"result":"code_required","expires_in":0}`, `{"result":"code_required","expires_in":-1}`, `{"result":"code_required","expires_in":1.5}`,
		`{"result":"code_required","expires_in":"600"}`, `{"result":"code_required","expires_in":1e3}`, `{"result":"code_required","expires_in":99999999999999999999}`,
	} {
		got, err := webhook.ParseSignInAnswer(200, "application/json", []byte(body))
		require.True(t, problem.Is(err, webhook.InvalidAnswer), "%.80s: %v", body, err)
		require.Zero(t, got)
	}
	good := []byte(`{"result":"complete","account":"acc-1"}`)
	for _, c := range []struct {
		status      int
		contentType string
	}{
		{200, ""},
		{200, "text/html"},
		{200, "text/json"},
		{0, "application/json"},
		{201, "application/json"},
		{202, "application/json"},
		{204, "application/json"},
		{302, "application/json"},
		{401, "application/json"},
		{403, "application/json"},
		{500, "application/json"},
	} {
		got, err := webhook.ParseSignInAnswer(c.status, c.contentType, good)
		require.True(t, problem.Is(err, webhook.InvalidAnswer), "%+v", c)
		require.Zero(t, got)
	}
	_, err := webhook.ParseSignInAnswer(200, "application/json", append(good, make([]byte, webhook.MaxSignInAnswer)...))
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
}

func TestParseSignInAnswer_ErrorsQuoteNothing(t *testing.T) {
	for _, body := range []string{
		`{"result":"canary"}`, `{"result":"complete","account":["canary"]}`, `{"result":"code_required","state":"canary","expires_in":"canary"}`, `{"canary"`,
	} {
		_, err := webhook.ParseSignInAnswer(200, "application/json", []byte(body))
		require.NotContains(t, err.Error(), "canary")
	}
}

func FuzzParseSignInAnswer(f *testing.F) {
	f.Add(200, "application/json", []byte(`{"result":"complete","account":"acc-1","account_label":"mia@example.com"}`))
	f.Add(200, "application/json", []byte(`{"result":"code_required","sent_to":"Text to …71","state":"opaque","expires_in":600}`))
	f.Add(200, "application/json", []byte(`{"result":"failed"}`))
	f.Add(200, "application/json", []byte(`{"result":"complete","result":"failed"}`))
	f.Add(302, "text/html", []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		a, err := webhook.ParseSignInAnswer(status, contentType, body)
		if err != nil {
			require.True(t, problem.Is(err, webhook.InvalidAnswer))
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			require.Zero(t, a)
			return
		}
		require.Equal(t, 200, status)
		require.Equal(t, a.Result == webhook.SignInComplete, a.Account != "", "an account, and only with complete")
		require.True(t, a.Result == webhook.SignInComplete || a.AccountLabel == "")
		require.True(t, a.Result == webhook.SignInCodeRequired || a.SentTo == "" && a.State == "" && a.Lifetime == 0)
		require.True(t, a.Lifetime >= 0 && a.Lifetime <= webhook.MaxCodeLifetime)
		for text, limit := range map[string]int{a.Account: webhook.MaxAccount, a.AccountLabel: webhook.MaxAccount, a.SentTo: webhook.MaxSentTo, a.State: webhook.MaxSignInState} {
			require.True(t, utf8.ValidString(text) && utf8.RuneCountInString(text) <= limit)
			require.False(t, strings.ContainsFunc(text, unicode.IsControl))
		}
	})
}
