package method_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

func owners() []protoreflect.FullName {
	var out []protoreflect.FullName
	for _, s := range []string{
		"AccessService", "AdmissionService", "ApiKeyService", "BackendService", "CompanyService", "ConnectedAgentService", "ConversationService", "DomainService", "LoginService",
		"SessionService", "SignInSetupService", "UsageService",
		"AttemptService", "BackendDeliveryService", "BackendStreamService", "InboxService", "WebhookDeliveryService", "WebhookEndpointService",
	} {
		out = append(out, method.Package.Append(protoreflect.Name(s)))
	}
	return out
}

func load(t *testing.T) *method.Table {
	t.Helper()
	table, err := method.Load(owners()...)
	require.NoError(t, err)
	return table
}

func TestLoad_EveryMethodIsInTheTable(t *testing.T) {
	table := load(t)
	want := 0
	for _, f := range []protoreflect.FileDescriptor{
		adminv1.File_poppyfield_admin_v1_access_proto, adminv1.File_poppyfield_admin_v1_admission_proto, adminv1.File_poppyfield_admin_v1_api_key_proto, adminv1.File_poppyfield_admin_v1_backend_proto,
		adminv1.File_poppyfield_admin_v1_company_proto, adminv1.File_poppyfield_admin_v1_conversation_proto, adminv1.File_poppyfield_admin_v1_domain_proto,
		adminv1.File_poppyfield_admin_v1_session_proto, adminv1.File_poppyfield_admin_v1_connected_agent_proto, adminv1.File_poppyfield_admin_v1_login_proto,
		adminv1.File_poppyfield_admin_v1_sign_in_setup_proto, adminv1.File_poppyfield_admin_v1_backend_delivery_proto,
		adminv1.File_poppyfield_admin_v1_backend_stream_proto, adminv1.File_poppyfield_admin_v1_endpoint_proto, adminv1.File_poppyfield_admin_v1_inbox_proto,
		adminv1.File_poppyfield_admin_v1_usage_proto,
	} {
		for i := range f.Services().Len() {
			want += f.Services().Get(i).Methods().Len()
		}
	}
	require.Len(t, table.Methods(), want)
	for _, m := range table.Methods() {
		require.NotEmpty(t, m.Permission, m.FullName)
		require.Equal(t, m.Audience == adminv1.Audience_AUDIENCE_COMPANY, m.NamesCompany() && m.Audience != adminv1.Audience_AUDIENCE_OPERATOR, m.FullName)
		switch {
		case m.Stream || m.HTTP.Verb == http.MethodGet:
			require.False(t, m.Mutates, "%s: what changes something isn't a GET", m.FullName)
		default:
			require.True(t, m.Mutates || m.Checks, m.FullName)
		}
	}
}

func TestLoad_ServiceWithoutOwner(t *testing.T) {
	_, err := method.Load(owners()[1:]...)
	require.ErrorContains(t, err, "AccessService has no owner")
}

func TestLoad_OwnerOfNothing(t *testing.T) {
	_, err := method.Load(append(owners(), method.Package+".GhostService")...)
	require.ErrorContains(t, err, "GhostService has an owner and is no service")
}

// made is a service with one method whose options are as given.
func made(t *testing.T, change func(*descriptorpb.MethodDescriptorProto, *adminv1.Rule, *annotations.HttpRule)) error {
	t.Helper()
	rule := &adminv1.Rule{Permission: "things.read", Audience: adminv1.Audience_AUDIENCE_COMPANY}
	route := &annotations.HttpRule{Pattern: &annotations.HttpRule_Get{Get: "/v1/{name=companies/*/things/*}"}}
	m := &descriptorpb.MethodDescriptorProto{
		Name: proto.String("GetThing"), InputType: proto.String(".made.Thing"), OutputType: proto.String(".made.Thing"), Options: &descriptorpb.MethodOptions{},
	}
	proto.SetExtension(m.Options, adminv1.E_Rule, rule)
	proto.SetExtension(m.Options, annotations.E_Http, route)
	change(m, rule, route)
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), JsonName: proto.String(name), Number: proto.Int32(number), Type: kind.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("made.proto"), Package: proto.String("made"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Thing"), Field: []*descriptorpb.FieldDescriptorProto{
			field("name", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING), field("size", 2, descriptorpb.FieldDescriptorProto_TYPE_INT32),
		}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Things"), Method: []*descriptorpb.MethodDescriptorProto{m}}},
	}, nil)
	require.NoError(t, err)
	_, err = method.Build([]protoreflect.ServiceDescriptor{f.Services().Get(0)}, "made.Things")
	return err
}

