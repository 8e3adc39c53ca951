package admin_test

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// visitor is the Session of the requests that verdicts let through.
func visitor() *adminv1.AgentSession {
	return &adminv1.AgentSession{
		Session: "companies/c/sessions/s", ClientId: "https://agent.example/agent.json", AgentName: "Zoë’s agent", User: "u 100%",
		SignedIn: true, Account: "a\r\nb", Scopes: []string{"poppy:read", "poppy:write"}, ExpireTime: timestamppb.New(time.Unix(2000, 0)),
	}
}

// judges lets the owner answer every VerifyRequest with a verdict.
func judges(a *api, verdict *adminv1.VerifyRequestResponse) {
	a.owner.script(func(context.Context, *method.Method, proto.Message) (proto.Message, error) { return verdict, nil })
}

func served() *adminv1.VerifyRequestResponse {
	return &adminv1.VerifyRequestResponse{
		Allowed: true, Session: visitor(), Headers: []*adminv1.HeaderField{{Name: "DPoP-Nonce", Value: "n1"}}, Api: "https://example.com/openapi.json",
	}
}

func limited() *adminv1.VerifyRequestResponse {
	return &adminv1.VerifyRequestResponse{
		Status: 429, Reason: "rate_limited", Body: `{"error":"rate_limited"}`, Session: visitor(),
		Headers: []*adminv1.HeaderField{{Name: "Retry-After", Value: "7"}, {Name: "Cache-Control", Value: "no-store"}},
	}
}

// last is the question that the owner got last.
func last(t testing.TB, a *api) (call, *adminv1.VerifyRequestRequest) {
	t.Helper()
	calls := a.owner.got()
	require.NotEmpty(t, calls)
	c := calls[len(calls)-1]
	q, ok := c.req.(*adminv1.VerifyRequestRequest)
	require.True(t, ok, "%T", c.req)
	return c, q
}

func values(q *adminv1.VerifyRequestRequest, name string) []string {
	var out []string
	for _, h := range q.GetHeaders() {
		if h.GetName() == name {
			out = append(out, h.GetValue())
		}
	}
	return out
}

func checkRequest(change func(*authv3.AttributeContext_HttpRequest)) *authv3.CheckRequest {
	h := &authv3.AttributeContext_HttpRequest{
		Method: "GET", Scheme: "https", Host: "api.example.com", Path: "/orders?x=1",
		Headers: map[string]string{"authorization": "DPoP t", "dpop": "p", "cookie": "a=b"},
	}
	if change != nil {
		change(h)
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: h}}}
}

func options(list []*corev3.HeaderValueOption) map[string]string {
	out := map[string]string{}
	for _, o := range list {
		if o.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			out[o.GetHeader().GetKey()] = o.GetHeader().GetValue()
		}
	}
	return out
}

