package web

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/method"
	"github.com/poppyfield/poppyfield/services/admin/watch"
)

// Config of the handler.
type Config struct {
	// Heartbeat is how often a watch says that it lives.
	Heartbeat time.Duration
}

// Deps of the handler.
type Deps struct {
	Table *method.Table
	Gate  *gate.Gate
	Auth  *app.Authenticator
	Hub   *watch.Hub
	// API is a connection to the public gRPC server from within the process.
	API *grpc.ClientConn
	// Conversations and Inbox are the owner that watches read from.
	Conversations adminv1.ConversationServiceClient
	Inbox         adminv1.InboxServiceClient
	// Connected reports whether doorbells arrive at the moment.
	Connected func() bool
	// Stopping is closed when watches have to end.
	Stopping <-chan struct{}
	OpenAPI  []byte
	Now      clock.Clock
	Log      *slog.Logger
}

// Handler serves the paths below /v1/.
type Handler struct {
	cfg     Config
	deps    Deps
	gateway *runtime.ServeMux
}

// registrations connect REST to gRPC, service by service.
var registrations = map[protoreflect.FullName]func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
	method.Package + ".AdmissionService":       adminv1.RegisterAdmissionServiceHandler,
	method.Package + ".ApiKeyService":          adminv1.RegisterApiKeyServiceHandler,
	method.Package + ".AttemptService":         adminv1.RegisterAttemptServiceHandler,
	method.Package + ".BackendDeliveryService": adminv1.RegisterBackendDeliveryServiceHandler,
	method.Package + ".BackendService":         adminv1.RegisterBackendServiceHandler,
	method.Package + ".InboxService":           adminv1.RegisterInboxServiceHandler,
	method.Package + ".WebhookDeliveryService": adminv1.RegisterWebhookDeliveryServiceHandler,
	method.Package + ".WebhookEndpointService": adminv1.RegisterWebhookEndpointServiceHandler,
	method.Package + ".CompanyService":         adminv1.RegisterCompanyServiceHandler,
	method.Package + ".ConnectedAgentService":  adminv1.RegisterConnectedAgentServiceHandler,
	method.Package + ".ConversationService":    adminv1.RegisterConversationServiceHandler,
	method.Package + ".DomainService":          adminv1.RegisterDomainServiceHandler,
	method.Package + ".LoginService":           adminv1.RegisterLoginServiceHandler,
	method.Package + ".SessionService":         adminv1.RegisterSessionServiceHandler,
	method.Package + ".AccessService":          adminv1.RegisterAccessServiceHandler,
	method.Package + ".SignInSetupService":     adminv1.RegisterSignInSetupServiceHandler,
	method.Package + ".UsageService":           adminv1.RegisterUsageServiceHandler,
}

// doors are the paths that take another form than REST's, by how they stand in the table.
var doors = map[string]func(h *Handler, w http.ResponseWriter, r *http.Request, m *method.Method, companyID string){
	"/v1/companies/*/forwardAuth": (*Handler).forwardAuth,
	"/v1/companies/*/introspect":  (*Handler).introspect,
}

// New makes the handler; it fails when a service or a path of the table isn't served here.
func New(ctx context.Context, cfg Config, deps Deps) (*Handler, error) {
	h := &Handler{cfg: cfg, deps: deps}
	none := func(string) (string, bool) { return "", false }
	h.gateway = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
			// Unknown fields are refused.
			UnmarshalOptions: protojson.UnmarshalOptions{},
		}),
		// Nothing but the key travels on, and nothing comes back: a caller can't set metadata.
		runtime.WithIncomingHeaderMatcher(none),
		runtime.WithOutgoingHeaderMatcher(none),
		runtime.WithOutgoingTrailerMatcher(none),
		runtime.WithMetadata(h.metadata),
		runtime.WithErrorHandler(h.failed),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, _ int) {
			httpx.WriteProblem(w, r, noSuchPath())
		}),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	for _, s := range deps.Table.Services() {
		if streamsOnly(deps.Table.Of(s)) {
			continue
		}
		register, ok := registrations[s]
		if !ok {
			return nil, fmt.Errorf("%s isn't served by REST", s)
		}
		if err := register(ctx, h.gateway, deps.API); err != nil {
			return nil, fmt.Errorf("REST of %s: %w", s, err)
		}
	}
	for _, door := range deps.Table.Doors() {
		if method.IsPath(door) && doors[door] == nil {
			return nil, fmt.Errorf("nobody serves %s", door)
		}
	}
	return h, nil
}

// streamsOnly reports a service that REST has no part of.
func streamsOnly(methods []*method.Method) bool {
	return !slices.ContainsFunc(methods, func(m *method.Method) bool { return !m.Stream })
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/openapi.yaml" {
		h.document(w, r)
		return
	}
	if company, ok := watched(r.URL.Path); ok {
		h.watch(w, r, company)
		return
	}
	if door, company, ok := h.deps.Table.FindDoor(r.URL.Path); ok {
		doors[door](h, w, r, h.deps.Table.ByDoor(door), company)
		return
	}
	m, allow := h.deps.Table.Find(r.Method, r.URL.Path)
	if m == nil {
		if len(allow) > 0 {
			notAllowed(w, r, allow...)
			return
		}
		httpx.WriteProblem(w, r, noSuchPath())
		return
	}
	// Who shows no key gets no body read.
	if !app.WellFormed(gate.Bearer(r.Header.Get("Authorization"))) {
		_, err := h.deps.Gate.Authenticate(r.Context(), "", h.deps.Gate.Address(r))
		httpx.WriteProblem(w, r, err)
		return
	}
	checked, err := h.check(w, r, m)
	if err != nil {
		httpx.WriteProblem(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	h.gateway.ServeHTTP(w, checked)
}

func (h *Handler) document(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, r, http.MethodGet)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	// The client has gone if this fails; there is nobody left to tell.
	_, _ = w.Write(h.deps.OpenAPI)
}

// metadata is what the gate believes of calls from within the process.
func (h *Handler) metadata(_ context.Context, r *http.Request) metadata.MD {
	return metadata.Pairs(gate.MDRequestID, httpx.RequestIDFrom(r.Context()), gate.MDAddress, h.deps.Gate.Address(r).String())
}

func notAllowed(w http.ResponseWriter, r *http.Request, allow ...string) {
	w.Header().Set("Allow", strings.Join(allow, ", "))
	httpx.WriteProblem(w, r, problem.New(problem.Invalid, problem.MethodNotAllowed, "", "the path takes %s", strings.Join(allow, ", ")))
}

func noSuchPath() error {
	return problem.New(problem.NotFound, problem.NotFoundReason, "", "there is no such path")
}