func TestBuild_MethodThatLeavesSomethingOpen(t *testing.T) {
	require.NoError(t, made(t, func(*descriptorpb.MethodDescriptorProto, *adminv1.Rule, *annotations.HttpRule) {}))
	for name, c := range map[string]struct {
		change func(*descriptorpb.MethodDescriptorProto, *adminv1.Rule, *annotations.HttpRule)
		want   string
	}{
		"no rule": {func(m *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, _ *annotations.HttpRule) {
			proto.ClearExtension(m.Options, adminv1.E_Rule)
		}, "has no rule"},
		"no options at all": {func(m *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, _ *annotations.HttpRule) { m.Options = nil }, "has no rule"},
		"no permission": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) {
			r.Permission = ""
		}, "permission"},
		"odd permission": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) {
			r.Permission = "*"
		}, "permission"},
		"no audience": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) {
			r.Audience = adminv1.Audience_AUDIENCE_UNSPECIFIED
		}, "no audience"},
		"unknown audience": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) { r.Audience = 77 }, "unknown audience"},
		"no route": {func(m *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, _ *annotations.HttpRule) {
			proto.ClearExtension(m.Options, annotations.E_Http)
		}, "no HTTP route"},
		"no company in the route": {func(_ *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, h *annotations.HttpRule) {
			h.Pattern = &annotations.HttpRule_Get{Get: "/v1/things"}
		}, "doesn't name one"},
		"variable that is no field": {func(_ *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, h *annotations.HttpRule) {
			h.Pattern = &annotations.HttpRule_Get{Get: "/v1/{title=companies/*}"}
		}, "names no field"},
		"variable that is no string": {func(_ *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, h *annotations.HttpRule) {
			h.Pattern = &annotations.HttpRule_Get{Get: "/v1/{size=companies/*}"}
		}, "is no string"},
		"two routes": {func(_ *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, h *annotations.HttpRule) {
			h.AdditionalBindings = []*annotations.HttpRule{{Pattern: &annotations.HttpRule_Get{Get: "/v1/things"}}}
		}, "more than one form"},
		"body that is no field": {func(_ *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, h *annotations.HttpRule) {
			h.Body = "thing"
		}, "no message"},
		"an odd other way": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) {
			r.Also = []string{"/v1/companies/*/a/b"}
		}, "neither a path of a Company nor a gRPC method"},
		"another way twice": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, _ *annotations.HttpRule) {
			r.Also = []string{"/v1/companies/*/a", "/v1/companies/*/a"}
		}, "twice in the table"},
		"another way without a Company": {func(_ *descriptorpb.MethodDescriptorProto, r *adminv1.Rule, h *annotations.HttpRule) {
			r.Also, r.Audience = []string{"/a.v1.Things/Get"}, adminv1.Audience_AUDIENCE_SELF
			h.Pattern = &annotations.HttpRule_Get{Get: "/v1/things"}
		}, "only calls that name a Company"},
		"a stream with a route": {func(m *descriptorpb.MethodDescriptorProto, _ *adminv1.Rule, _ *annotations.HttpRule) {
			m.ServerStreaming = proto.Bool(true)
		}, "a stream has no HTTP route"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, made(t, c.change), c.want) })
	}
}

