package admin_test

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

var star = regexp.MustCompile(`\{[a-z_.]+=([^}]+)\}`)

// nameOf returns a resource name that the method's route takes, in the Company.
func nameOf(m *method.Method, company string) string {
	if m.Stream && (m.Desc.IsStreamingClient() || m.Service == method.Package+".AccessService") {
		return "companies/" + company
	}
	if m.Stream {
		return "companies/" + company + "/inbox"
	}
	name := star.FindStringSubmatch(m.HTTP.Template)[1]
	name = strings.Replace(name, "*", company, 1)
	return strings.ReplaceAll(name, "*", "key_00000000000000000000000000")
}

// sound makes a request that passes validation for the Company's resource.
func sound(m *method.Method, company string) proto.Message {
	req := m.NewInput()
	for i := range m.Desc.Input().Fields().Len() {
		f := m.Desc.Input().Fields().Get(i)
		if f.Message() != nil && !f.IsList() && !f.IsMap() && f.Message().ParentFile().Package() == method.Package {
			req.ProtoReflect().Mutable(f)
		}
	}
	if f := m.Desc.Input().Fields().ByName("start_time"); f != nil && f.Message() != nil { // a range has to begin somewhere
		req.ProtoReflect().Set(f, protoreflect.ValueOfMessage(timestamppb.New(time.Unix(1, 0)).ProtoReflect()))
	}
	if f := m.Desc.Input().Fields().ByName("person"); f != nil {
		req.ProtoReflect().Set(f, protoreflect.ValueOfString("alex"))
	}
	switch r := req.(type) {
	case *adminv1.CreateAdmissionRuleRequest:
		r.AdmissionRule.ClientId, r.AdmissionRule.Effect = "https://agent.example", adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW
	case *adminv1.CreateDomainRequest:
		r.Domain.Domain = "shop.example"
	case *adminv1.CreateApiKeyRequest:
		r.ApiKey.Scopes = []string{"conversations.read"}
	case *adminv1.RespondRequest:
		r.Authorization.Error = "sign_in_required"
	case *adminv1.SendAsPersonRequest:
		r.Authorization.Error = "sign_in_required"
	case *adminv1.AcceptLoginRequestRequest:
		r.Account = "account"
	case *adminv1.CreateConnectedAgentsLinkRequest:
		r.Account = "account"
	case *adminv1.DisconnectAccountRequest:
		r.Account = "account"
	case *adminv1.RevokeAgentRequest:
		r.ClientId = "https://agent.example/agent.json"
	case *adminv1.VerifyRequestRequest:
		r.Method, r.Url = "GET", "https://api.example.com/orders"
	case *adminv1.CheckBrowserSessionRequest:
		r.Visitor = &adminv1.CheckBrowserSessionRequest_Cookie{Cookie: "pbc_x"}
	case *adminv1.IntrospectTokenRequest:
		r.Token = "token"
	}
	if m.NamesCompany() {
		m.SetResource(req, nameOf(m, company))
	}
	return req
}

// invoke calls a method by gRPC and returns its status with the request's id taken out.
func (a *api) invoke(t *testing.T, key string, m *method.Method, req proto.Message) *status.Status {
	t.Helper()
	if m.Stream {
		return withoutID(t, a.converse(as(t, key), m, req))
	}
	return withoutID(t, a.conn.Invoke(as(t, key), m.FullName, req, m.NewOutput()))
}

// converse opens a stream, says one thing, and returns how the stream ended.
func (a *api) converse(ctx context.Context, m *method.Method, first proto.Message) error {
	stream, err := a.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, m.FullName)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(m.NewOutput()); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func withoutID(t *testing.T, err error) *status.Status {
	t.Helper()
	st := status.Convert(err).Proto()
	for _, d := range st.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if !d.MessageIs(info) {
			continue
		}
		require.NoError(t, d.UnmarshalTo(info))
		require.NotEmpty(t, info.Metadata["request_id"])
		delete(info.Metadata, "request_id")
		require.NoError(t, d.MarshalFrom(info))
	}
	return status.FromProto(st)
}

// Every method there is, with another Company's names and with names of Companies that there aren't.
func TestMT03_AnotherCompanysResourcesAreNotFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{ReadsPerMinute: -1, WritesPerMinute: -1, ChecksPerMinute: -1})
		mine, theirs := dbtest.Company(t, d), dbtest.Company(t, d)
		key := a.key(t, mine, "*")
		theirKey := a.key(t, theirs, "*")
		missing := "cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz"
		walked := 0
		for _, m := range table(t).Methods() {
			if !m.NamesCompany() || m.Audience == adminv1.Audience_AUDIENCE_OPERATOR {
				continue
			}
			walked++
			// Where an own resource is missing, its owner says so, in whatever words.
			a.owner.script(func(context.Context, *method.Method, proto.Message) (proto.Message, error) {
				return nil, tenancyNotFound()
			})
			want := wireNotFound(t)
			before := len(a.owner.got())
			for _, company := range []string{theirs.CompanyID(), missing, "cmp_x", "-", strings.ToUpper(mine.CompanyID()), mine.CompanyID() + "x"} {
				st := a.invoke(t, key, m, sound(m, company))
				require.Equal(t, want, wire(t, st), "%s of %s", m.FullName, company)
			}
			require.Len(t, a.owner.got(), before, "%s: no owner was asked", m.FullName)
			if m.Service.Name() != "ApiKeyService" && m.Desc.Name() != "GetCompany" {
				require.Equal(t, want, wire(t, a.invoke(t, key, m, sound(m, mine.CompanyID()))), "%s: an own one that is missing reads the same", m.FullName)
				got := a.owner.got()
				require.Len(t, got, before+1)
				require.Equal(t, mine.CompanyID(), got[before].company, m.FullName)
			}
			if m.Stream {
				continue
			}
			// The same by REST, byte by byte but for the request's id.
			own := a.restOf(t, key, m, missing)
			other := a.restOf(t, key, m, theirs.CompanyID())
			require.Equal(t, 404, other.status, m.FullName)
			require.Equal(t, scrubID(own.body), scrubID(other.body), m.FullName)
		}
		require.Greater(t, walked, 20)
		// Nothing of theirs changed: their key works, and there is the one they had.
		list := &adminv1.ListApiKeysResponse{}
		require.NoError(t, a.conn.Invoke(as(t, theirKey), adminv1.ApiKeyService_ListApiKeys_FullMethodName, &adminv1.ListApiKeysRequest{Parent: theirs.Name()}, list))
		require.Len(t, list.GetApiKeys(), 1)
		require.Nil(t, list.GetApiKeys()[0].GetRevokeTime())
	})
}

