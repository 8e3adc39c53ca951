package relay_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

const (
	complete     = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_COMPLETE
	codeRequired = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_CODE_REQUIRED
	failed       = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_FAILED
	unavailable  = relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_UNAVAILABLE
)

func credentials() *relayv1.CheckCredentialsRequest {
	return &relayv1.CheckCredentialsRequest{
		Url: "https://backend.example/check", Id: "sgn_1-1",
		Subject: &relayv1.SignInSubject{
			SignInId: "sgn_1", SignIn: "mediated", ClientId: "https://agent.example/agent.json", AgentName: "Example Agent", UserId: "usr_1", SessionId: "ses_1",
			Scopes: []string{"poppy:read"},
		},
		What: &relayv1.CheckCredentialsRequest_Credentials{Credentials: &relayv1.Credentials{
			Fields: map[string]string{"email": "canary-mia@example.com", "password": "canary-password"},
		}},
	}
}

func code() *relayv1.CheckCredentialsRequest {
	req := credentials()
	req.Id = "sgn_1-2"
	req.What = &relayv1.CheckCredentialsRequest_Code{Code: &relayv1.OneTimeCode{Code: "canary-123456", State: "canary-state"}}
	return req
}

func (r *rig) check(t testing.TB, req *relayv1.CheckCredentialsRequest) *relayv1.CheckCredentialsResponse {
	t.Helper()
	got, err := r.signIns.CheckCredentials(r.ctx(t), req)
	require.NoError(t, err, "what goes wrong is in the answer")
	return got
}

