package admin_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// rig is a service with one Company and a key that may do everything in it.
func rig(t *testing.T) (*api, tenancy.Scope, string) {
	t.Helper()
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	scope := dbtest.Company(t, d)
	return a, scope, a.key(t, scope, "*")
}

func TestCO04_NULIsRefusedByRESTAndGRPC(t *testing.T) {
	a, scope, key := rig(t)
	for _, c := range []struct{ verb, path, body string }{
		{"PATCH", "/discoverySettings", `{"organization_name":"a\u0000b"}`},
		{"POST", "/domains", `{"domain":"a\u0000.example"}`},
		{"POST", "/conversations/cnv_1:postMessage", `{"message":{"text":"x\u0000"}}`},
		{"GET", "/domains?page_token=%00", ""},
		{"GET", "/conversations?filter=%00", ""},
		{"GET", "/domains/d%00", ""},
	} {
		a.rest(t, key, c.verb, "/v1/"+scope.Name()+c.path, c.body).problem(t, 400, "INVALID_REQUEST")
	}
	_, err := adminv1.NewDomainServiceClient(a.conn).CreateDomain(as(t, key), &adminv1.CreateDomainRequest{
		Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a\x00.example"},
	})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, "domain.domain", violationOf(t, err))
	require.Empty(t, a.owner.got())
}

func TestGW01_UnknownFieldsAreRefusedAndNamed(t *testing.T) {
	a, scope, key := rig(t)
	for _, c := range []struct{ verb, path, body, field string }{
		{"PATCH", "/discoverySettings", `{"domans":[]}`, "discovery_settings.domans"},
		{"PATCH", "/discoverySettings", `{"apis":[{"type":"mcp","url":"https://a.example"},{"typ":"mcp"}]}`, "discovery_settings.apis[1].typ"},
		{"PATCH", "/discoverySettings", `{"extensions":{"x":{"versoin":"1"}}}`, `discovery_settings.extensions["x"].versoin`},
		{"POST", "/domains", `{"domain":"a.example","future":1}`, "domain.future"},
		{"POST", ":publish", `{"validate_onyl":true}`, "validate_onyl"},
		{"POST", "/conversations/cnv_1:postMessage", `{"message":{"text":"x","sendr":"agent"}}`, "message.sendr"},
		{"GET", "/domains?page_sice=3", "", "page_sice"},
		{"GET", "/domains?parent=companies/x", "", "parent"},
		{"POST", "/domains?domain.state=1", `{"domain":"a.example"}`, "domain.state"},
		{"POST", ":publish?validate_only=true", `{}`, "validate_only"},
		{"DELETE", "/domains/dom_1?force=true", "", "force"},
	} {
		res := a.rest(t, key, c.verb, "/v1/"+scope.Name()+c.path, c.body)
		res.problem(t, 400, "INVALID_REQUEST")
		require.Equal(t, c.field, res.violation(t), "%s %s", c.path, c.body)
	}
	require.Empty(t, a.owner.got())

	// The same by gRPC, where an unknown field is one with an unknown number.
	req := &adminv1.CreateDomainRequest{Parent: scope.Name(), Domain: &adminv1.Domain{Domain: "a.example"}}
	req.Domain.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 777, protowire.VarintType), 1))
	_, err := adminv1.NewDomainServiceClient(a.conn).CreateDomain(as(t, key), req)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, "domain.#777", violationOf(t, err))
	require.Empty(t, a.owner.got())
}

func violationOf(t *testing.T, err error) string {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if br, ok := d.(*errdetails.BadRequest); ok {
			return br.GetFieldViolations()[0].GetField()
		}
	}
	require.FailNow(t, "no violation")
	return ""
}

