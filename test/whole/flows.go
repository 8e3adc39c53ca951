package whole

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
)

// Everybody is who takes part in the flows.
type Everybody struct {
	API      API
	Company  *Company
	Agent    *Agent
	Outside  *Outside
	Recorder *Recorder
	Client   *http.Client
}

// Exercise goes through every flow, good ones and failing ones, with canaries in each.
func (e Everybody) Exercise(t testing.TB) {
	t.Helper()
	e.talk(t)
	e.failingBackend(t)
	e.failingTokens(t)
	e.failingRequests(t)
	e.signIn(t)
	e.admin(t)
	e.revoke(t)
}

func (e Everybody) call(t testing.TB, status int, method, address string, body any, changes ...fixture.Change) {
	t.Helper()
	answer, err := e.Agent.Call(t.Context(), method, address, body, changes...)
	require.NoError(t, err)
	require.Equal(t, status, answer.Status, "%s %s: %s", method, address, answer.Body)
}

type object = map[string]any

func (e Everybody) talk(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	answer := e.Recorder.Text("answer")
	e.Company.Backend.Answer(func(Webhook) (int, string) {
		raw, _ := json.Marshal(object{"messages": []any{object{"text": answer, "data": object{"said": answer}}}})
		return http.StatusOK, string(raw)
	})
	require.NoError(t, e.Agent.StartSession(ctx))
	require.NoError(t, e.Agent.StartSession(ctx), "renewed or not, a second time")
	start, err := e.Agent.Call(ctx, http.MethodPost, e.Agent.Conversations+"?wait=5", object{"message": object{
		"id": fixture.RandomID(), "sender": "human", "text": e.Recorder.Text("text"),
		"data": object{"k": e.Recorder.Text("data")}, "context": object{"c": e.Recorder.Text("context")},
	}})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, start.Status, "%s", start.Body)
	var page Page
	require.NoError(t, json.Unmarshal(start.Body, &page))
	events, _, err := e.Agent.ReadUntil(ctx, page.ConversationID, "", Idle)
	require.NoError(t, err)
	require.Contains(t, Texts(events), "company: "+answer)
	at := e.Agent.Conversations + "/" + page.ConversationID
	require.NoError(t, e.API.Call(ctx, http.MethodPost, e.Company.Name+"/conversations/"+page.ConversationID+":postMessage",
		object{"message": object{"text": e.Recorder.Text("posted")}, "request_id": "6b8f6f0e-3c77-4b0c-9a51-0f8f4f2f7a11"}, nil))
	e.call(t, http.StatusConflict, http.MethodPost, at+"/messages", e.twice(t, page.ConversationID))
	e.call(t, http.StatusOK, http.MethodPost, at+"/close", object{})
	e.call(t, http.StatusConflict, http.MethodPost, at+"/messages", NewMessage(fixture.RandomID(), e.Recorder.Text("late")))
}

// twice sends a message, and returns another one with the same id.
func (e Everybody) twice(t testing.TB, conversation string) any {
	t.Helper()
	id := fixture.RandomID()
	require.NoError(t, e.Agent.Send(t.Context(), conversation, id, e.Recorder.Text("first")))
	return NewMessage(id, e.Recorder.Text("second"))
}

func (e Everybody) failingBackend(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	secret := e.Recorder.Text("backend-query") // the database has the URL
	require.NoError(t, e.API.Call(ctx, http.MethodPatch, e.Company.Name+"/backend", object{"url": e.Company.Backend.URL + "?key=" + secret}, nil))
	for _, answer := range []func(Webhook) (int, string){
		func(Webhook) (int, string) { return http.StatusInternalServerError, e.Recorder.Text("backend-error") },
		func(Webhook) (int, string) {
			return http.StatusOK, `{"messages":[{"text":"` + e.Recorder.Text("backend-broken") + `"`
		},
		func(Webhook) (int, string) {
			return http.StatusFound, `{"see":"` + e.Recorder.Text("backend-redirect") + `"}`
		},
		func(Webhook) (int, string) { return http.StatusGone, `{}` },
	} {
		before := len(e.Company.Backend.Received())
		e.Company.Backend.Answer(answer)
		_, err := e.Agent.Open(ctx, fixture.RandomID(), e.Recorder.Text("unanswered"))
		require.NoError(t, err)
		e.Company.Backend.Await(t, 20*time.Second, "the message", func(got []Webhook) bool { return len(got) > before })
	}
	e.Company.Backend.Answer(Echo)
	// The last answer, 410, turns the backend off, in its own time.
	require.Eventually(t, func() bool {
		var backend struct{ State string }
		return e.API.Call(ctx, http.MethodGet, e.Company.Name+"/backend", nil, &backend) == nil && backend.State == "BACKEND_STATE_DISABLED"
	}, 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		return e.API.Call(ctx, http.MethodPost, e.Company.Name+"/backend:enable", object{}, nil) == nil
	}, 10*time.Second, 50*time.Millisecond)
}

