package admin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
)

func TestAuthenticate_KeysThatAreNone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		path := "/v1/" + scope.Name()
		good := a.key(t, scope, "*")
		var bodies []string
		for _, header := range []string{
			"", "Bearer", "Bearer ", "Bearer pfk_short", "Basic " + good, good, "Bearer " + admin.NewKey(), "Bearer x" + good, "Bearer " + good + "x",
			"Bearer " + good + " " + good, "DPoP " + good,
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.http.URL+path, nil)
			require.NoError(t, err)
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			res := a.do(t, req)
			res.problem(t, 401, "UNAUTHENTICATED")
			require.Contains(t, res.header.Get("WWW-Authenticate"), "Bearer")
			bodies = append(bodies, scrubID(res.body))
			_, err = adminv1.NewCompanyServiceClient(a.conn).GetCompany(metadata.AppendToOutgoingContext(t.Context(), "authorization", header), &adminv1.GetCompanyRequest{Name: scope.Name()})
			require.Equal(t, codes.Unauthenticated, status.Code(err), header)
		}
		for _, b := range bodies {
			require.Equal(t, bodies[0], b)
		}
		require.Empty(t, a.owner.got())
		require.Equal(t, 200, a.rest(t, good, "GET", path, "").status)
	})
}

func TestAuthenticate_ExpiredAndRevokedKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		keys := adminv1.NewApiKeyServiceClient(a.conn)
		issue := func(expire *timestamppb.Timestamp) *adminv1.ApiKey {
			k, err := keys.CreateApiKey(as(t, a.operator), &adminv1.CreateApiKeyRequest{Parent: scope.Name(), ApiKey: &adminv1.ApiKey{Scopes: []string{"*"}, ExpireTime: expire}})
			require.NoError(t, err)
			return k
		}
		short := issue(timestamppb.New(a.clock.Now().Add(time.Hour)))
		gone := issue(nil)
		require.Equal(t, 200, a.rest(t, short.GetKey(), "GET", "/v1/me", "").status)
		a.clock.Advance(time.Hour)
		a.rest(t, short.GetKey(), "GET", "/v1/me", "").problem(t, 401, "UNAUTHENTICATED")

		require.Equal(t, 200, a.rest(t, gone.GetKey(), "GET", "/v1/me", "").status)
		first, err := keys.RevokeApiKey(as(t, gone.GetKey()), &adminv1.RevokeApiKeyRequest{Name: gone.GetName()})
		require.NoError(t, err)
		require.NotNil(t, first.GetRevokeTime())
		a.rest(t, gone.GetKey(), "GET", "/v1/me", "").problem(t, 401, "UNAUTHENTICATED")
		a.clock.Advance(time.Minute)
		again, err := keys.RevokeApiKey(as(t, a.operator), &adminv1.RevokeApiKeyRequest{Name: gone.GetName()})
		require.NoError(t, err)
		require.Equal(t, first.GetRevokeTime().AsTime(), again.GetRevokeTime().AsTime(), "revoking twice keeps the first time")
		_, err = keys.CreateApiKey(as(t, a.operator), &adminv1.CreateApiKeyRequest{Parent: scope.Name(), ApiKey: &adminv1.ApiKey{Scopes: []string{"*"}, ExpireTime: timestamppb.New(a.clock.Now())}})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

// Every method, with a key that holds every permission but the one.
func TestAuthorise_EveryMethodAsksForItsPermission(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	company, _ := table(t).Permissions()
	for _, m := range table(t).Methods() {
		var others []string
		for _, p := range company {
			if p != m.Permission {
				others = append(others, p)
			}
		}
		st := a.invoke(t, a.key(t, scope, others...), m, sound(m, scope.CompanyID()))
		if m.Audience == adminv1.Audience_AUDIENCE_SELF {
			require.Equal(t, codes.OK, st.Code(), m.FullName)
			continue
		}
		require.Equal(t, codes.PermissionDenied, st.Code(), m.FullName)
	}
	require.Empty(t, a.owner.got())
}