func TestCheckCredentials_SignedLikeEveryWebhook(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		secret := r.hmac(t, 0)
		r.rotate(t, adminv1.SecretKind_SECRET_KIND_ED25519, 0)
		r.site.with(http.StatusOK, `{"result":"complete","account":"acc-1","account_label":"mia@example.com"}`, "Content-Type", "application/json")
		got := r.check(t, credentials())
		require.Equal(t, complete, got.GetOutcome())
		require.Equal(t, "acc-1", got.GetAccount())
		require.Equal(t, "mia@example.com", got.GetAccountLabel())
		require.Nil(t, got.GetExpiresIn())
		require.Empty(t, got.GetReason())

		d := r.site.last(t)
		require.Equal(t, "POST /check", d.path)
		require.Equal(t, "application/json", d.header.Get("Content-Type"))
		require.Equal(t, "sgn_1-1", d.header.Get("Webhook-Id"))
		require.Equal(t, strconv.FormatInt(r.clock.Now().Unix(), 10), d.header.Get("Webhook-Timestamp"))
		require.NoError(t, verifyHMAC(t, d, secret))
		keys := r.publicKeys(t)
		require.Len(t, keys, 1)
		require.True(t, verifyEd25519(t, d, keys[0]))
		at, err := json.Marshal(r.clock.Now().Format("2006-01-02T15:04:05.000Z"))
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"sign_in.credentials","timestamp":`+string(at)+`,"data":{"company":"`+r.scope.Name()+`",
			"sign_in":{"id":"sgn_1","type":"mediated","scopes":["poppy:read"]},"agent":{"client_id":"https://agent.example/agent.json","name":"Example Agent"},
			"user":{"id":"usr_1"},"session":{"id":"ses_1"},"credentials":{"email":"canary-mia@example.com","password":"canary-password"}}}`, string(d.body))
	})
}

func TestCheckCredentials_Code(t *testing.T) {
	r := newRig(t)
	r.site.with(http.StatusOK, `{"result":"code_required","sent_to":"Text to …71","state":"opaque","expires_in":600}`, "Content-Type", "application/json")
	got := r.check(t, code())
	require.Equal(t, codeRequired, got.GetOutcome())
	require.Equal(t, "Text to …71", got.GetSentTo())
	require.Equal(t, "opaque", got.GetState())
	require.Equal(t, 10*time.Minute, got.GetExpiresIn().AsDuration())
	var body struct {
		Type string
		Data map[string]any
	}
	require.NoError(t, json.Unmarshal(r.site.last(t).body, &body))
	require.Equal(t, "sign_in.code", body.Type)
	require.Equal(t, "canary-123456", body.Data["code"])
	require.Equal(t, "canary-state", body.Data["state"])
	require.NotContains(t, body.Data, "credentials")
}

func TestCheckCredentials_NoWebhookGoesOutUnsigned(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		require.Empty(t, r.publicKeys(t))
		r.site.with(http.StatusOK, `{"result":"failed"}`, "Content-Type", "application/json")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				got, err := r.signIns.CheckCredentials(r.ctx(t), credentials())
				if err != nil || got.GetOutcome() != failed {
					t.Errorf("outcome %v: %v", got.GetOutcome(), err)
				}
			})
		}
		all.Wait()
		keys := r.publicKeys(t)
		require.NotEmpty(t, keys)
		for _, d := range r.site.deliveries() {
			good := false
			for _, key := range keys {
				good = good || verifyEd25519(t, d, key)
			}
			require.True(t, good, "by a key that is published, also where several calls made the first one")
		}
		// It is the Company's from then on.
		r.point(t)
		require.Equal(t, keys, r.publicKeys(t))
	})
}

func TestCheckCredentials_NeedsNoBackend(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.site.with(http.StatusGone, "")
	require.Equal(t, disabled, r.deliver(t, "evt_1", `{}`).GetOutcome())
	r.site.with(http.StatusOK, `{"result":"failed"}`, "Content-Type", "application/json")
	require.Equal(t, failed, r.check(t, credentials()).GetOutcome(), "a backend that is off is another matter")
	r.site.with(http.StatusGone, "")
	r.point(t)
	_, err := r.backends.EnableBackend(r.ctx(t), &adminv1.EnableBackendRequest{Name: r.name()})
	require.NoError(t, err)
	require.Equal(t, unavailable, r.check(t, credentials()).GetOutcome())
	require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, r.backend(t).GetState(), "and the other way round")
}

func TestCheckCredentials_Unavailable(t *testing.T) {
	r := newRig(t)
	answer := `{"result":"complete","account":"acc-1"}`
	for _, c := range []struct {
		status            int
		contentType, body string
		reason            string
	}{
		{201, "application/json", answer, "answer breaks the contract"},
		{202, "application/json", answer, "answer breaks the contract"},
		{204, "", "", "answer breaks the contract"},
		{302, "application/json", answer, "redirect not followed"},
		{401, "application/json", `{"result":"failed"}`, "status 401"},
		{410, "application/json", answer, "endpoint gone"},
		{429, "application/json", answer, "throttled with status 429"},
		{500, "application/json", answer, "status 500"},
		{200, "text/html", answer, "answer breaks the contract"},
		{200, "application/json", ``, "answer breaks the contract"},
		{200, "application/json", `{"result":"maybe"}`, "answer breaks the contract"},
		{200, "application/json", `{"result":"complete","account":""}`, "answer breaks the contract"},
		{200, "application/json", `{"result":"complete","account":"` + strings.Repeat("a", 256) + `"}`, "answer breaks the contract"},
		{200, "application/json", answer + strings.Repeat(" ", 64<<10), "answer not readable"},
	} {
		r.site.with(c.status, c.body, "Content-Type", c.contentType, "Location", "https://new.example/")
		got := r.check(t, credentials())
		require.Equal(t, unavailable, got.GetOutcome(), "%d %.60s", c.status, c.body)
		require.Equal(t, c.reason, got.GetReason())
		require.Empty(t, got.GetAccount())
	}
	require.Empty(t, r.new.deliveries(), "credentials go nowhere else")
	sent := len(r.site.deliveries())
	require.Equal(t, 14, sent, "each was sent once")

	r.zone.set("private.example", "10.0.0.1")
	for host, reason := range map[string]string{
		"unknown.example": "name not resolved", "private.example": "address not allowed", "127.0.0.1": "address not allowed",
		"refused.example": "no connection", "untrusted.example": "no secure connection",
	} {
		req := credentials()
		req.Url = "https://" + host + "/check"
		got := r.check(t, req)
		require.Equal(t, unavailable, got.GetOutcome())
		require.Equal(t, reason, got.GetReason())
	}
	require.Len(t, r.site.deliveries(), sent)
}

func TestCheckCredentials_CallerThatGivesUp(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(r.ctx(t))
	r.site.answers(func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	_, err := r.signIns.CheckCredentials(ctx, credentials())
	require.ErrorIs(t, err, context.Canceled)
}

func TestCheckCredentials_BadCalls(t *testing.T) {
	r := newRig(t)
	_, err := r.signIns.CheckCredentials(t.Context(), credentials())
	require.Equal(t, problem.Internal, problem.As(err).Kind, "without a Company")
	req := credentials()
	req.What = nil
	_, err = r.signIns.CheckCredentials(r.ctx(t), req)
	requireReason(t, err, problem.InvalidRequest)
	for _, id := range []string{"", "sgn_1.1", "sgn 1", strings.Repeat("x", 300)} {
		req = credentials()
		req.Id = id
		_, err = r.signIns.CheckCredentials(r.ctx(t), req)
		requireReason(t, err, problem.InvalidRequest)
		require.NotContains(t, err.Error(), "canary")
	}
	require.Empty(t, r.site.deliveries())
}

func TestMT03_CheckCredentials_SignedByTheCompanysOwnKeysAlone(t *testing.T) {
	r := newRig(t)
	other := &rig{}
	*other = *r
	other.scope = dbtest.Company(t, r.db)
	r.site.with(http.StatusOK, `{"result":"failed"}`, "Content-Type", "application/json")
	r.check(t, credentials())
	other.check(t, credentials())
	keys := other.publicKeys(t)
	require.Len(t, keys, 1)
	all := r.site.deliveries()
	require.Len(t, all, 2)
	require.False(t, verifyEd25519(t, all[0], keys[0]))
	require.True(t, verifyEd25519(t, all[1], keys[0]))
}

func TestCheckCredentials_NothingIsTold(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		requests := []func() *relayv1.CheckCredentialsRequest{credentials, code}
		answers := []string{
			`{"result":"complete","account":"canary-account","account_label":"canary-label"}`,
			`{"result":"code_required","sent_to":"canary-sent","state":"canary-state"}`, `{"result":"failed"}`, `{"result":"canary-result"}`, `canary`,
		}
		for _, request := range requests {
			for _, status := range []int{200, 302, 500} {
				for _, body := range answers {
					r.site.with(status, body, "Content-Type", "application/json", "Location", "https://canary.example/")
					require.NotContains(t, r.check(t, request()).GetReason(), "canary")
				}
			}
			for _, host := range []string{"refused.example", "untrusted.example", "unknown.example", "127.0.0.1"} {
				req := request()
				req.Url = "https://" + host + "/canary-path"
				require.NotContains(t, r.check(t, req).GetReason(), "canary")
			}
			req := request()
			req.Id = "not.one"
			_, err := r.signIns.CheckCredentials(r.ctx(t), req)
			require.NotContains(t, err.Error(), "canary")
		}
		said := r.told.all(t)
		require.Contains(t, said, "egress POST", "what is told is looked at")
		require.Contains(t, said, "SignInService/CheckCredentials")
		require.NotContains(t, strings.ToLower(said), "canary")
	})
}
