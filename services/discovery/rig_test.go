package discovery_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	poppy "github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/discovery"
)

// internet stands in for relay: DNS, the web and webhook keys as a test writes them.
type internet struct {
	relayv1.UnimplementedEgressServiceServer
	relayv1.UnimplementedDeliveryServiceServer
	mu    sync.Mutex
	txt   map[string]string
	pages map[string]*relayv1.FetchResponse
	keys  map[string][]*relayv1.PublicKey
	asked int
}

func (i *internet) LookupTxt(_ context.Context, r *relayv1.LookupTxtRequest) (*relayv1.LookupTxtResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v := i.txt[r.GetName()]; v != "" {
		return &relayv1.LookupTxtResponse{Values: []string{v}}, nil
	}
	return &relayv1.LookupTxtResponse{}, nil
}

func (i *internet) Fetch(_ context.Context, r *relayv1.FetchRequest) (*relayv1.FetchResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.pages[r.GetUrl()]; p != nil {
		return p, nil
	}
	return &relayv1.FetchResponse{Failure: "dns", Detail: "the host does not resolve"}, nil
}

func (i *internet) ListPublicKeys(ctx context.Context, _ *relayv1.ListPublicKeysRequest) (*relayv1.ListPublicKeysResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	return &relayv1.ListPublicKeysResponse{Keys: i.keys[scope.CompanyID()]}, nil
}

// rig is discovery with everything it runs on, behind the public router.
type rig struct {
	*internet
	service   *discovery.Service
	router    *publicweb.Router
	dir       *directory.Client
	clock     *clock.Manual
	companies adminv1.CompanyServiceClient
	domains   adminv1.DomainServiceClient
	setup     adminv1.SignInSetupServiceClient
	usage     adminv1.UsageServiceClient
	api       directoryv1.DirectoryServiceClient
	db        *db.DB
	ring      *keys.Ring
	log       *lockedBuffer // everything that was logged, whatever its level
}

// lockedBuffer takes what is logged.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type options struct {
	// silent leaves the directory without news from the bus.
	silent bool
}

// each runs fn on a rig of each kind of database.
func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newRigOn(t, d, options{})) })
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, dbtest.SQLite(t), options{})
}

const caller = "test"

func newRigOn(t testing.TB, d *db.DB, o options) *rig {
	t.Helper()
	r := &rig{
		db: d, log: &lockedBuffer{},
		internet: &internet{txt: map[string]string{}, pages: map[string]*relayv1.FetchResponse{}, keys: map[string][]*relayv1.PublicKey{}},
		clock:    clock.NewManual(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)),
	}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	r.ring, err = keys.NewRing(1, map[byte][]byte{1: bytes.Repeat([]byte{1}, keys.RootSize)})
	require.NoError(t, err)
	b, err := bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}, Log: log})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	allow := rpc.Allow{}
	for _, name := range []string{
		adminv1.CompanyService_ServiceDesc.ServiceName, adminv1.DomainService_ServiceDesc.ServiceName,
		adminv1.SignInSetupService_ServiceDesc.ServiceName, adminv1.UsageService_ServiceDesc.ServiceName, directoryv1.DirectoryService_ServiceDesc.ServiceName,
		relayv1.EgressService_ServiceDesc.ServiceName, relayv1.DeliveryService_ServiceDesc.ServiceName,
	} {
		allow[name] = []string{caller}
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Name: "test", Secret: "0123456789abcdef0123456789abcdef", Allow: allow, Log: log})
	require.NoError(t, err)
	conn, err := server.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r.service = discovery.New(discovery.Config{
		HostedDomain: "poppyfield.example", CheckEvery: time.Millisecond,
		EgressAddresses: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("2001:db8::/64")},
	}, discovery.Deps{
		DB: d, Bus: b, Egress: relayv1.NewEgressServiceClient(conn), Deliveries: relayv1.NewDeliveryServiceClient(conn),
		Keys: r.ring, Now: r.clock.Now, Log: log,
	})
	r.service.Register(server)
	relayv1.RegisterEgressServiceServer(server, r.internet)
	relayv1.RegisterDeliveryServiceServer(server, r.internet)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(nil) }()
	t.Cleanup(func() { server.Stop(); <-done })

	r.companies, r.domains = adminv1.NewCompanyServiceClient(conn), adminv1.NewDomainServiceClient(conn)
	r.setup, r.usage = adminv1.NewSignInSetupServiceClient(conn), adminv1.NewUsageServiceClient(conn)
	r.api = directoryv1.NewDirectoryServiceClient(conn)
	r.dir = directory.New(r.api, r.clock.Now)
	if !o.silent {
		_, err = b.Subscribe(bus.AllCompanies, func(context.Context, string, []byte) { r.dir.Forget() })
		require.NoError(t, err)
	}
	r.router = publicweb.New(r.dir, r.service.Routes())
	return r
}