func TestGW02_AnswersHaveEveryFieldInSnakeCase(t *testing.T) {
	a, scope, key := rig(t)
	a.owner.script(func(_ context.Context, m *method.Method, _ proto.Message) (proto.Message, error) {
		switch m.Desc.Name() {
		case "ListConversationEvents":
			return &adminv1.ListConversationEventsResponse{}, nil
		case "GetConversation":
			return &adminv1.Conversation{Name: scope.Name() + "/conversations/cnv_1", Status: "working", CreateTime: timestamppb.New(time.Unix(1767323045, 120_000_000))}, nil
		case "ListConversations":
			return &adminv1.ListConversationsResponse{Count: &adminv1.Count{}}, nil
		default:
			return &adminv1.Domain{State: adminv1.DomainState_DOMAIN_STATE_PENDING}, nil
		}
	})
	get := func(path string) map[string]any {
		res := a.rest(t, key, "GET", "/v1/"+scope.Name()+path, "")
		require.Equal(t, 200, res.status, string(res.body))
		require.Equal(t, "application/json", res.header.Get("Content-Type"))
		require.Equal(t, "no-store", res.header.Get("Cache-Control"))
		require.NotEmpty(t, res.header.Get("X-Request-Id"))
		for name := range res.header {
			require.NotContains(t, name, "Grpc-")
		}
		return res.json(t)
	}
	events := get("/conversations/cnv_1/events")
	require.Equal(t, []any{}, events["events"])
	require.Empty(t, events["next_page_token"])
	require.Contains(t, events, "next_page_token")
	c := get("/conversations/cnv_1")
	require.Equal(t, "working", c["status"])
	require.Equal(t, []any{}, c["viewer_actions"])
	require.Equal(t, "2026-01-02T03:04:05.120Z", c["create_time"])
	require.Nil(t, c["answer_due_time"])
	require.Contains(t, c, "closed_by")
	list := get("/conversations")
	require.Equal(t, map[string]any{"value": "0", "exact": false}, list["count"], "int64 is a string, false is there")
	require.Equal(t, "DOMAIN_STATE_PENDING", get("/domains/dom_1")["state"])
}

// goText is what Go, gRPC or a driver would say.
var goText = []string{"proto:", "strconv", "json:", "grpc", "rpc error", "goroutine", "runtime", "invalid character", "unmarshal", "sql", "pq:", "EOF", "context deadline", "0x"}

func TestGW05_ErrorsSayNothingOfTheirMakers(t *testing.T) {
	a, scope, key := rig(t)
	in := "/v1/" + scope.Name()
	for _, c := range []struct {
		verb, path, body string
		status           int
		reason           string
	}{
		{"GET", in + "/domains?page_size=abc", "", 400, "INVALID_REQUEST"},
		{"GET", in + "/domains?page_size=99999999999", "", 400, "INVALID_REQUEST"},
		{"GET", in + "/domains?page_size=1&page_size=2", "", 400, "INVALID_REQUEST"},
		{"GET", in + "/domains?page_size=-1", "", 400, "INVALID_REQUEST"},
		{"GET", in + "/domains?%zz=1", "", 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `not json`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `[]`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `null`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `"x"`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":5}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":{"domain":"a.example"}}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"a.example"}{"x":1}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"a.example","domain":"b.example"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"a.example","state":"NO_SUCH_STATE"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"a.example","create_time":"yesterday"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"\ud800"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", "", 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"` + strings.Repeat("a", 256) + `"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", strings.Repeat(`[`, 100_000), 400, "INVALID_REQUEST"},
		{"PATCH", in + "/limits", `{"answer_deadline":"soon"}`, 400, "INVALID_REQUEST"},
		{"PATCH", in + "/limits", `{"requests_per_minute":1.5}`, 400, "INVALID_REQUEST"},
		{"PATCH", in + "/limits", `{"requests_per_minute":"many"}`, 400, "INVALID_REQUEST"},
		{"PATCH", in + "/limits?update_mask=", `{}`, 400, "INVALID_REQUEST"},
		{"PATCH", in + "/limits", `{"etag":"x","name":"y"}`, 400, "INVALID_REQUEST"},
		{"POST", in + ":publish", `{"request_id":"not-a-uuid"}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/conversations/cnv_1:postMessage", `{"message":{"data":[1]}}`, 400, "INVALID_REQUEST"},
		{"POST", in + "/backend:rotateSecret", `{"overlap":"99999999s"}`, 400, "INVALID_REQUEST"},
		{"GET", in + "/domains/dom_1", "{}", 400, "INVALID_REQUEST"},
		{"POST", in + "/domains", `{"domain":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "REQUEST_TOO_LARGE"},
		{"GET", in + "/nothing", "", 404, "NOT_FOUND"},
		{"GET", "/v1/nothing", "", 404, "NOT_FOUND"},
		{"GET", "/", "", 404, "NOT_FOUND"},
		{"GET", in + "/domains/" + strings.Repeat("a", 20_000), "", 200, ""},
		{"DELETE", in + "/domains", "", 405, "METHOD_NOT_ALLOWED"},
		{"PUT", in + "/limits", "{}", 405, "METHOD_NOT_ALLOWED"},
		{"GET", in + ":publish", "", 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/v1/openapi.yaml", "{}", 405, "METHOD_NOT_ALLOWED"},
	} {
		res := a.rest(t, key, c.verb, c.path, c.body)
		if c.status == 200 {
			require.Equal(t, 200, res.status)
			continue
		}
		p := res.problem(t, c.status, c.reason)
		for _, text := range goText {
			require.NotContains(t, p["detail"], text, "%s %.60s %.60s", c.verb, c.path, c.body)
			require.NotContains(t, string(res.body), "\u00a0")
		}
		if c.status == 405 {
			require.NotEmpty(t, res.header.Get("Allow"))
		}
	}
	got := a.owner.got()
	require.Len(t, got, 1, "only the sound one reached its owner: %v", got)
}