func TestEnvoy_TellsTheAPIWhoIsAskingAndNothingThatTheAgentSays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "access.verify")
		judges(a, served())
		got, err := authv3.NewAuthorizationClient(a.conn).Check(as(t, key), checkRequest(func(h *authv3.AttributeContext_HttpRequest) {
			h.Headers["x-poppy-user"], h.Headers["x-poppy-admin"], h.Headers["x_poppy_account"], h.Headers["X-Poppy-Other"] = "root", "1", "root", "1"
		}))
		require.NoError(t, err)
		require.Equal(t, int32(codes.OK), got.GetStatus().GetCode())
		require.Equal(t, map[string]string{
			"x-poppy-session": "companies/c/sessions/s", "x-poppy-client-id": "https://agent.example/agent.json", "x-poppy-user": "u%20100%25",
			"x-poppy-account": "a%0D%0Ab", "x-poppy-scope": "poppy:read poppy:write", "x-poppy-signed-in": "true", "x-poppy-agent-name": "Zo%C3%AB%E2%80%99s%20agent",
		}, options(got.GetOkResponse().GetHeaders()))
		require.Equal(t, []string{"x-poppy-admin", "x-poppy-other", "x_poppy_account"}, got.GetOkResponse().GetHeadersToRemove())
		require.Equal(t, map[string]string{"dpop-nonce": "n1"}, options(got.GetOkResponse().GetResponseHeadersToAdd()))
		c, q := last(t, a)
		require.Equal(t, []string{scope.CompanyID(), scope.Name(), "GET", "https://api.example.com/orders?x=1"}, []string{c.company, q.GetParent(), q.GetMethod(), q.GetUrl()})
		require.Equal(t, [][]string{{"DPoP t"}, {"p"}, nil}, [][]string{values(q, "Authorization"), values(q, "DPoP"), values(q, "cookie")})

		// Of a User who is signed out there is no account, and none that the agent sends.
		judges(a, &adminv1.VerifyRequestResponse{Allowed: true, Session: &adminv1.AgentSession{Session: "s", ClientId: "c", User: "u"}})
		got, err = authv3.NewAuthorizationClient(a.conn).Check(as(t, key), checkRequest(nil))
		require.NoError(t, err)
		require.Equal(t, []string{"x-poppy-account", "x-poppy-agent-name", "x-poppy-scope"}, got.GetOkResponse().GetHeadersToRemove())
		require.Equal(t, "false", options(got.GetOkResponse().GetHeaders())["x-poppy-signed-in"])
	})
}

func TestEnvoy_RefusesWithExactlyTheAnswer(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	key := a.key(t, dbtest.Company(t, d), "access.verify")
	judges(a, limited())
	got, err := authv3.NewAuthorizationClient(a.conn).Check(as(t, key), checkRequest(nil))
	require.NoError(t, err)
	require.NotEqual(t, int32(codes.OK), got.GetStatus().GetCode())
	no := got.GetDeniedResponse()
	require.EqualValues(t, 429, no.GetStatus().GetCode())
	require.JSONEq(t, `{"error":"rate_limited"}`, no.GetBody())
	require.Equal(t, map[string]string{"retry-after": "7", "cache-control": "no-store", "content-type": "application/json"}, options(no.GetHeaders()))
}

func TestEnvoy_EveryValueOfAHeaderIsJudged(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	key := a.key(t, dbtest.Company(t, d), "access.verify")
	judges(a, served())
	raw := func(pairs ...string) *corev3.HeaderMap {
		m := &corev3.HeaderMap{}
		for i := 0; i < len(pairs); i += 2 {
			m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
		}
		return m
	}
	for name, c := range map[string]struct {
		change func(*authv3.AttributeContext_HttpRequest)
		auth   []string
		dpop   []string
	}{
		"raw": {func(h *authv3.AttributeContext_HttpRequest) {
			h.Headers, h.HeaderMap = nil, raw("authorization", "DPoP t", "dpop", "p1", "dpop", "p2")
		}, []string{"DPoP t"}, []string{"p1", "p2"}},
		"one in each form": {func(h *authv3.AttributeContext_HttpRequest) {
			h.HeaderMap = raw("DPoP", "p2", "authorization", "Bearer u")
		}, []string{"Bearer u", "DPoP t"}, []string{"p", "p2"}},
		"joined":        {func(h *authv3.AttributeContext_HttpRequest) { h.Headers["dpop"] = "p1,p2" }, []string{"DPoP t"}, []string{"p1,p2"}},
		"two spellings": {func(h *authv3.AttributeContext_HttpRequest) { h.Headers["DPoP"] = "p2" }, []string{"DPoP t"}, []string{"p", "p2"}},
		"no text": {func(h *authv3.AttributeContext_HttpRequest) {
			h.Headers, h.HeaderMap = nil, raw("authorization", "DPoP \xff", "dpop", "p")
		}, []string{"DPoP \uFFFD"}, []string{"p"}},
	} {
		_, err := authv3.NewAuthorizationClient(a.conn).Check(as(t, key), checkRequest(c.change))
		require.NoError(t, err, name)
		_, q := last(t, a)
		require.Equal(t, c.auth, slices.Sorted(slices.Values(values(q, "Authorization"))), name)
		require.Equal(t, c.dpop, slices.Sorted(slices.Values(values(q, "DPoP"))), name)
	}
}