func (e Everybody) failingTokens(t testing.TB) {
	t.Helper()
	a, at := e.Agent, e.Agent.Endpoints.Token
	now := time.Now()
	form := func(change func(url.Values)) url.Values {
		f := a.TokenForm(t, a.User, at, time.Now())
		change(f)
		return f
	}
	foreign := fixture.SignedBy(fixture.NewKey(t))
	replayed := a.TokenForm(t, a.User, at, now)
	post := func(htu string, f url.Values, statuses ...int) {
		t.Helper()
		answer, err := a.Form(t.Context(), at, htu, f)
		require.NoError(t, err)
		require.Contains(t, statuses, answer.Status, "%s", answer.Body)
	}
	post(at, replayed, http.StatusOK)
	post(at, replayed, http.StatusBadRequest, http.StatusUnauthorized)
	post("https://elsewhere.test/", form(func(url.Values) {}), http.StatusBadRequest)
	for name, change := range map[string]func(url.Values){
		"bad client assertion":  func(f url.Values) { f.Set("client_assertion", a.ClientAssertion(t, at, now, foreign)) },
		"bad session assertion": func(f url.Values) { f.Set("assertion", a.SessionAssertion(t, a.User, at, now, foreign)) },
		"no JWTs": func(f url.Values) {
			f.Set("client_assertion", e.Recorder.Credential("client_assertion"))
			f.Set("assertion", e.Recorder.Credential("assertion"))
		},
		"no client": func(f url.Values) { f.Set("client_id", "https://"+AgentHost+"/none.json") },
		"password grant": func(f url.Values) {
			f.Set("grant_type", "password")
			f.Set("password", e.Recorder.Credential("password"))
		},
		"code": func(f url.Values) {
			f.Set("grant_type", "authorization_code")
			f.Set("code", e.Recorder.Credential("code"))
			f.Set("code_verifier", e.Recorder.Credential("code_verifier"))
		},
		"refresh": func(f url.Values) {
			f.Set("grant_type", "refresh_token")
			f.Set("refresh_token", e.Recorder.Credential("refresh_token"))
		},
		"device": func(f url.Values) {
			f.Set("grant_type", "urn:ietf:params:oauth:grant-type:device_code")
			f.Set("device_code", e.Recorder.Credential("device_code"))
		},
		"twice": func(f url.Values) { f.Add("assertion", e.Recorder.Credential("assertion")) },
	} {
		answer, err := a.Form(t.Context(), at, at, form(change))
		require.NoError(t, err)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, answer.Status, "%s: %s", name, answer.Body)
	}
	raw := func(method, target, contentType, body string, header http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		require.NoError(t, err)
		r.Header = header
		r.Header.Set("Content-Type", contentType)
		answer, err := do(e.Client, r)
		require.NoError(t, err)
		require.GreaterOrEqual(t, answer.Status, 400)
		require.Less(t, answer.Status, 500)
	}
	raw(http.MethodPost, at, "application/json", `{"assertion":"`+e.Recorder.Credential("assertion")+`"}`, http.Header{})
	raw(http.MethodPost, at, "application/x-www-form-urlencoded", "assertion=%zz"+e.Recorder.Credential("assertion"), http.Header{})
	raw(http.MethodPost, at+"?access_token="+e.Recorder.Credential("query-token"), "application/x-www-form-urlencoded", "a=b", http.Header{})
	raw(http.MethodGet, at+"?code="+e.Recorder.Credential("query-code"), "", "", http.Header{})
	raw(http.MethodPost, at, "application/x-www-form-urlencoded", "a=b", http.Header{"Dpop": {e.Recorder.Credential("dpop")}})
	raw(http.MethodPost, at, "application/x-www-form-urlencoded", "grant_type="+e.Recorder.Credential("grant"),
		http.Header{"Authorization": {"Basic " + e.Recorder.Credential("basic")}})
}

func (e Everybody) failingRequests(t testing.TB) {
	t.Helper()
	ctx, a := t.Context(), e.Agent
	at := a.Conversations
	missing := at + "/cnv_00000000000000000000000000"
	e.call(t, http.StatusNotFound, http.MethodGet, missing+"/events", nil)
	e.call(t, http.StatusBadRequest, http.MethodGet, missing+"/events?access_token="+e.Recorder.Credential("query-token"), nil)
	e.call(t, http.StatusUnauthorized, http.MethodGet, missing+"/events", nil, fixture.Claim("htu", "https://elsewhere.test/"))
	e.call(t, http.StatusBadRequest, http.MethodPost, at, object{"message": e.Recorder.Text("no-message")})
	e.call(t, http.StatusBadRequest, http.MethodPost, at, object{"message": object{
		"id": "id with spaces", "sender": e.Recorder.Text("sender"), "text": e.Recorder.Text("bad"), "data": e.Recorder.Text("bad-data"),
	}})
	e.call(t, http.StatusRequestEntityTooLarge, http.MethodPost, at, NewMessage(fixture.RandomID(), strings.Repeat(e.Recorder.Text("big"), 20_000)))
	for _, header := range []http.Header{
		{"Authorization": {"DPoP " + e.Recorder.Credential("token")}, "Dpop": {e.Recorder.Credential("dpop")}},
		{"Authorization": {"DPoP pst_" + e.Recorder.Credential("token")}, "Dpop": {a.Proof(http.MethodPost, at, a.Token)}},
		{"Authorization": {"Bearer " + a.Token}},
		{"Authorization": {"Basic " + e.Recorder.Credential("basic")}},
		{"Authorization": {e.Recorder.Credential("scheme")}},
		{"Authorization": {"DPoP " + a.Token}, "Dpop": {a.Proof(http.MethodPost, at, a.Token), a.Proof(http.MethodPost, at, a.Token)}},
		{"Authorization": {"DPoP " + a.Token}, "Dpop": {a.Proof(http.MethodPost, at, e.Recorder.Credential("token"))}},
	} {
		for _, body := range []string{`{"message":{"text":"` + e.Recorder.Text("denied") + `"}}`, `{"message":` + e.Recorder.Text("no-json")} {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
			require.NoError(t, err)
			r.Header = header.Clone()
			r.Header.Set("Content-Type", "application/json")
			answer, err := do(e.Client, r)
			require.NoError(t, err)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, answer.Status, "%s", answer.Body)
		}
	}
}

