package app_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
	"github.com/poppyfield/poppyfield/services/discovery/store"
)

// internet is the Internet as written down by a test.
type internet struct {
	mu    sync.Mutex
	pages map[string]app.Page
	txt   map[string][]string
	// dns, when set, is why look-ups of TXT records fail.
	dns string
	// down, when set, is how egress itself fails for a URL or a TXT name; hang never answers there.
	down map[string]error
	hang map[string]bool
	gets []string
}

func (i *internet) Get(ctx context.Context, url string) (app.Page, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gets = append(i.gets, url)
	if err := i.fails(ctx, url); err != nil {
		return app.Page{}, err
	}
	p, ok := i.pages[url]
	if !ok {
		return app.Page{Failure: "the host does not resolve"}, nil
	}
	return p, nil
}

func (i *internet) TXT(ctx context.Context, name string) (values []string, failure string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.fails(ctx, name); err != nil {
		return nil, "", err
	}
	return i.txt[name], i.dns, nil
}

func (i *internet) fails(ctx context.Context, at string) error {
	if i.hang[at] {
		i.mu.Unlock()
		<-ctx.Done()
		i.mu.Lock()
		return ctx.Err()
	}
	return i.down[at]
}

func (i *internet) redirect(from, to string) { i.pages[from] = app.Page{Status: 302, Location: to} }

var errRelay = errors.New("relay is away")

type rig struct {
	*app.App
	net   *internet
	ring  *keys.Ring
	clock *clock.Manual

	mu      sync.Mutex
	changed []string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, app.Config{HostedDomain: "poppyfield.example", Bounds: app.DefaultBounds()})
}

func newRigWith(t testing.TB, cfg app.Config) *rig {
	t.Helper()
	r := &rig{
		net:   &internet{pages: map[string]app.Page{}, txt: map[string][]string{}, down: map[string]error{}, hang: map[string]bool{}},
		clock: clock.NewManual(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)),
	}
	ring, err := keys.NewRing(1, map[byte][]byte{1: bytes.Repeat([]byte{1}, keys.RootSize)})
	require.NoError(t, err)
	r.ring = ring
	r.App = app.New(cfg, store.New(dbtest.SQLite(t), r.clock.Now), r.net, ring, r.clock.Now, func(_ context.Context, id string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed = append(r.changed, id)
	})
	return r
}

// told returns the Companies of which changes were announced since the last call.
func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.changed
	r.changed = nil
	return out
}

// company makes a Company that is being set up.
func (r *rig) company(t testing.TB, slug string) (tenancy.Scope, app.Company) {
	t.Helper()
	return r.companyOfKind(t, slug, app.Live)
}

func (r *rig) companyOfKind(t testing.TB, slug, kind string) (tenancy.Scope, app.Company) {
	t.Helper()
	c, err := r.CreateCompany(t.Context(), app.NewCompany{Slug: slug, DisplayName: "Noodle Bar", Kind: kind})
	require.NoError(t, err)
	scope, err := tenancy.For(c.ID)
	require.NoError(t, err)
	return scope, c
}

// domain registers a domain.
func (r *rig) domain(t testing.TB, scope tenancy.Scope, name string) app.Domain {
	t.Helper()
	d, err := r.CreateDomain(t.Context(), scope, name, false)
	require.NoError(t, err)
	return d
}

// verified registers a domain and proves it.
func (r *rig) verified(t testing.TB, scope tenancy.Scope, name string) {
	t.Helper()
	d := r.domain(t, scope, name)
	r.net.txt[app.TXTName(d.Domain)] = []string{d.TXTValue()}
	_, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.NoError(t, err)
}

// connect changes the connection.
func (r *rig) connect(t testing.TB, scope tenancy.Scope, ch app.ConnectionChange) app.Connection {
	t.Helper()
	got, err := r.UpdateConnection(t.Context(), scope, ch)
	require.NoError(t, err)
	return got
}

// connection returns the connection as stored.
func (r *rig) connection(t testing.TB, scope tenancy.Scope) app.Connection {
	t.Helper()
	s, err := r.Snapshot(t.Context(), scope)
	require.NoError(t, err)
	return s.Connection
}

// state returns the Company as stored.
func (r *rig) state(t testing.TB, scope tenancy.Scope) app.Company {
	t.Helper()
	c, err := r.Company(t.Context(), scope)
	require.NoError(t, err)
	return c
}

func requireReason(t testing.TB, err error, reason problem.Reason, fields ...string) {
	t.Helper()
	require.True(t, problem.Is(err, reason), "%v", err)
	var got []string
	for _, f := range problem.As(err).Fields {
		require.NotEmpty(t, f.Detail)
		got = append(got, f.Path)
	}
	if fields != nil {
		require.Equal(t, fields, got)
	}
}

func keep(*discovery.Settings) error { return nil }