// A request that can't be judged is the agent's fault. What is wrong with the gateway or with us is an error.
func TestEnvoy_ErrorsAreNotAnswers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope, other := dbtest.Company(t, d), dbtest.Company(t, d)
		key := a.key(t, scope, "access.verify")
		judges(a, served())
		client := authv3.NewAuthorizationClient(a.conn)
		with := func(key string, companies ...string) context.Context {
			return metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": {"Bearer " + key}, "poppyfield-company": companies})
		}
		for name, c := range map[string]struct {
			ctx  context.Context
			want codes.Code
		}{
			"no key":                          {t.Context(), codes.Unauthenticated},
			"an unknown key":                  {with(admin.NewKey()), codes.Unauthenticated},
			"two keys":                        {metadata.AppendToOutgoingContext(with(key), "authorization", "Bearer "+key), codes.Unauthenticated},
			"a key without permission":        {with(a.key(t, scope, "conversations.read")), codes.PermissionDenied},
			"another Company's":               {with(key, other.Name()), codes.NotFound},
			"an operator's without a Company": {with(a.operator), codes.InvalidArgument},
			"with two":                        {with(a.operator, scope.Name(), other.Name()), codes.InvalidArgument},
			"with none that there is":         {with(a.operator, "companies/cmp_00000000000000000000000000"), codes.NotFound},
		} {
			before := len(a.owner.got())
			got, err := client.Check(c.ctx, checkRequest(nil))
			require.Equal(t, c.want, status.Code(err), name)
			require.Nil(t, got, name)
			require.Len(t, a.owner.got(), before, name)
		}
		for name, ctx := range map[string]context.Context{
			"by its name": with(key, scope.Name()), "by its id": with(key, scope.CompanyID()), "an operator's": with(a.operator, scope.CompanyID()),
		} {
			got, err := client.Check(ctx, checkRequest(nil))
			require.NoError(t, err, name)
			require.NotNil(t, got.GetOkResponse(), name)
			c, _ := last(t, a)
			require.Equal(t, scope.CompanyID(), c.company, name)
		}
		for name, change := range map[string]func(*authv3.AttributeContext_HttpRequest){
			"no host":              func(h *authv3.AttributeContext_HttpRequest) { h.Host = "" },
			"a path in the host":   func(h *authv3.AttributeContext_HttpRequest) { h.Host = "api.example.com/open" },
			"a query in the host":  func(h *authv3.AttributeContext_HttpRequest) { h.Host = "api.example.com?" },
			"a user in the host":   func(h *authv3.AttributeContext_HttpRequest) { h.Host = "x@api.example.com" },
			"the server as a path": func(h *authv3.AttributeContext_HttpRequest) { h.Path = "*" },
			"a path without slash": func(h *authv3.AttributeContext_HttpRequest) { h.Path = ".evil.example/" },
			"a long path":          func(h *authv3.AttributeContext_HttpRequest) { h.Path = "/" + strings.Repeat("a", 9000) },
			"a long method":        func(h *authv3.AttributeContext_HttpRequest) { h.Method = strings.Repeat("A", 21) },
			"nothing":              func(h *authv3.AttributeContext_HttpRequest) { proto.Reset(h) },
		} {
			before := len(a.owner.got())
			got, err := client.Check(with(key), checkRequest(change))
			require.NoError(t, err, name)
			require.EqualValues(t, 400, got.GetDeniedResponse().GetStatus().GetCode(), name)
			require.Contains(t, got.GetDeniedResponse().GetBody(), `"error":"invalid_request"`, name)
			require.Len(t, a.owner.got(), before, name)
		}
		a.owner.script(failing)
		_, err := client.Check(with(key), checkRequest(nil))
		require.Equal(t, codes.Internal, status.Code(err))
	})
}