func TestFind_RouteOfEachMethod(t *testing.T) {
	table := load(t)
	for _, c := range []struct{ verb, path, want string }{
		{"GET", "/v1/companies", "ListCompanies"},
		{"POST", "/v1/companies", "CreateCompany"},
		{"GET", "/v1/companies/cmp_1", "GetCompany"},
		{"POST", "/v1/companies/cmp_1:publish", "PublishCompany"},
		{"PATCH", "/v1/companies/cmp_1/limits", "UpdateLimits"},
		{"GET", "/v1/companies/cmp_1/backend/secrets", "ListBackendSecrets"},
		{"POST", "/v1/companies/cmp_1/conversations/cnv_1:postMessage", "PostMessage"},
		{"GET", "/v1/companies/cmp_1/conversations/cnv_1/events", "ListConversationEvents"},
		{"DELETE", "/v1/companies/cmp_1/domains/dom_1", "DeleteDomain"},
		{"GET", "/v1/me", "GetMe"},
	} {
		m, _ := table.Find(c.verb, c.path)
		require.NotNil(t, m, "%s %s", c.verb, c.path)
		require.Equal(t, c.want, string(m.Desc.Name()))
	}
}

func TestFind_WrongVerbAndNoSuchPath(t *testing.T) {
	table := load(t)
	m, allow := table.Find("DELETE", "/v1/companies")
	require.Nil(t, m)
	require.Equal(t, []string{"GET", "POST"}, allow)
	m, allow = table.Find("GET", "/v1/companies/cmp_1:publish")
	require.Nil(t, m)
	require.Equal(t, []string{"POST"}, allow)
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/companies/", "/v1/companies/x/y", "/v2/companies", "/v1/companies/x/domains/y/z", "//v1/companies"} {
		m, allow = table.Find("GET", path)
		require.Nil(t, m, path)
		require.Empty(t, allow, path)
	}
}

func TestUnknownField_IsFoundAtAnyDepth(t *testing.T) {
	raw := protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1)
	settings := &adminv1.DiscoverySettings{Apis: []*adminv1.Api{{}, {}}, Extensions: map[string]*adminv1.Extension{"x": {}}}
	req := &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: settings}
	require.Empty(t, method.UnknownField(req))
	settings.Apis[1].ProtoReflect().SetUnknown(raw)
	require.Equal(t, "discovery_settings.apis.#77", method.UnknownField(req))
	settings.Apis = nil
	settings.Extensions["x"].ProtoReflect().SetUnknown(raw)
	require.Equal(t, "discovery_settings.extensions.#77", method.UnknownField(req))
	settings.Extensions = nil
	req.ProtoReflect().SetUnknown(raw)
	require.Equal(t, "#77", method.UnknownField(req))
}

func TestNULField_IsFoundAtAnyDepth(t *testing.T) {
	req := &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: &adminv1.DiscoverySettings{
		OrganizationName: "Acme", Apis: []*adminv1.Api{{Url: "https://a.example"}}, CustomScopes: map[string]string{"a": "b"},
	}}
	require.Empty(t, method.NULField(req))
	for path, change := range map[string]func(*adminv1.DiscoverySettings){
		"discovery_settings.organization_name":  func(d *adminv1.DiscoverySettings) { d.OrganizationName = "a\x00b" },
		"discovery_settings.apis[0].url":        func(d *adminv1.DiscoverySettings) { d.Apis[0].Url = "\x00" },
		`discovery_settings.custom_scopes["a"]`: func(d *adminv1.DiscoverySettings) { d.CustomScopes["a"] = "\x00" },
	} {
		bad := proto.CloneOf(req)
		change(bad.DiscoverySettings)
		require.Equal(t, path, method.NULField(bad))
	}
	bad := proto.CloneOf(req)
	bad.DiscoverySettings.CustomScopes["k\x00"] = "v"
	require.NotEmpty(t, method.NULField(bad))
}