func TestAuthorise_OperatorMethodsAreForOperators(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "*")
	n := 0
	for _, m := range table(t).Methods() {
		if m.Audience != adminv1.Audience_AUDIENCE_OPERATOR {
			continue
		}
		n++
		require.Equal(t, codes.PermissionDenied, a.invoke(t, key, m, sound(m, scope.CompanyID())).Code(), m.FullName)
		require.Empty(t, a.owner.got())
	}
	require.Equal(t, 5, n)
	a.rest(t, key, "POST", "/v1/companies", `{"slug":"x"}`).problem(t, 403, "PERMISSION_DENIED")
	require.Equal(t, 200, a.rest(t, a.operator, "POST", "/v1/companies", `{"slug":"x"}`).status)
}

func TestScopes_PrefixAndStar(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "conversations.*", "domains.read")
	require.Equal(t, 200, a.rest(t, key, "GET", "/v1/"+scope.Name()+"/conversations", "").status)
	require.Equal(t, 200, a.rest(t, key, "POST", "/v1/"+scope.Name()+"/conversations/cnv_1:close", "{}").status)
	require.Equal(t, 200, a.rest(t, key, "GET", "/v1/"+scope.Name()+"/domains", "").status)
	a.rest(t, key, "POST", "/v1/"+scope.Name()+"/domains", `{"domain":"a.example"}`).problem(t, 403, "PERMISSION_DENIED")
	me := a.rest(t, key, "GET", "/v1/me", "").json(t)
	require.Equal(t, []any{"conversations.read", "conversations.write", "domains.read"}, me["permissions"])
	require.Equal(t, scope.Name(), me["company"])
	require.Equal(t, false, me["operator"])
	me = a.rest(t, a.operator, "GET", "/v1/me", "").json(t)
	require.Equal(t, true, me["operator"])
	require.Empty(t, me["company"])
	require.Contains(t, me["permissions"], "companies.create")
}

func TestCreateApiKey_GivesNoMoreThanItsCreatorHolds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		path := "/v1/" + scope.Name() + "/apiKeys"
		narrow := a.key(t, scope, "apikeys.write", "conversations.*")
		for _, body := range []string{`{"scopes":["*"]}`, `{"scopes":["domains.read"]}`, `{"scopes":["apikeys.*"]}`, `{"scopes":["conversations.read","backend.secrets"]}`} {
			res := a.rest(t, narrow, "POST", path, body)
			res.problem(t, 403, "PERMISSION_DENIED")
			require.Contains(t, res.violation(t), "api_key.scopes[")
		}
		for _, body := range []string{`{}`, `{"scopes":[]}`, `{"scopes":["conversations"]}`, `{"scopes":["companies.create"]}`, `{"scopes":["me.read"]}`, `{"scopes":[".*"]}`, `{"scopes":["nothing.*"]}`, `{"scopes":[""]}`} {
			a.rest(t, a.operator, "POST", path, body).problem(t, 400, "INVALID_REQUEST")
		}
		res := a.rest(t, narrow, "POST", path, `{"display_name":"reader","scopes":["conversations.read"],"key":"pfk_mine","prefix":"x","creator":"me"}`)
		require.Equal(t, 200, res.status, string(res.body))
		made := res.json(t)
		require.Regexp(t, `^pfk_[A-Za-z0-9_-]{43}$`, made["key"])
		require.Equal(t, made["key"].(string)[:10], made["prefix"])
		require.Regexp(t, "^"+scope.Name()+"/apiKeys/key_", made["creator"])
		// It is shown this once.
		got := a.rest(t, a.operator, "GET", "/v1/"+made["name"].(string), "").json(t)
		require.Empty(t, got["key"])
		require.Equal(t, "reader", got["display_name"])
		require.Equal(t, 200, a.rest(t, made["key"].(string), "GET", "/v1/"+scope.Name()+"/conversations", "").status)
		a.rest(t, made["key"].(string), "GET", path, "").problem(t, 403, "PERMISSION_DENIED")
	})
}

