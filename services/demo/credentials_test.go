package demo

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/demo/identity"
)

func testCheck(t *testing.T) (*CredentialCheck, *time.Time) {
	t.Helper()
	at := noon()
	mail := testMailbox(t)
	mail.now = func() time.Time { return at }
	return newCredentialCheck(mail, identity.Demo()), &at
}

// checkWith sends what the relay sends and reads the answer as the relay does.
func checkWith(t *testing.T, c *CredentialCheck, at time.Time, in webhook.SignInCheck) webhook.SignInAnswer {
	t.Helper()
	in.At, in.Company = at, "companies/cmp_1"
	in.Subject = webhook.SignInSubject{SignInID: "sgn_1", Type: "mediated", Scopes: []string{scopeRead}}
	body, err := webhook.BuildSignInCheck(in)
	require.NoError(t, err)
	w := post(c, signedRequest(t, "sgn_1-1", at, body))
	got, err := webhook.ParseSignInAnswer(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
	require.NoError(t, err, w.Body.String())
	return got
}

func login(email, password string) webhook.SignInCheck {
	return webhook.SignInCheck{Credentials: map[string]string{"email": email, "password": password}}
}

func TestCredentialCheck_Complete(t *testing.T) {
	c, at := testCheck(t)
	want := webhook.SignInAnswer{Result: webhook.SignInComplete, Account: mia, AccountLabel: "mia@noodle-bar.example"}
	require.Equal(t, want, checkWith(t, c, *at, login("mia@noodle-bar.example", "noodles")))
	require.Equal(t, want, checkWith(t, c, *at, login(" Mia@Noodle-Bar.example", "noodles")))
}

func TestCredentialCheck_Failed(t *testing.T) {
	c, at := testCheck(t)
	for _, in := range []webhook.SignInCheck{
		login("mia@noodle-bar.example", "Noodles"), login("mia@noodle-bar.example", ""), login("", "noodles"),
		login("nobody@noodle-bar.example", "noodles"),
		{Code: "271828", State: "unknown"},
		{},
	} {
		require.Equal(t, webhook.SignInAnswer{Result: webhook.SignInFailed}, checkWith(t, c, *at, in))
	}
}

func TestCredentialCheck_OneTimeCode(t *testing.T) {
	c, at := testCheck(t)
	asked := checkWith(t, c, *at, login("ken@noodle-bar.example", "noodles"))
	require.Equal(t, webhook.SignInCodeRequired, asked.Result)
	require.Equal(t, "Text to the phone number ending in 28", asked.SentTo)
	require.Equal(t, codeLifetime, asked.Lifetime)
	require.NotEmpty(t, asked.State)

	*at = at.Add(time.Minute)
	again := checkWith(t, c, *at, webhook.SignInCheck{Code: "000000", State: asked.State})
	require.Equal(t, webhook.SignInCodeRequired, again.Result, "wrong, another try is allowed")
	require.Equal(t, codeLifetime-time.Minute, again.Lifetime)
	done := checkWith(t, c, *at, webhook.SignInCheck{Code: "271828", State: again.State})
	require.Equal(t, webhook.SignInAnswer{Result: webhook.SignInComplete, Account: ken, AccountLabel: "ken@noodle-bar.example"}, done)
	require.Equal(t, webhook.SignInFailed, checkWith(t, c, *at, webhook.SignInCheck{Code: "271828", State: again.State}).Result, "once")
}

func TestCredentialCheck_CodesAndTriesEnd(t *testing.T) {
	c, at := testCheck(t)
	asked := checkWith(t, c, *at, login("ken@noodle-bar.example", "noodles"))
	for range codeTries - 1 {
		require.Equal(t, webhook.SignInCodeRequired, checkWith(t, c, *at, webhook.SignInCheck{Code: "1", State: asked.State}).Result)
	}
	require.Equal(t, webhook.SignInFailed, checkWith(t, c, *at, webhook.SignInCheck{Code: "1", State: asked.State}).Result)
	require.Equal(t, webhook.SignInFailed, checkWith(t, c, *at, webhook.SignInCheck{Code: "271828", State: asked.State}).Result)

	asked = checkWith(t, c, *at, login("ken@noodle-bar.example", "noodles"))
	*at = at.Add(codeLifetime)
	require.Equal(t, webhook.SignInFailed, checkWith(t, c, *at, webhook.SignInCheck{Code: "271828", State: asked.State}).Result)
}

func TestCredentialCheck_RefusesWhatIsNotSigned(t *testing.T) {
	c, at := testCheck(t)
	body := []byte(`{"type":"sign_in.credentials","data":{"credentials":{"email":"mia@noodle-bar.example","password":"noodles"}}}`)
	r := signedRequest(t, "sgn_1-1", *at, body)
	r.Header.Set(webhook.HeaderID, "sgn_1-2")
	require.Equal(t, http.StatusUnauthorized, post(c, r).Code)
	require.Equal(t, http.StatusBadRequest, post(c, signedRequest(t, "sgn_1-1", *at, []byte(`{"type":`))).Code)
	require.Equal(t, http.StatusBadRequest, post(c, signedRequest(t, "sgn_1-1", *at, []byte(`{"type":"conversation.message"}`))).Code)
}