// tenant is a Company of the rig.
type tenant struct {
	scope  tenancy.Scope
	name   string
	issuer poppy.Issuer
}

func (c tenant) ctx(t testing.TB) context.Context { return tenancy.Into(t.Context(), c.scope) }

// setUp makes a Company that isn't published yet; issuer may be empty.
func (r *rig) setUp(t testing.TB, slug, issuer string) tenant {
	t.Helper()
	return r.setUpAs(t, slug, issuer, adminv1.CompanyKind_COMPANY_KIND_LIVE)
}

func (r *rig) setUpAs(t testing.TB, slug, issuer string, kind adminv1.CompanyKind) tenant {
	t.Helper()
	got, err := r.companies.CreateCompany(rpc.WithActor(t.Context(), "operatorKeys/k1"), &adminv1.CreateCompanyRequest{
		Company: &adminv1.Company{Slug: slug, DisplayName: "Noodle Bar " + slug, Issuer: issuer, Kind: kind},
	})
	require.NoError(t, err)
	scope, err := tenancy.For(got.GetUid())
	require.NoError(t, err)
	i, err := poppy.ParseIssuer(got.GetIssuer())
	require.NoError(t, err)
	return tenant{scope: scope, name: got.GetName(), issuer: i}
}

// company makes a published Company that speaks for domains.
func (r *rig) company(t testing.TB, slug, issuer string, domains ...string) tenant {
	t.Helper()
	c := r.setUp(t, slug, issuer)
	r.publish(t, c)
	for _, d := range domains {
		r.verify(t, c, d)
	}
	return c
}

func (r *rig) publish(t testing.TB, c tenant) {
	t.Helper()
	_, err := r.companies.PublishCompany(c.ctx(t), &adminv1.PublishCompanyRequest{Name: c.name})
	require.NoError(t, err)
	r.dir.Forget()
}

// register makes a domain that is to be proven.
func (r *rig) register(t testing.TB, c tenant, domain string) *adminv1.Domain {
	t.Helper()
	d, err := r.domains.CreateDomain(c.ctx(t), &adminv1.CreateDomainRequest{Parent: c.name, Domain: &adminv1.Domain{Domain: domain}})
	require.NoError(t, err)
	return d
}

// verify registers a domain, proves it by DNS and returns its resource name.
func (r *rig) verify(t testing.TB, c tenant, domain string) string {
	t.Helper()
	d := r.register(t, c, domain)
	r.mu.Lock()
	r.txt[d.GetTxtName()] = d.GetTxtValue()
	r.mu.Unlock()
	got, err := r.domains.CheckDomain(c.ctx(t), &adminv1.CheckDomainRequest{Name: d.GetName()})
	require.NoError(t, err)
	require.Equal(t, adminv1.DomainState_DOMAIN_STATE_VERIFIED, got.GetState())
	r.dir.Forget()
	return d.GetName()
}

// settings changes discovery settings.
func (r *rig) settings(t testing.TB, c tenant, s *adminv1.DiscoverySettings) {
	t.Helper()
	s.Name = c.name + "/discoverySettings"
	_, err := r.companies.UpdateDiscoverySettings(c.ctx(t), &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: s})
	require.NoError(t, err)
	r.dir.Forget()
}

// ask sends a request for a URL to the router. Header fields come in pairs; Host is one.
func (r *rig) ask(t testing.TB, method, url string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, url, nil)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.router.ServeHTTP(w, req)
	return w
}

func (r *rig) get(t testing.TB, url string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return r.ask(t, http.MethodGet, url, header...)
}

// fetch returns the body of a JSON document that is there.
func (r *rig) fetch(t testing.TB, url string, header ...string) []byte {
	t.Helper()
	w := r.get(t, url, header...)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", url, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return w.Body.Bytes()
}

// requireMissing checks that an answer is the one that everything missing gets.
func requireMissing(t testing.TB, w *httptest.ResponseRecorder, what string) {
	t.Helper()
	require.Equal(t, http.StatusNotFound, w.Code, what)
	require.Equal(t, `{"error":"not_found"}`, w.Body.String(), what)
	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"21"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"},
	}, w.Header(), what)
}

func documentURL(t testing.TB, c tenant, domain string) string {
	t.Helper()
	d, err := poppy.ParseDomain(domain)
	require.NoError(t, err)
	return c.issuer.DocumentURL(d)
}
