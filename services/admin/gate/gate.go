package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// MaxRequest bounds a request, in bytes, by gRPC and by REST.
const MaxRequest = 1 << 20

// callTimeout is the longest that an owner may take.
const callTimeout = 30 * time.Second

// Config bounds what a caller may ask for. Zero means no limit.
type Config struct {
	// ReadsPerMinute and WritesPerMinute are budgets of each key, apart from each
	// other: who reads is not held up by a script that writes.
	ReadsPerMinute, WritesPerMinute int
	// ChecksPerMinute is the budget of each key for what is asked for every request of an agent.
	ChecksPerMinute int
	// FailuresPerMinute is how many unknown keys one address may try.
	FailuresPerMinute int
	// TrustedProxies may say in X-Forwarded-For whom they speak for.
	TrustedProxies []netip.Prefix
	// StreamsPerKey is how many streams and watches a key may have open.
	StreamsPerKey int
	// FirstMessage is how long a caller may take to say what its stream is about; zero is 10 s.
	FirstMessage time.Duration
	// Recheck is how often the key of an open stream is looked at again; zero is 5 s.
	Recheck time.Duration
}

// Deps of the gate.
type Deps struct {
	Table   *method.Table
	Owners  map[protoreflect.FullName]grpc.ClientConnInterface
	Store   app.Store
	Auth    *app.Authenticator
	Answers *Answers
	// Limiter counts calls; nil for one of this process alone.
	Limiter *limit.Limiter
	Now     clock.Clock
	Log     *slog.Logger
}

// Gate lets calls through or not.
type Gate struct {
	cfg      Config
	deps     Deps
	limiter  *limit.Limiter
	known    *known
	validate protovalidate.Validator
	streams  streams
	closing  chan struct{} // closed by Close
	closed   sync.Once
}

// New makes a gate; it fails when a service of the table has no connection to its owner.
func New(cfg Config, deps Deps) (*Gate, error) {
	for _, s := range deps.Table.Services() {
		if deps.Owners[s] == nil {
			return nil, fmt.Errorf("no connection to the owner of %s", s)
		}
	}
	v, err := protovalidate.New()
	if err != nil {
		return nil, fmt.Errorf("protovalidate: %w", err)
	}
	if cfg.FirstMessage <= 0 {
		cfg.FirstMessage = firstMessage
	}
	if cfg.Recheck <= 0 {
		cfg.Recheck = recheck
	}
	g := &Gate{cfg: cfg, deps: deps, limiter: limit.Or(deps.Limiter), known: newKnown(), validate: v, streams: streams{open: map[string]int{}}}
	g.closing = make(chan struct{})
	return g, nil
}

// Handle answers one gRPC call of m. decode reads the request's message.
func (g *Gate) Handle(ctx context.Context, m *method.Method, decode func(any) error) (proto.Message, error) {
	return g.HandleFor(ctx, m, func(_ *app.Key, req proto.Message) error {
		if err := decode(req); err != nil {
			return problem.New(problem.Invalid, problem.InvalidRequest, "", "the request's message can't be read").WithCause(err)
		}
		return nil
	})
}

// HandleFor answers a call of m that came in another form. fill makes the request's
// message, once the caller is known and may call m.
func (g *Gate) HandleFor(ctx context.Context, m *method.Method, fill func(*app.Key, proto.Message) error) (out proto.Message, err error) {
	id := requestID(ctx)
	ctx = withRequestID(ctx, id)
	// It fails only when the headers are out already, which they aren't.
	_ = grpc.SetHeader(ctx, requestIDHeader(id))
	defer func() {
		if r := recover(); r != nil {
			g.deps.Log.ErrorContext(ctx, "panic in a call", "method", m.FullName, "request_id", id, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
			out, err = nil, problem.New(problem.Internal, problem.ServerError, "", "internal error")
		}
		if err != nil {
			out, err = nil, toStatus(err, id)
		}
	}()
	out, err = g.call(ctx, m, fill)
	if err != nil && problem.As(err).Kind == problem.Internal && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		g.deps.Log.ErrorContext(ctx, "call failed", "method", m.FullName, "request_id", id, "error", err)
	}
	return out, err
}

func (g *Gate) call(ctx context.Context, m *method.Method, fill func(*app.Key, proto.Message) error) (proto.Message, error) {
	caller, err := g.Authenticate(ctx, bearer(ctx), g.address(ctx))
	if err != nil {
		return nil, err
	}
	if err := g.spend(caller, budgetOf(m)); err != nil {
		return nil, err
	}
	if err := authorise(caller, m); err != nil {
		return nil, err
	}
	req := m.NewInput()
	if err := fill(caller, req); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(app.WithCaller(rpc.WithActor(ctx, caller.Name()), caller), callTimeout)
	defer cancel()
	var scope tenancy.Scope
	if m.NamesCompany() {
		if scope, err = g.Scope(ctx, caller, m.CompanyID(req)); err != nil {
			return nil, err
		}
		ctx = tenancy.Into(ctx, scope)
	}
	if at := method.UnknownField(req); at != "" {
		return nil, resource.Invalid(at, "there is no such field")
	}
	if at := method.NULField(req); at != "" {
		return nil, resource.Invalid(strings.ReplaceAll(at, "\x00", ""), "holds a NUL character")
	}
	if err := rpc.Check(g.validate, req); err != nil {
		return nil, err
	}
	if id := m.RequestID(req); id != "" {
		return g.deps.Answers.once(ctx, caller, scope, m, req, id, g.forward)
	}
	return g.forward(ctx, m, req)
}