func TestListApiKeys_PagesOldestFirst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope, other := dbtest.Company(t, d), dbtest.Company(t, d)
		c := adminv1.NewApiKeyServiceClient(a.conn)
		var want []string
		for range 5 {
			k, err := c.CreateApiKey(as(t, a.operator), &adminv1.CreateApiKeyRequest{Parent: scope.Name(), ApiKey: &adminv1.ApiKey{Scopes: []string{"*"}}})
			require.NoError(t, err)
			want = append(want, k.GetName())
		}
		var got []string
		token := ""
		for {
			page, err := c.ListApiKeys(as(t, a.operator), &adminv1.ListApiKeysRequest{Parent: scope.Name(), PageSize: 2, PageToken: token})
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.GetApiKeys()), 2)
			for _, k := range page.GetApiKeys() {
				got = append(got, k.GetName())
				require.Empty(t, k.GetKey())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
			_, err = c.ListApiKeys(as(t, a.operator), &adminv1.ListApiKeysRequest{Parent: other.Name(), PageToken: token})
			require.Equal(t, codes.InvalidArgument, status.Code(err), "a token of another list")
		}
		require.Equal(t, want, got)
	})
}

func TestLastUsed_IsKeptToTheMinute(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		scope := dbtest.Company(t, d)
		key := a.key(t, scope, "*")
		used := func() string {
			list := a.rest(t, a.operator, "GET", "/v1/"+scope.Name()+"/apiKeys", "").json(t)
			s, _ := list["api_keys"].([]any)[0].(map[string]any)["last_used_time"].(string)
			return s
		}
		require.Empty(t, used())
		a.rest(t, key, "GET", "/v1/me", "")
		first := used()
		require.NotEmpty(t, first)
		a.clock.Advance(59 * time.Second)
		a.rest(t, key, "GET", "/v1/me", "")
		require.Equal(t, first, used())
		a.clock.Advance(time.Second)
		a.rest(t, key, "GET", "/v1/me", "")
		require.NotEqual(t, first, used())
	})
}

func TestRateLimit_ReadsAndWritesHaveBudgetsOfTheirOwn(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{ReadsPerMinute: 3, WritesPerMinute: 2, ChecksPerMinute: 4})
	scope := dbtest.Company(t, d)
	key, other := a.key(t, scope, "*"), a.key(t, scope, "*")
	write := func(k string) answer { return a.rest(t, k, "POST", "/v1/"+scope.Name()+":publish", "{}") }
	read := func(k string) answer { return a.rest(t, k, "GET", "/v1/"+scope.Name(), "") }
	for range 2 {
		require.Equal(t, 200, write(key).status)
	}
	res := write(key)
	p := res.problem(t, 429, "RATE_LIMITED")
	require.Equal(t, "30", res.header.Get("Retry-After"))
	require.Equal(t, "30s", p["retry_delay"])
	for range 3 {
		require.Equal(t, 200, read(key).status, "a script that writes doesn't hold up who reads")
	}
	read(key).problem(t, 429, "RATE_LIMITED")
	require.Equal(t, 200, write(other).status)
	// By gRPC the same, with RetryInfo.
	st := status.Convert(a.conn.Invoke(as(t, key), adminv1.CompanyService_GetCompany_FullMethodName, &adminv1.GetCompanyRequest{Name: scope.Name()}, &adminv1.Company{}))
	require.Equal(t, codes.ResourceExhausted, st.Code())
	var again *errdetails.RetryInfo
	for _, d := range st.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			again = r
		}
	}
	require.Equal(t, 20*time.Second, again.GetRetryDelay().AsDuration())
	// What is asked for every request of an agent holds nobody up, nor is it held up.
	check := func() answer { return a.rest(t, key, "POST", "/v1/"+scope.Name()+":introspectToken", `{"token":"x"}`) }
	for range 4 {
		require.NotEqual(t, 429, check().status)
	}
	check().problem(t, 429, "RATE_LIMITED")
	a.clock.Advance(30 * time.Second)
	require.Equal(t, 200, write(key).status)
}

// CO-05: what counts is the peer's address, not what it says in X-Forwarded-For.
func TestCO05_GuessersAreLimitedByTheirAddress(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{FailuresPerMinute: 5})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "*")
	require.Equal(t, 200, a.rest(t, key, "GET", "/v1/me", "").status)
	guess := func(from string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.http.URL+"/v1/me", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+admin.NewKey())
		req.Header.Set("X-Forwarded-For", from)
		return a.do(t, req)
	}
	for i := range 4 { // one went for the key that is good
		guess("192.0.2."+string(rune('1'+i))).problem(t, 401, "UNAUTHENTICATED")
	}
	res := guess("192.0.2.99")
	res.problem(t, 429, "RATE_LIMITED")
	require.NotEmpty(t, res.header.Get("Retry-After"))
	_, err := adminv1.NewApiKeyServiceClient(a.conn).GetMe(as(t, admin.NewKey()), &adminv1.GetMeRequest{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "the same address by gRPC")
	require.Equal(t, 200, a.rest(t, key, "GET", "/v1/me", "").status, "who has a key isn't held up by guessers")
}