// forward asks as a gateway does with header fields; an empty value takes a field away.
func (a *api) forward(t testing.TB, company string, fields map[string][]string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.http.URL+"/v1/companies/"+company+"/forwardAuth", nil)
	require.NoError(t, err)
	for name, v := range fields {
		req.Header[http.CanonicalHeaderKey(name)] = v
	}
	return a.do(t, req)
}

func traefik(key string) map[string][]string {
	return map[string][]string{
		"Poppyfield-Key": {key}, "X-Forwarded-Method": {"POST"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"api.example.com"}, "X-Forwarded-Uri": {"/orders?x=1"},
		"Authorization": {"DPoP t"}, "DPoP": {"p"},
	}
}

func nginx(key string) map[string][]string {
	return map[string][]string{
		"Poppyfield-Key": {key}, "X-Original-Method": {"POST"}, "X-Original-URL": {"https://api.example.com/orders?x=1"}, "Authorization": {"DPoP t"}, "DPoP": {"p"},
	}
}

func change(fields map[string][]string, name string, v ...string) map[string][]string {
	out := maps.Clone(fields)
	out[name] = v
	return out
}

func TestForwardAuth_AsksOnceForBothFamilies(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "access.verify")
		for _, fields := range []map[string][]string{traefik(key), nginx(key)} {
			judges(a, served())
			got := a.forward(t, scope.CompanyID(), fields)
			require.Equal(t, http.StatusOK, got.status, string(got.body))
			require.Empty(t, got.body)
			require.Equal(t, "no-store", got.header.Get("Cache-Control"))
			require.Equal(t, []string{"companies/c/sessions/s", "true", "a%0D%0Ab", "n1"},
				[]string{got.header.Get("X-Poppy-Session"), got.header.Get("X-Poppy-Signed-In"), got.header.Get("X-Poppy-Account"), got.header.Get("DPoP-Nonce")})
			c, q := last(t, a)
			require.Equal(t, []string{scope.CompanyID(), "POST", "https://api.example.com/orders?x=1"}, []string{c.company, q.GetMethod(), q.GetUrl()})
			require.Equal(t, [][]string{{"DPoP t"}, {"p"}}, [][]string{values(q, "Authorization"), values(q, "DPoP")})
			require.True(t, strings.HasPrefix(c.actor, scope.Name()+"/apiKeys/"), c.actor)

			// A value that isn't there is an empty field, which takes the place of the agent's own.
			judges(a, &adminv1.VerifyRequestResponse{Allowed: true, Session: &adminv1.AgentSession{Session: "s"}})
			got = a.forward(t, scope.CompanyID(), fields)
			for _, name := range []string{"Client-Id", "User", "Account", "Scope", "Agent-Name"} {
				require.Equal(t, []string{""}, got.header.Values("X-Poppy-"+name), name)
			}
			a.forward(t, scope.CompanyID(), change(fields, "DPoP", "p1", "p2"))
			_, q = last(t, a)
			require.Equal(t, []string{"p1", "p2"}, values(q, "DPoP"))
		}
	})
}

