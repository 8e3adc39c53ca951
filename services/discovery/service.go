// Package discovery is the service that knows the Companies: it keeps who they are,
// what they publish, which domains they speak for and how their Users sign in, and
// serves their documents.
package discovery

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
	"github.com/poppyfield/poppyfield/services/discovery/rpc"
	"github.com/poppyfield/poppyfield/services/discovery/store"
	"github.com/poppyfield/poppyfield/services/discovery/web"
)

// Config of the service.
type Config struct {
	// HostedDomain, with an optional port, is where issuers are made when a Company names none.
	HostedDomain string
	// Bounds of every Company's limits; the zero Bounds are app.DefaultBounds.
	Bounds app.Bounds
	// EgressAddresses are published as those that requests to Companies come from.
	EgressAddresses []netip.Prefix
	// CheckEvery is how often due domains are looked for; 0 means 15 s.
	CheckEvery time.Duration
}

// Deps of the service.
type Deps struct {
	DB         *db.DB
	Bus        *bus.Bus
	Egress     relayv1.EgressServiceClient
	Deliveries relayv1.DeliveryServiceClient
	Keys       *keys.Ring
	Now        clock.Clock
	Log        *slog.Logger
}

// Service is discovery.
type Service struct {
	app  *app.App
	docs *web.Documents
	cfg  Config
	deps Deps

	stop context.CancelFunc
	done sync.WaitGroup
}

// New makes the service; nothing runs before Start.
func New(cfg Config, deps Deps) *Service {
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 15 * time.Second
	}
	if cfg.Bounds == (app.Bounds{}) {
		cfg.Bounds = app.DefaultBounds()
	}
	s := &Service{cfg: cfg, deps: deps}
	s.app = app.New(app.Config{HostedDomain: cfg.HostedDomain, Bounds: cfg.Bounds}, store.New(deps.DB, deps.Now), egress{deps.Egress}, deps.Keys, deps.Now, s.changed)
	s.docs = web.New(web.Sources{Documents: s.app.Documents, WebhookKeys: s.webhookKeys, Logo: s.app.Logo, EgressAddresses: cfg.EgressAddresses}, deps.Now)
	return s
}

// Register adds the gRPC services that discovery owns.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	adminv1.RegisterCompanyServiceServer(r, &rpc.Companies{App: s.app, Now: s.deps.Now})
	adminv1.RegisterDomainServiceServer(r, &rpc.Domains{App: s.app, Now: s.deps.Now})
	adminv1.RegisterSignInSetupServiceServer(r, &rpc.SignInSetup{App: s.app})
	adminv1.RegisterUsageServiceServer(r, &rpc.Usage{App: s.app, Now: s.deps.Now})
	directoryv1.RegisterDirectoryServiceServer(r, &rpc.Directory{App: s.app})
}

// Routes returns the public endpoints.
func (s *Service) Routes() []publicweb.Route { return s.docs.Routes() }

// Start begins to check due domains.
func (s *Service) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() {
		clock.Every(ctx, s.cfg.CheckEvery, func(ctx context.Context) {
			if err := s.app.CheckDue(ctx, 20); err != nil && ctx.Err() == nil {
				s.deps.Log.WarnContext(ctx, "checking domains", "error", err)
			}
		})
	})
	return nil
}

// Stop ends the checks.
func (s *Service) Stop(context.Context) error {
	if s.stop != nil {
		s.stop()
	}
	s.done.Wait()
	return nil
}

func (s *Service) changed(ctx context.Context, companyID string) {
	subject, err := bus.CompanySubject(companyID)
	if err != nil {
		s.deps.Log.ErrorContext(ctx, "company without a subject", "company", companyID, "error", err)
		return
	}
	s.deps.Bus.Publish(ctx, subject, nil)
}

func (s *Service) webhookKeys(ctx context.Context, scope tenancy.Scope) ([]byte, error) {
	got, err := s.deps.Deliveries.ListPublicKeys(tenancy.Into(ctx, scope), &relayv1.ListPublicKeysRequest{})
	if err != nil {
		return nil, err
	}
	published := make([]webhook.PublishedKey, 0, len(got.GetKeys()))
	for _, k := range got.GetKeys() {
		pub, err := webhook.ParsePublicKey(k.GetPublicKey())
		if err != nil {
			return nil, err
		}
		published = append(published, webhook.PublishedKey{ID: k.GetId(), Key: pub})
	}
	return webhook.BuildKeySet(published)
}

// egress looks at the Internet through relay, the only service that may.
type egress struct{ api relayv1.EgressServiceClient }

const lookTimeout = 4 * time.Second

// Get implements app.Egress.
func (e egress) Get(ctx context.Context, url string) (app.Page, error) {
	got, err := e.api.Fetch(ctx, &relayv1.FetchRequest{Url: url, Accept: "application/json", MaxBytes: 64 << 10, Timeout: durationpb.New(lookTimeout)})
	if err != nil {
		return app.Page{}, err
	}
	p := app.Page{Status: int(got.GetStatus()), ContentType: got.GetContentType(), Location: got.GetHeaders()["Location"], Body: got.GetBody()}
	if got.GetFailure() != "" {
		p.Failure = got.GetDetail()
	}
	return p, nil
}

// TXT implements app.Egress.
func (e egress) TXT(ctx context.Context, name string) ([]string, string, error) {
	got, err := e.api.LookupTxt(ctx, &relayv1.LookupTxtRequest{Name: name})
	if err != nil {
		return nil, "", err
	}
	return got.GetValues(), got.GetDetail(), nil
}