func TestLogs_HoldNoKeys(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	res := a.rest(t, a.operator, "POST", "/v1/"+scope.Name()+"/apiKeys", `{"scopes":["*"]}`)
	key := res.json(t)["key"].(string)
	unknown := admin.NewKey()
	a.owner.script(failing)
	for _, k := range []string{key, unknown, a.operator} {
		a.rest(t, k, "GET", "/v1/"+scope.Name(), "")
		a.rest(t, k, "POST", "/v1/"+scope.Name()+":publish", `{"broken`)
		_, _ = adminv1.NewCompanyServiceClient(a.conn).GetCompany(as(t, k), &adminv1.GetCompanyRequest{Name: scope.Name()})
	}
	require.NoError(t, d.Close()) // and now everything fails
	for _, k := range []string{key, unknown, a.operator} {
		a.rest(t, k, "GET", "/v1/"+scope.Name(), "")
	}
	log := a.log.String()
	require.Contains(t, log, "call failed")
	for _, k := range []string{key, unknown, a.operator} {
		require.NotContains(t, log, k)
		require.NotContains(t, log, k[4:])
	}
}

func TestGRPC_HealthAndReflectionNeedNoKey(t *testing.T) {
	a := start(t, dbtest.SQLite(t), admin.Config{})
	requireHealthy(t, a.conn, "")
	requireHealthy(t, a.conn, "poppyfield.admin.v1.DomainService")
	require.Contains(t, reflected(t, a.conn), "poppyfield.admin.v1.ConversationService")
	err := a.conn.Invoke(as(t, a.operator), "/poppyfield.admin.v1.DomainService/Nothing", &adminv1.GetMeRequest{}, &adminv1.Me{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	err = a.conn.Invoke(as(t, a.operator), "/poppyfield.relay.v1.EgressService/Fetch", &adminv1.GetMeRequest{}, &adminv1.Me{})
	require.Equal(t, codes.Unimplemented, status.Code(err), "internal services aren't there")
}

// Metadata of internal calls has no meaning from outside.
func TestGRPC_InternalMetadataIsIgnored(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	mine, theirs := dbtest.Company(t, d), dbtest.Company(t, d)
	ctx := metadata.AppendToOutgoingContext(as(t, a.key(t, mine, "*")), "x-poppyfield-company", theirs.CompanyID(), "x-poppyfield-actor", "operatorKeys/x",
		"x-poppyfield-secret", secret, "x-poppyfield-caller", "admin", "x-request-id", "req_mine")
	var header metadata.MD
	_, err := adminv1.NewCompanyServiceClient(a.conn).GetCompany(ctx, &adminv1.GetCompanyRequest{Name: mine.Name()}, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, mine.CompanyID(), a.owner.got()[0].company)
	require.Regexp(t, "^"+mine.Name()+"/apiKeys/", a.owner.got()[0].actor)
	require.Len(t, header.Get("x-request-id"), 1)
	require.NotEqual(t, "req_mine", header.Get("x-request-id")[0])
}

func TestBootstrap_Keys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		k := admin.NewKey()
		for range 2 {
			require.NoError(t, admin.EnsureOperatorKey(t.Context(), d, "dev", k))
		}
		require.Equal(t, 200, a.rest(t, k, "GET", "/v1/companies", "").status)
		require.Error(t, admin.EnsureOperatorKey(t.Context(), d, "dev", "pfk_guessable"))
		_, err := admin.CreateOperatorKey(t.Context(), d, "late", a.clock.Now().Add(-time.Minute))
		require.Error(t, err)
		short, err := admin.CreateOperatorKey(t.Context(), d, "short", a.clock.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, 200, a.rest(t, short, "GET", "/v1/companies", "").status)
		a.clock.Advance(time.Hour)
		a.rest(t, short, "GET", "/v1/companies", "").problem(t, 401, "UNAUTHENTICATED")
	})
}