func (e Everybody) admin(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	own := e.API
	own.Key = e.Company.Key
	rotate := object{"kind": "SECRET_KIND_HMAC", "request_id": "0d1b6a1c-5c0e-4d5a-8a7f-2f1f6f0e3c77"}
	require.NoError(t, own.Call(ctx, http.MethodPost, e.Company.Name+"/backend:rotateSecret", rotate, nil))
	require.NoError(t, own.Call(ctx, http.MethodGet, e.Company.Name+"/backend/secrets", nil, nil))
	key := object{"display_name": "k", "scopes": []string{"company.read"}}
	require.NoError(t, own.Call(ctx, http.MethodPost, e.Company.Name+"/apiKeys?request_id=9a51b0c4-6b8f-4b0c-8c77-0f8f4f2f7a11", key, nil))
	require.NoError(t, own.Call(ctx, http.MethodGet, e.Company.Name+"/conversations", nil, nil))
	refused := func(api API, method, path string, in any) {
		t.Helper()
		answer, err := api.Do(ctx, method, path, in)
		require.NoError(t, err)
		require.GreaterOrEqual(t, answer.Status, 400, path)
		require.Less(t, answer.Status, 500, "%s: %s", path, answer.Body)
	}
	stranger := e.API
	stranger.Key = "pfk_" + e.Recorder.Credential("key")
	refused(stranger, http.MethodGet, e.Company.Name, nil)
	refused(own, http.MethodGet, e.Company.Name+"?api_key="+e.Recorder.Credential("query-key"), nil)
	refused(own, http.MethodPost, e.Company.Name+"/conversations/cnv_00000000000000000000000000:postMessage",
		object{"message": object{"text": e.Recorder.Text("nowhere")}})
	refused(own, http.MethodPost, e.Company.Name+"/conversations/x:postMessage", object{"message": object{"text": 7, e.Recorder.Text("member"): 1}})
	refused(own, http.MethodPatch, e.Company.Name+"/backend", object{"url": "https://user:" + e.Recorder.Credential("password") + "@" + BackendHost + "/"})
	refused(own, http.MethodPatch, e.Company.Name+"/backend", object{"url": "https://127.0.0.1/" + e.Recorder.Credential("path")})
}

func (e Everybody) revoke(t testing.TB) {
	t.Helper()
	a := e.Agent
	for _, token := range []string{e.Recorder.Credential("token"), a.Token} {
		form := a.ClientForm(t, a.Endpoints.Token, time.Now())
		form.Set("token", token)
		answer, err := a.Form(t.Context(), a.Revocation, a.Revocation, form)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	}
	_, err := a.Open(context.WithoutCancel(t.Context()), fixture.RandomID(), e.Recorder.Text("revoked"))
	require.ErrorContains(t, err, "invalid_token")
}

// CheckForwarded fails when anything but what belongs there was sent to the outside world.
func (e Everybody) CheckForwarded(t testing.TB) {
	t.Helper()
	require.NotEmpty(t, e.Company.Backend.Received())
	for _, w := range e.Company.Backend.Received() {
		for name := range w.Header {
			require.Contains(t, []string{
				"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Traceparent", "User-Agent",
				"Webhook-Id", "Webhook-Signature", "Webhook-Timestamp",
			}, name)
		}
		e.Recorder.HidesCredentials(t, "a webhook", append([]byte(w.ID), w.Raw...))
	}
	for _, r := range e.Outside.Requests() {
		if !strings.HasPrefix(r.UserAgent(), "Poppyfield/") {
			continue // the test's own
		}
		require.Empty(t, r.Header.Values("Authorization"), r.URL)
		require.Empty(t, r.Header.Values("DPoP"), r.URL)
		require.Empty(t, r.Header.Values("Poppy-Session"), r.URL)
		require.Empty(t, r.Header.Values("Cookie"), r.URL)
	}
}