func TestForwardAuth_RefusesAsTheGatewayCanPassItOn(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "access.verify")
	judges(a, limited())
	got := a.forward(t, scope.CompanyID(), traefik(key))
	require.Equal(t, []any{429, "7", "application/json", `{"error":"rate_limited"}`, ""},
		[]any{got.status, got.header.Get("Retry-After"), got.header.Get("Content-Type"), string(got.body), got.header.Get("X-Poppy-Session")})
	got = a.forward(t, scope.CompanyID(), nginx(key))
	require.Equal(t, []any{403, "429", "7", `{"error":"rate_limited"}`, ""},
		[]any{got.status, got.header.Get("X-Poppy-Status"), got.header.Get("Retry-After"), got.header.Get("X-Poppy-Body"), got.header.Get("X-Poppy-Session")})
	judges(a, &adminv1.VerifyRequestResponse{Status: 401, Body: "{}", Headers: []*adminv1.HeaderField{{Name: "Www-Authenticate", Value: "DPoP"}}})
	got = a.forward(t, scope.CompanyID(), nginx(key))
	require.Equal(t, []any{401, "401", "DPoP"}, []any{got.status, got.header.Get("X-Poppy-Status"), got.header.Get("WWW-Authenticate")})
}

func TestForwardAuth_OneFamilyOfFieldsAndEachOnce(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "access.verify")
	judges(a, served())
	both := traefik(key)
	maps.Copy(both, nginx(key))
	asked := func(fields map[string][]string) (answer, bool) {
		before := len(a.owner.got())
		got := a.forward(t, scope.CompanyID(), fields)
		return got, len(a.owner.got()) > before
	}
	for name, fields := range map[string]map[string][]string{
		"both": both, "none": {"Poppyfield-Key": {key}, "Authorization": {"DPoP t"}},
		"two hosts": change(traefik(key), "X-Forwarded-Host", "api.example.com", "evil.example"), "no method": change(traefik(key), "X-Forwarded-Method"),
		"two methods": change(nginx(key), "X-Original-Method", "GET", "POST"), "two URLs": change(nginx(key), "X-Original-URL", "https://a.example/", "https://b.example/"),
		"a path of no slash": change(traefik(key), "X-Forwarded-Uri", ".evil.example/"), "a path in the host": change(traefik(key), "X-Forwarded-Host", "api.example.com/open?"),
	} {
		got, was := asked(fields)
		require.Equal(t, http.StatusBadRequest, got.status, name)
		require.Equal(t, "invalid_request", got.json(t)["error"], name)
		require.False(t, was, name)
	}
	// A host that ends in a query hides the path from whoever takes the URL apart.
	for _, url := range []string{"https://api.example.com?/orders", "https://api.example.com#/orders", "https://api.example.com", "/orders", "https:///orders", "https://x@api.example.com/"} {
		got, was := asked(change(nginx(key), "X-Original-URL", url))
		require.Equal(t, []any{403, "400", false}, []any{got.status, got.header.Get("X-Poppy-Status"), was}, url)
	}
	// A part of the other family is what proxies in front leave behind.
	got, was := asked(change(nginx(key), "X-Forwarded-Host", "other.example"))
	require.Equal(t, []any{200, true}, []any{got.status, was})
}