func TestGW05_FieldAtFaultIsNamed(t *testing.T) {
	a, scope, key := rig(t)
	in := "/v1/" + scope.Name()
	for _, c := range []struct{ verb, path, body, field string }{
		{"GET", "/domains?page_size=abc", "", "page_size"},
		{"POST", "/domains", `{"domain":5}`, "domain.domain"},
		{"POST", "/domains", `{"domain":"a.example","state":"NO_SUCH_STATE"}`, "domain.state"},
		{"PATCH", "/limits", `{"answer_deadline":"soon"}`, "limits.answer_deadline"},
		{"PATCH", "/discoverySettings", `{"apis":[{"type":1}]}`, "discovery_settings.apis[0].type"},
		{"PATCH", "/discoverySettings", `{"apis":{}}`, "discovery_settings.apis"},
		{"PATCH", "/discoverySettings", `{"custom_scopes":{"x":1}}`, "discovery_settings.custom_scopes"},
		{"POST", "/conversations/cnv_1:postMessage", `{"message":"hello"}`, "message"},
		{"POST", "/domains?request_id=1", `{"domain":"a.example"}`, "request_id"},
		{"POST", "/admissionRules", `{"client_id":"https://a.example"}`, "admission_rule.effect"},
	} {
		res := a.rest(t, key, c.verb, in+c.path, c.body)
		res.problem(t, 400, "INVALID_REQUEST")
		require.Equal(t, c.field, res.violation(t), "%s %s", c.path, c.body)
	}
}