// forward hands the request to its owner. What an owner doesn't have and what it
// doesn't show to the Company reads the same, whoever wrote the sentence.
func (g *Gate) forward(ctx context.Context, m *method.Method, req proto.Message) (proto.Message, error) {
	out := m.NewOutput()
	err := g.deps.Owners[m.Service].Invoke(ctx, m.FullName, req, out)
	if err == nil {
		return out, nil
	}
	var p *problem.Error
	if errors.As(err, &p) && p.Kind == problem.NotFound {
		return nil, resource.NotFound()
	}
	return nil, err
}

// Authenticate finds whose key secret is. addr is where the call came from: an
// address that tries many unknown keys has to wait.
func (g *Gate) Authenticate(ctx context.Context, secret string, addr netip.Addr) (*app.Key, error) {
	hash := app.HashSecret(secret)
	// What doesn't look like a key costs nothing to refuse.
	if app.WellFormed(secret) && !g.known.has(hash) {
		if ok, wait := g.limiter.Allow("address "+limit.Key(addr), g.cfg.FailuresPerMinute, g.deps.Now()); !ok {
			return nil, tooOften(wait)
		}
	}
	k, err := g.deps.Auth.Authenticate(ctx, secret)
	if err != nil {
		return nil, err
	}
	g.known.add(hash)
	return k, nil
}

// Watch lets a caller that reads with permission through to a Company, as a method with that permission would.
func (g *Gate) Watch(ctx context.Context, caller *app.Key, permission, companyID string) (tenancy.Scope, error) {
	if err := g.spend(caller, reads); err != nil {
		return tenancy.Scope{}, err
	}
	if !caller.Holds(permission) {
		return tenancy.Scope{}, lacks(permission)
	}
	return g.Scope(ctx, caller, companyID)
}

// Scope returns the Company with the given id if the caller's key covers it. The
// name only selects; another Company, a missing one and a garbled name are the same.
func (g *Gate) Scope(ctx context.Context, caller *app.Key, companyID string) (tenancy.Scope, error) {
	scope, err := tenancy.For(companyID)
	if err != nil {
		return tenancy.Scope{}, resource.NotFound()
	}
	if !caller.Operator() {
		if caller.CompanyID != scope.CompanyID() {
			return tenancy.Scope{}, resource.NotFound()
		}
		return scope, nil
	}
	there, err := g.deps.Store.CompanyExists(ctx, scope)
	if err != nil {
		return tenancy.Scope{}, err
	}
	if !there {
		return tenancy.Scope{}, resource.NotFound()
	}
	return scope, nil
}

// budget is one of those that a key has, apart from each other.
type budget string

const (
	reads  budget = "reads"
	writes budget = "writes"
	checks budget = "checks"
)

func budgetOf(m *method.Method) budget {
	switch {
	case m.Checks:
		return checks
	case m.Mutates:
		return writes
	}
	return reads
}

func (g *Gate) spend(caller *app.Key, from budget) error {
	perMinute := map[budget]int{reads: g.cfg.ReadsPerMinute, writes: g.cfg.WritesPerMinute, checks: g.cfg.ChecksPerMinute}[from]
	if ok, wait := g.limiter.Allow(string(from)+" "+caller.ID, perMinute, g.deps.Now()); !ok {
		return tooOften(wait)
	}
	return nil
}

func authorise(caller *app.Key, m *method.Method) error {
	switch m.Audience {
	case adminv1.Audience_AUDIENCE_SELF:
		return nil
	case adminv1.Audience_AUDIENCE_COMPANY:
		if caller.Holds(m.Permission) {
			return nil
		}
	case adminv1.Audience_AUDIENCE_OPERATOR:
		if caller.Operator() {
			return nil
		}
		return problem.New(problem.Forbidden, problem.PermissionDenied, "", "only an operator's key may do this").WithExtra("permission", m.Permission)
	case adminv1.Audience_AUDIENCE_UNSPECIFIED:
	}
	return lacks(m.Permission)
}

func lacks(permission string) error {
	return problem.New(problem.Forbidden, problem.PermissionDenied, "", "the key doesn't hold the permission %s", permission).WithExtra("permission", permission)
}

func tooOften(wait time.Duration) error {
	return problem.New(problem.RateLimited, problem.RateLimitedReason, "", "too many requests").WithRetryAfter(wait)
}

// Unknown answers calls of methods that there aren't.
func Unknown(any, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "no such method")
}
