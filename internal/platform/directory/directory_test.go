package directory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

// service is the DirectoryService in memory. A call takes what is there, tells
// entered that it has, and answers once gate lets it.
type service struct {
	mu      sync.Mutex
	byHost  map[string][]*directoryv1.CompanySnapshot
	err     error
	calls   int
	entered chan struct{}
	gate    chan struct{}
}

func newService() *service { return &service{byHost: map[string][]*directoryv1.CompanySnapshot{}} }

// hold makes calls wait until the returned function is called; entered hears of each.
func (s *service) hold() (entered <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, gate := make(chan struct{}, 100), make(chan struct{})
	s.entered, s.gate = in, gate
	return in, func() {
		s.pass()
		close(gate)
	}
}

// pass lets further calls through; those that wait go on waiting.
func (s *service) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entered, s.gate = nil, nil
}

func (s *service) set(host string, companies ...*directoryv1.CompanySnapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byHost[host] = companies
}

func (s *service) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *service) ResolveHost(ctx context.Context, r *directoryv1.ResolveHostRequest, _ ...grpc.CallOption) (*directoryv1.ResolveHostResponse, error) {
	s.mu.Lock()
	s.calls++
	out, err, entered, gate := s.byHost[r.GetHost()], s.err, s.entered, s.gate
	s.mu.Unlock()
	if gate != nil {
		entered <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &directoryv1.ResolveHostResponse{Companies: out}, err
}

func (s *service) GetCompanySnapshot(ctx context.Context, _ *directoryv1.GetCompanySnapshotRequest, _ ...grpc.CallOption) (*directoryv1.CompanySnapshot, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.err != nil {
		return nil, s.err
	}
	for _, on := range s.byHost {
		for _, c := range on {
			if c.GetCompanyId() == scope.CompanyID() {
				return c, nil
			}
		}
	}
	return nil, problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
}

func snapshot(issuer string) *directoryv1.CompanySnapshot {
	return &directoryv1.CompanySnapshot{CompanyId: ids.New(ids.Company), Issuer: issuer, Active: true, Version: 1}
}

func newClient(s *service) (*directory.Client, *clock.Manual) {
	c := clock.NewManual(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC))
	return directory.New(s, c.Now), c
}

func resolve(t testing.TB, c *directory.Client, host, path string) string {
	t.Helper()
	got, err := c.Resolve(t.Context(), host, path)
	if problem.Is(err, problem.NotFoundReason) {
		return ""
	}
	require.NoError(t, err)
	return got.Issuer.String()
}

func TestResolve_AnswerIsKeptForMaxAge(t *testing.T) {
	s := newService()
	c, now := newClient(s)
	s.set("a.example", snapshot("https://a.example"))
	require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
	s.set("a.example")
	now.Advance(directory.MaxAge - time.Microsecond)
	require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
	require.Equal(t, 1, s.count())
	now.Advance(time.Microsecond)
	require.Empty(t, resolve(t, c, "a.example", "/"))
	require.Equal(t, 2, s.count())
	// That there is nobody is kept as well.
	require.Empty(t, resolve(t, c, "a.example", "/"))
	require.Equal(t, 2, s.count())
}

func TestForget_AsksAnew(t *testing.T) {
	s := newService()
	c, _ := newClient(s)
	require.Empty(t, resolve(t, c, "a.example", "/"))
	s.set("a.example", snapshot("https://a.example"))
	require.Empty(t, resolve(t, c, "a.example", "/"))
	c.Forget()
	require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
}

func TestForget_AnswerFromBeforeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		c, _ := newClient(s)
		s.set("a.example", snapshot("https://a.example/old"))
		entered, release := s.hold()
		first := make(chan string, 1)
		go func() {
			got, err := c.Resolve(t.Context(), "a.example", "/old")
			if err == nil {
				first <- got.Issuer.String()
			}
			close(first)
		}()
		<-entered
		// The Company changes while the question is under way; nobody waits for the old answer.
		s.set("a.example", snapshot("https://a.example/new"))
		c.Forget()
		s.pass()
		require.Equal(t, "https://a.example/new", resolve(t, c, "a.example", "/new"))
		// Coming last, it still isn't kept.
		release()
		require.Equal(t, "https://a.example/old", <-first)
		require.Equal(t, "https://a.example/new", resolve(t, c, "a.example", "/new"))
		require.Equal(t, 2, s.count())
	})
}