func TestForwardAuth_AFaultOfTheGatewayIsNoneOfTheAgents(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{ChecksPerMinute: 50})
		scope, other := dbtest.Company(t, d), dbtest.Company(t, d)
		key := a.key(t, scope, "access.verify")
		judges(a, served())
		for name, c := range map[string]struct {
			fields  map[string][]string
			company string
			reason  problem.Reason
		}{
			"no key":            {change(traefik(key), "Poppyfield-Key"), scope.CompanyID(), problem.Unauthenticated401},
			"two keys":          {change(traefik(key), "Poppyfield-Key", key, key), scope.CompanyID(), problem.Unauthenticated401},
			"the agent's field": {change(change(traefik(key), "Poppyfield-Key"), "Authorization", "Bearer "+key), scope.CompanyID(), problem.Unauthenticated401},
			"an unknown key":    {traefik(admin.NewKey()), scope.CompanyID(), problem.Unauthenticated401},
			"another Company's": {traefik(a.key(t, other, "*")), scope.CompanyID(), problem.NotFoundReason},
			"no permission":     {traefik(a.key(t, scope, "conversations.read")), scope.CompanyID(), problem.PermissionDenied},
			"no such Company":   {traefik(a.operator), "cmp_00000000000000000000000000", problem.NotFoundReason},
		} {
			got := a.forward(t, c.company, c.fields)
			require.Equal(t, []any{500, string(c.reason), "server_error", ""},
				[]any{got.status, got.header.Get("Poppyfield-Error"), got.json(t)["error"], got.header.Get("WWW-Authenticate")}, name)
		}
		require.Empty(t, a.owner.got())
		require.NotContains(t, a.log.String(), key)
		for range 50 {
			require.Equal(t, http.StatusOK, a.forward(t, scope.CompanyID(), traefik(key)).status)
		}
		got := a.forward(t, scope.CompanyID(), traefik(key))
		require.Equal(t, []any{503, "temporarily_unavailable", "RATE_LIMITED"}, []any{got.status, got.json(t)["error"], got.header.Get("Poppyfield-Error")})
		require.NotEmpty(t, got.header.Get("Retry-After"))
		require.Equal(t, http.StatusOK, a.rest(t, key, "GET", "/v1/me", "").status, "the budget is that of checks")
		a.owner.script(failing)
		require.Equal(t, 500, a.forward(t, scope.CompanyID(), traefik(a.operator)).status)
	})
}

func TestForwardAuth_AnyMethod(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "access.verify")
	judges(a, served())
	for _, verb := range []string{"GET", "POST", "OPTIONS", "PROPFIND"} {
		req, err := http.NewRequestWithContext(t.Context(), verb, a.http.URL+"/v1/"+scope.Name()+"/forwardAuth", strings.NewReader("ignored"))
		require.NoError(t, err)
		req.Header = traefik(key)
		req.Header["Dpop"] = req.Header["DPoP"]
		require.Equal(t, http.StatusOK, a.do(t, req).status, verb)
	}
}

// introspect asks with the form and the value of Authorization.
func (a *api) introspect(t testing.TB, company, authorization string, form url.Values) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.http.URL+"/v1/companies/"+company+"/introspect", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	return a.do(t, req)
}

func basic(user, key string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(user)+":"+strings.ReplaceAll(key, "_", "%5F")))
}