func TestMT03_RevokingAnotherCompanysKeyByItsID(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		mine, theirs := dbtest.Company(t, d), dbtest.Company(t, d)
		key, theirKey := a.key(t, mine, "*"), a.key(t, theirs, "*")
		list := a.rest(t, theirKey, "GET", "/v1/"+theirs.Name()+"/apiKeys", "").json(t)
		name := list["api_keys"].([]any)[0].(map[string]any)["name"].(string)
		id := name[strings.LastIndexByte(name, '/')+1:]
		for _, path := range []string{"/v1/" + name, "/v1/" + mine.Name() + "/apiKeys/" + id} {
			a.rest(t, key, "GET", path, "").problem(t, 404, "NOT_FOUND")
			a.rest(t, key, "POST", path+":revoke", "{}").problem(t, 404, "NOT_FOUND")
		}
		require.Equal(t, 200, a.rest(t, theirKey, "GET", "/v1/me", "").status)
	})
}

// A name in the body never wins over the one in the path.
func TestREST_NameInTheBodyDoesNotSelect(t *testing.T) {
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{})
	mine, theirs := dbtest.Company(t, d), dbtest.Company(t, d)
	key := a.key(t, mine, "*")
	require.Equal(t, 200, a.rest(t, key, "PATCH", "/v1/"+mine.Name()+"/limits", `{"name":"`+theirs.Name()+`/limits","requests_per_minute":5}`).status)
	require.Equal(t, 200, a.rest(t, key, "POST", "/v1/"+mine.Name()+":publish", `{"name":"`+theirs.Name()+`"}`).status)
	for _, c := range a.owner.got() {
		require.Equal(t, mine.CompanyID(), c.company)
		switch r := c.req.(type) {
		case *adminv1.UpdateLimitsRequest:
			require.Equal(t, mine.Name()+"/limits", r.GetLimits().GetName())
		case *adminv1.PublishCompanyRequest:
			require.Equal(t, mine.Name(), r.GetName())
		}
	}
}

func TestScope_OperatorReachesEveryCompanyThatThereIs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := start(t, d, admin.Config{})
		one, two := dbtest.Company(t, d), dbtest.Company(t, d)
		for _, scope := range []tenancy.Scope{one, two} {
			require.Equal(t, 200, a.rest(t, a.operator, "GET", "/v1/"+scope.Name()+"/domains", "").status)
		}
		got := a.owner.got()
		require.Equal(t, []string{one.CompanyID(), two.CompanyID()}, []string{got[0].company, got[1].company})
		require.Regexp(t, `^operatorKeys/opk_`, got[0].actor)
		a.rest(t, a.operator, "GET", "/v1/companies/cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz/domains", "").problem(t, 404, "NOT_FOUND")
		require.Len(t, a.owner.got(), 2)
	})
}

func (a *api) restOf(t *testing.T, key string, m *method.Method, company string) answer {
	t.Helper()
	path := star.ReplaceAllLiteralString(m.HTTP.Template, nameOf(m, company))
	body := ""
	if m.HTTP.Body != "" {
		body = "{}"
	}
	return a.rest(t, key, m.HTTP.Verb, path, body)
}

var idInBody = regexp.MustCompile(`"request_id":"[^"]*"`)

func scrubID(body []byte) string {
	return idInBody.ReplaceAllLiteralString(string(body), `"request_id":""`)
}

func wire(t *testing.T, st *status.Status) string {
	t.Helper()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(st.Proto())
	require.NoError(t, err)
	return string(raw)
}

// wireNotFound is what NOT_FOUND looks like.
func wireNotFound(t *testing.T) string {
	t.Helper()
	st, err := status.New(codes.NotFound, "not found").WithDetails(&errdetails.ErrorInfo{
		Reason: "NOT_FOUND", Domain: "poppyfield", Metadata: map[string]string{"kind": "not_found"},
	})
	require.NoError(t, err)
	return wire(t, st)
}

// tenancyNotFound is an owner's own sentence.
func tenancyNotFound() error {
	_, err := resource.Child(tenancy.Scope{}, "elsewhere")
	if _, other := tenancy.For("nobody"); other != nil {
		return other
	}
	return err
}