func TestResolve_OneQuestionForManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		c, _ := newClient(s)
		s.set("a.example", snapshot("https://a.example"))
		entered, release := s.hold()
		const callers = 20
		var all sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			all.Go(func() {
				_, errs[i] = c.Resolve(t.Context(), "a.example", "/")
			})
		}
		synctest.Wait()
		<-entered
		release()
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.Equal(t, 1, s.count())
	})
}

func TestResolve_OneThatGivesUpFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		c, _ := newClient(s)
		s.set("a.example", snapshot("https://a.example"))
		entered, release := s.hold()
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := c.Resolve(ctx, "a.example", "/")
			gaveUp <- err
		}()
		<-entered
		stayed := make(chan error, 1)
		go func() {
			_, err := c.Resolve(t.Context(), "a.example", "/")
			stayed <- err
		}()
		synctest.Wait()
		cancel()
		// It doesn't wait for the answer either.
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		release()
		require.NoError(t, <-stayed)
		require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
	})
}

func TestResolve_SlowAnswerIsAsOldAsItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		c, now := newClient(s)
		s.set("a.example", snapshot("https://a.example/old"))
		entered, release := s.hold()
		first := make(chan error, 1)
		go func() {
			_, err := c.Resolve(t.Context(), "a.example", "/old")
			first <- err
		}()
		<-entered
		// The bus is silent, the answer takes longer than MaxAge, and somebody joins.
		s.set("a.example", snapshot("https://a.example/new"))
		now.Advance(directory.MaxAge)
		joined := make(chan string, 1)
		go func() {
			got, err := c.Resolve(t.Context(), "a.example", "/new")
			if err == nil {
				joined <- got.Issuer.String()
			}
			close(joined)
		}()
		synctest.Wait()
		release()
		require.NoError(t, <-first)
		require.Equal(t, "https://a.example/new", <-joined)
		require.Equal(t, "https://a.example/new", resolve(t, c, "a.example", "/new"))
	})
}

func TestResolve_FailureIsNotKept(t *testing.T) {
	s := newService()
	c, _ := newClient(s)
	s.set("a.example", snapshot("https://a.example"))
	away := errors.New("away")
	s.fail(away)
	_, err := c.Resolve(t.Context(), "a.example", "/")
	require.ErrorIs(t, err, away)
	s.fail(nil)
	require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
}

func TestResolve_LongestPathThatLeads(t *testing.T) {
	issuers := func(paths ...string) []*directoryv1.CompanySnapshot {
		var out []*directoryv1.CompanySnapshot
		for _, p := range paths {
			out = append(out, snapshot("https://h.example"+p))
		}
		return out
	}
	for name, c := range map[string]struct {
		on   []string
		want map[string]string // path of a request to path of an issuer, "-" for nobody
	}{
		"root alone": {[]string{""}, map[string]string{"/": "", "/x": "", "/.well-known/oauth-authorization-server": "", "": ""}},
		"root and paths": {[]string{"/a", "", "/a/b"}, map[string]string{
			"/": "", "/x": "", "/a": "/a", "/a/": "/a", "/a/x": "/a", "/ab": "", "/A/x": "", "/a/b": "/a/b", "/a/b/x": "/a/b", "/a/bc": "/a",
			"/.well-known/oauth-authorization-server":     "",
			"/.well-known/oauth-authorization-server/a":   "/a",
			"/.well-known/oauth-authorization-server/a/b": "/a/b",
			"/x/a":    "",
			"/%61/x":  "",
			"//a/x":   "",
			"/x/../a": "",
		}},
		"paths without root": {[]string{"/a", "/b"}, map[string]string{"/": "-", "/x": "-", "/a/x": "/a", "/b": "/b", "/.well-known/oauth-authorization-server": "-"}},
		"ends alike": {[]string{"/a", "/b/a"}, map[string]string{
			"/.well-known/oauth-authorization-server/a": "/a", "/.well-known/oauth-authorization-server/b/a": "/b/a", "/b/x": "-", "/b/a/x": "/b/a",
		}},
		"path alone": {[]string{"/a"}, map[string]string{"/a/x": "/a", "/x": "/a", "/": "/a"}},
		"nobody":     {nil, map[string]string{"/": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			s.set("h.example", issuers(c.on...)...)
			client, _ := newClient(s)
			for path, want := range c.want {
				got := resolve(t, client, "h.example", path)
				if want == "-" {
					require.Empty(t, got, path)
					continue
				}
				require.Equal(t, "https://h.example"+want, got, path)
			}
		})
	}
}