func TestREST_BodyHasToBeJSON(t *testing.T) {
	a, scope, key := rig(t)
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.http.URL+"/v1/"+scope.Name()+"/domains", strings.NewReader(`{"domain":"a.example"}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		a.do(t, req).problem(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.http.URL+"/v1/"+scope.Name()+"/domains", strings.NewReader(`{"domain":"a.example"}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	require.Equal(t, 200, a.do(t, req).status)
}

func TestREST_HeadersCannotSteerTheCall(t *testing.T) {
	a, scope, key := rig(t)
	other := dbtest.Company(t, a.db)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.http.URL+"/v1/"+scope.Name(), nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Grpc-Metadata-Authorization", "Bearer "+a.operator)
	req.Header.Set("Grpc-Metadata-X-Poppyfield-Company", other.CompanyID())
	req.Header.Set("X-Poppyfield-Company", other.CompanyID())
	req.Header.Set("X-Http-Method-Override", "DELETE")
	req.Header.Set("Grpc-Timeout", "never")
	req.Header.Set("X-Request-Id", "req_mine")
	res := a.do(t, req)
	require.Equal(t, 200, res.status, string(res.body))
	require.NotEqual(t, "req_mine", res.header.Get("X-Request-Id"))
	got := a.owner.got()
	require.Equal(t, scope.CompanyID(), got[0].company)
	require.Regexp(t, "^"+scope.Name()+"/apiKeys/", got[0].actor)
}

func TestREST_PatchWithoutAMaskChangesWhatTheBodyHolds(t *testing.T) {
	a, scope, key := rig(t)
	patch := func(path, body string) []string {
		before := len(a.owner.got())
		res := a.rest(t, key, "PATCH", "/v1/"+scope.Name()+path, body)
		require.Equal(t, 200, res.status, string(res.body))
		switch r := a.owner.got()[before].req.(type) {
		case *adminv1.UpdateBackendRequest:
			return r.GetUpdateMask().GetPaths()
		case *adminv1.UpdateDiscoverySettingsRequest:
			return r.GetUpdateMask().GetPaths()
		default:
			return nil
		}
	}
	require.Equal(t, []string{"attempt_timeout", "deliver_late"}, patch("/backend", `{"deliver_late":false,"attempt_timeout":"5s","etag":"\"1\"","name":"x","create_time":null}`))
	require.Equal(t, []string{"apis", "custom_scopes", "extensions"}, patch("/discoverySettings", `{"apis":[],"customScopes":{"a":"b"},"extensions":{"x":{"version":"1"}}}`))
	require.Equal(t, []string{"url"}, patch("/backend?update_mask=url", `{"deliver_late":true}`))
	require.Equal(t, []string{"url", "deliver_late"}, patch("/backend?updateMask=url,deliver_late", `{}`))
	require.Empty(t, patch("/backend", `{}`))
}

func TestProblem_IsTheSameByGRPCAndREST(t *testing.T) {
	a, scope, key := rig(t)
	for _, want := range []*problem.Error{
		problem.New(problem.Conflict, problem.EtagMismatch, "", "the resource has changed").WithExtra("etag", `"2"`),
		problem.New(problem.Conflict, problem.AlreadyExists, "", "there is one"),
		problem.New(problem.Invalid, problem.InvalidRequest, "poppy-0.1/3.1#1", "bad").WithField("a.b", "is bad"),
		problem.New(problem.Conflict, problem.FailedPrecondition, "", "not now"),
		problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "later").WithRetryAfter(7 * time.Second),
		problem.New(problem.NotFound, problem.ConversationNotFound, "", "no such conversation"),
		problem.New(problem.Internal, problem.ServerError, "", "internal error"),
	} {
		a.owner.script(func(context.Context, *method.Method, proto.Message) (proto.Message, error) { return nil, want })
		_, err := adminv1.NewCompanyServiceClient(a.conn).GetCompany(as(t, key), &adminv1.GetCompanyRequest{Name: scope.Name()})
		st := status.Convert(err)
		res := a.rest(t, key, "GET", "/v1/"+scope.Name(), "")
		p := res.json(t)
		require.Equal(t, st.Message(), p["detail"])
		var info *errdetails.ErrorInfo
		for _, d := range st.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				info = d
			case *errdetails.BadRequest:
				require.Equal(t, d.GetFieldViolations()[0].GetField(), res.violation(t))
			case *errdetails.RetryInfo:
				require.Equal(t, "7s", p["retry_delay"])
				require.Equal(t, "7", res.header.Get("Retry-After"))
			}
		}
		require.NotNil(t, info)
		require.Equal(t, info.GetReason(), p["reason"])
		if want.Clause != "" {
			require.Equal(t, string(want.Clause), p["clause"])
			require.Equal(t, string(want.Clause), info.GetMetadata()["clause"])
		}
		if want.Kind == problem.NotFound {
			require.Equal(t, "NOT_FOUND", p["reason"])
		} else {
			require.Equal(t, string(want.Reason), p["reason"])
		}
		require.Regexp(t, "^req_", info.GetMetadata()["request_id"])
	}
}

func TestREST_DatabaseThatIsGone(t *testing.T) {
	a, scope, key := rig(t)
	require.NoError(t, a.db.Close())
	res := a.rest(t, key, "GET", "/v1/"+scope.Name(), "")
	require.GreaterOrEqual(t, res.status, 500)
	for _, text := range goText {
		require.NotContains(t, string(res.body), text)
	}
	require.Error(t, a.svc.Ready(t.Context()))
}

func TestOpenAPI_IsServedToAnybody(t *testing.T) {
	a, _, _ := rig(t)
	res := a.rest(t, "", "GET", "/v1/openapi.yaml", "")
	require.Equal(t, 200, res.status)
	require.Equal(t, "application/yaml", res.header.Get("Content-Type"))
	for _, m := range table(t).Methods() {
		if m.Stream {
			continue // OpenAPI has no word for it
		}
		require.Contains(t, string(res.body), "operationId: "+string(m.Service.Name())+"_"+string(m.Desc.Name()))
	}
}