func TestIntrospect_SaysInRFC7662sNames(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope, other := dbtest.Company(t, d), dbtest.Company(t, d)
		key := a.key(t, scope, "access.verify")
		answer := &adminv1.IntrospectTokenResponse{
			Active: true, Session: visitor(), TokenType: "DPoP", Jkt: "thumb", Resource: "https://own.example.com/", Issuer: "https://shop.example", IssueTime: timestamppb.New(time.Unix(1000, 0)),
		}
		a.owner.script(func(context.Context, *method.Method, proto.Message) (proto.Message, error) { return answer, nil })
		me := a.rest(t, key, "GET", "/v1/me", "").json(t)
		name, ok := me["name"].(string)
		require.True(t, ok, me)
		form := url.Values{"token": {"pst_x"}, "token_type_hint": {"access_token"}}
		for _, authorization := range []string{
			"Bearer " + key, basic(scope.CompanyID(), key), basic(scope.Name(), key), basic(name, key), basic(name[strings.LastIndexByte(name, '/')+1:], key),
		} {
			got := a.introspect(t, scope.CompanyID(), authorization, form)
			require.Equal(t, []any{200, "application/json", "no-store"}, []any{got.status, got.header.Get("Content-Type"), got.header.Get("Cache-Control")}, string(got.body))
			require.JSONEq(t, `{"active":true,"scope":"poppy:read poppy:write","client_id":"https://agent.example/agent.json","username":"a\r\nb","token_type":"DPoP",
				"exp":2000,"iat":1000,"sub":"a\r\nb","aud":"https://own.example.com/","iss":"https://shop.example","cnf":{"jkt":"thumb"}}`, string(got.body))
		}
		c := a.owner.got()[len(a.owner.got())-1]
		q, ok := c.req.(*adminv1.IntrospectTokenRequest)
		require.True(t, ok)
		require.Equal(t, []string{scope.Name(), "pst_x", scope.CompanyID()}, []string{q.GetParent(), q.GetToken(), c.company})

		answer = &adminv1.IntrospectTokenResponse{Active: true, Session: &adminv1.AgentSession{ClientId: "c", User: "acc-1"}, TokenType: "Bearer"}
		require.JSONEq(t, `{"active":true,"client_id":"c","token_type":"Bearer"}`, string(a.introspect(t, scope.CompanyID(), "Bearer "+key, form).body), "a User ID is no account")
		answer = &adminv1.IntrospectTokenResponse{}
		require.Equal(t, `{"active":false}`, string(a.introspect(t, scope.CompanyID(), "Bearer "+key, form).body))

		before := len(a.owner.got())
		for name, authorization := range map[string]string{
			"no key": "", "an unknown key": "Bearer " + admin.NewKey(), "another user": basic("somebody", key), "no user": basic("", key), "broken": "Basic x",
			"the wrong password": basic(scope.CompanyID(), admin.NewKey()), "DPoP": "DPoP " + key,
		} {
			got := a.introspect(t, scope.CompanyID(), authorization, form)
			require.Equal(t, []any{401, "invalid_client"}, []any{got.status, got.json(t)["error"]}, name)
			require.Contains(t, got.header.Values("WWW-Authenticate"), `Basic realm="poppyfield"`, name)
		}
		require.Equal(t, http.StatusNotFound, a.introspect(t, scope.CompanyID(), "Bearer "+a.key(t, other, "*"), form).status)
		require.Equal(t, http.StatusForbidden, a.introspect(t, scope.CompanyID(), "Bearer "+a.key(t, scope, "conversations.read"), form).status)
		for name, bad := range map[string]url.Values{"no token": {}, "two tokens": {"token": {"a", "b"}}, "an empty one": {"token": {""}}, "a long one": {"token": {strings.Repeat("a", 5000)}}} {
			got := a.introspect(t, scope.CompanyID(), "Bearer "+key, bad)
			require.Equal(t, []any{400, "invalid_request"}, []any{got.status, got.json(t)["error"]}, name)
		}
		require.Len(t, a.owner.got(), before)
		require.Equal(t, http.StatusBadRequest, a.rest(t, key, "POST", "/v1/"+scope.Name()+"/introspect", `{"token":"x"}`).status, "a form")
		require.Equal(t, http.StatusBadRequest, a.rest(t, key, "POST", "/v1/"+scope.Name()+"/introspect?token=x", "").status, "not in the URL")
		got := a.rest(t, key, "GET", "/v1/"+scope.Name()+"/introspect", "")
		require.Equal(t, []any{405, "POST"}, []any{got.status, got.header.Get("Allow")})
	})
}

// What the table says is also there is served, under the rule of its method.
func TestDoors_AreInTheTable(t *testing.T) {
	tab := table(t)
	require.Equal(t, []string{"/envoy.service.auth.v3.Authorization/Check", "/v1/companies/*/forwardAuth", "/v1/companies/*/introspect"}, tab.Doors())
	for _, door := range tab.Doors() {
		m := tab.ByDoor(door)
		require.Equal(t, []any{"access.verify", true, false}, []any{m.Permission, m.Checks, m.Mutates}, door)
	}
	for _, path := range []string{"/v1/companies//introspect", "/v1/companies/c/other", "/v1/companies/c/introspect/", "/v1/companies/c/d/introspect", "/v1/introspect"} {
		_, _, ok := tab.FindDoor(path)
		require.False(t, ok, path)
	}
	a := start(t, dbtest.SQLite(t), admin.Config{})
	require.Contains(t, reflected(t, a.conn), "envoy.service.auth.v3.Authorization")
}