func TestMT06_Get_OfItsScopeAlone(t *testing.T) {
	s := newService()
	c, _ := newClient(s)
	a, b := snapshot("https://h.example/a"), snapshot("https://h.example/b")
	a.AnswerDeadline, b.Active = durationpb.New(20*time.Second), false
	s.set("h.example", a, b)
	for range 2 {
		for _, want := range []*directoryv1.CompanySnapshot{a, b} {
			scope, err := tenancy.For(want.GetCompanyId())
			require.NoError(t, err)
			got, err := c.Get(t.Context(), scope)
			require.NoError(t, err)
			require.Equal(t, scope, got.Scope)
			require.Equal(t, want.GetIssuer(), got.Issuer.String())
			require.Equal(t, want.GetActive(), got.Active)
			require.Equal(t, want.GetAnswerDeadline().AsDuration(), got.AnswerDeadline)
		}
	}
	require.Equal(t, 2, s.count())
	unknown, err := tenancy.For(ids.New(ids.Company))
	require.NoError(t, err)
	_, err = c.Get(t.Context(), unknown)
	require.True(t, problem.Is(err, problem.NotFoundReason))
}

func TestResolve_ManyUnknownHostsTakeBoundedMemory(t *testing.T) {
	s := newService()
	c, _ := newClient(s)
	s.set("a.example", snapshot("https://a.example"))
	for i := range 20100 {
		require.Empty(t, resolve(t, c, fmt.Sprintf("u%d.example", i), "/"))
	}
	require.LessOrEqual(t, directory.Entries(c), 20000)
	require.Equal(t, "https://a.example", resolve(t, c, "a.example", "/"))
}

func TestResolve_BrowserSessionEndpoints(t *testing.T) {
	joins := func(issuer, endpoint string, domains ...string) *directoryv1.CompanySnapshot {
		s := snapshot(issuer)
		s.Domains, s.BrowserSession = domains, &directoryv1.BrowserSession{Endpoint: endpoint, CookieName: "c", CookieDomain: "d"}
		return s
	}
	wide := joins("https://wide.hosted.example", "https://door.shop.example:8443/join", "example", "shop.example")
	near := joins("https://near.hosted.example", "https://door.shop.example/join", "door.shop.example")
	far := joins("https://far.hosted.example", "https://door.shop.example/far/join", "shop.example")
	own := joins("https://auth.shop.example/t/a", "https://auth.shop.example/t/a/poppy/browser-session", "shop.example")
	thief := joins("https://thief.hosted.example", "https://auth.shop.example/join", "shop.example")
	s := &service{byHost: map[string][]*directoryv1.CompanySnapshot{
		"door.shop.example": {wide, near, far, snapshot("https://none.hosted.example")}, "alone.shop.example": {wide}, "auth.shop.example": {own, thief},
	}}
	c, _ := newClient(s)
	for at, want := range map[[2]string]string{
		{"door.shop.example", "/join"}:                              near.GetIssuer(),
		{"door.shop.example", "/far/join"}:                          far.GetIssuer(),
		{"door.shop.example", "/"}:                                  "",
		{"door.shop.example", "/join/"}:                             "",
		{"door.shop.example", "/oauth/token"}:                       "",
		{"door.shop.example", "/poppy/browser-session"}:             "",
		{"alone.shop.example", "/join"}:                             "",
		{"auth.shop.example", "/t/a/oauth/token"}:                   own.GetIssuer(),
		{"auth.shop.example", "/t/a/poppy/browser-session"}:         own.GetIssuer(),
		{"auth.shop.example", "/join"}:                              own.GetIssuer(), // its only issuer, with the path taken off
		{"auth.shop.example", "/.well-known/oauth-authorization-x"}: own.GetIssuer(),
	} {
		require.Equal(t, want, resolve(t, c, at[0], at[1]), at)
	}
	got, err := c.Resolve(t.Context(), "door.shop.example", "/join")
	require.NoError(t, err)
	require.Equal(t, &directory.BrowserSession{Endpoint: "https://door.shop.example/join", CookieName: "c", CookieDomain: "d"}, got.Browser)
	require.Nil(t, mustResolve(t, s, snapshot("https://none.example")).Browser)
}

func mustResolve(t *testing.T, s *service, one *directoryv1.CompanySnapshot) *directory.Company {
	t.Helper()
	s.byHost["none.example"] = []*directoryv1.CompanySnapshot{one}
	c, _ := newClient(s)
	got, err := c.Resolve(t.Context(), "none.example", "/")
	require.NoError(t, err)
	return got
}
