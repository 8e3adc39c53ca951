package gateway

import (
	"context"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// mdCompany names the Company in the metadata of a call with an operator's key.
const mdCompany = "poppyfield-company"

// Envoy answers Envoy's external authorization (envoy.service.auth.v3). Whatever is not
// about the agent's request is an error of the call, which Envoy takes for a refusal.
type Envoy struct {
	authv3.UnimplementedAuthorizationServer
	gate   *gate.Gate
	method *method.Method
}

// NewEnvoy makes an Envoy that asks by m, VerifyRequest.
func NewEnvoy(g *gate.Gate, m *method.Method) *Envoy { return &Envoy{gate: g, method: m} }

// Check implements authv3.AuthorizationServer.
func (e *Envoy) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	http := r.GetAttributes().GetRequest().GetHttp()
	headers := headersOf(http)
	verdict, err := Ask(ctx, e.gate, e.method, func(k *app.Key) (string, error) { return parentOf(ctx, k) }, Original{
		Method: http.GetMethod(), Scheme: scheme(http), Host: http.GetHost(), URI: http.GetPath(),
		Authorization: valuesOf(headers, "authorization"), DPoP: valuesOf(headers, "dpop"),
	})
	if err != nil {
		return nil, err
	}
	var fields []Field
	for _, h := range verdict.GetHeaders() {
		fields = append(fields, Field{h.GetName(), h.GetValue()})
	}
	if !verdict.GetAllowed() {
		return denied(int(verdict.GetStatus()), fields, verdict.GetBody()), nil
	}
	return allowed(verdict.GetSession(), headers, fields), nil
}

// parentOf is the Company that a key is about. An operator's key is of none and has to name one.
func parentOf(ctx context.Context, k *app.Key) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	switch named := md.Get(mdCompany); {
	case len(named) == 1:
		return CompanyName(named[0]), nil
	case len(named) > 1:
		return "", resource.Invalid(mdCompany, "comes more than once")
	case k.Operator():
		return "", resource.Invalid(mdCompany, "has to name the Company, since the key is of none")
	}
	return CompanyName(k.CompanyID), nil
}

// scheme is that of the request; behind another proxy Envoy may not know it, and it makes no difference.
func scheme(r *authv3.AttributeContext_HttpRequest) string {
	if r.GetScheme() == "" {
		return "https"
	}
	return r.GetScheme()
}

// headersOf returns the header fields in both forms that Envoy has for them. One that
// came twice is there twice, or with a comma between its values.
func headersOf(r *authv3.AttributeContext_HttpRequest) []Field {
	var out []Field
	for name, value := range r.GetHeaders() {
		out = append(out, Field{name, value})
	}
	for _, h := range r.GetHeaderMap().GetHeaders() {
		value := h.GetValue()
		if raw := h.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		out = append(out, Field{h.GetKey(), value})
	}
	return out
}

func valuesOf(headers []Field, name string) []string {
	var out []string
	for _, h := range headers {
		if strings.EqualFold(h.Name, name) {
			out = append(out, h.Value)
		}
	}
	return out
}

// allowed tells the API who is asking, and takes away what the agent says of that itself.
func allowed(s *adminv1.AgentSession, came, answer []Field) *authv3.CheckResponse {
	ok := &authv3.OkHttpResponse{}
	var gone []string
	set := map[string]bool{}
	for _, f := range Identity(s) {
		if f.Value == "" {
			gone = append(gone, strings.ToLower(f.Name))
			continue
		}
		set[strings.ToLower(f.Name)] = true
		ok.Headers = append(ok.Headers, overwrite(f))
	}
	for _, f := range came {
		if name := strings.ToLower(f.Name); access.IsIdentityHeader(name) && !set[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	ok.HeadersToRemove = slices.Compact(gone)
	for _, f := range answer {
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, overwrite(f))
	}
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	}
}

func denied(status int, headers []Field, body string) *authv3.CheckResponse {
	no := &authv3.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(status)}, Body: body,
		Headers: []*corev3.HeaderValueOption{overwrite(Field{"content-type", "application/json"})},
	}
	for _, f := range headers {
		no.Headers = append(no.Headers, overwrite(f))
	}
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: no},
	}
}

func overwrite(f Field) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: strings.ToLower(f.Name), Value: f.Value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
