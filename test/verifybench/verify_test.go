package verifybench_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	// enabled has the measurement made.
	enabled = "POPPYFIELD_BENCH_VERIFY"

	agents   = 20
	alone    = 1_000 // requests that are judged one after the other
	together = 6_000 // and by as many callers as workers at once
	workers  = 32

	apiHost = "api.example.com"
	base    = "https://" + apiHost
	path    = "/orders/7"

	goalLocal = 0.6 // of the ceiling
)

func TestMain(m *testing.M) {
	if os.Getenv(enabled) == "" {
		os.Exit(m.Run())
	}
	hosts := publicnet.Hosts{publicnet.Proxy: whole.ProxyHosts("noodles"), publicnet.Outside: whole.OutsideHosts()}
	os.Exit(publicnet.Main(m, hosts, func() error { return natstest.Build(context.Background()) }))
}

type object = map[string]any

// proven is a request of an agent, with a proof that is good once.
type proven struct{ token, proof string }

// judge asks about one request; anything but yes is an error.
type judge func(ctx context.Context, p proven) error

var errRefused = errors.New("a right request was refused")

func TestVerify(t *testing.T) {
	if os.Getenv(enabled) == "" {
		t.Skip("a measurement: make bench-verify")
	}
	r := newRig(t)
	ceiling := measureCeiling(t)
	fmt.Printf(`
requests to an API that are judged                 a second   of the ceiling   one at a time, ms
                                                                                median      99th
  ES256 verifications, nothing else              %10.0f           100 %%
`, ceiling)
	for _, way := range []struct {
		name  string
		judge judge
		goal  float64
	}{
		{"AccessService.VerifyRequest, by gRPC", r.rpc, 0},
		{"Envoy's ext_authz, by gRPC", r.envoy, 0},
		{"sdk/go, by itself", r.local(t), goalLocal},
	} {
		each := r.one(t, way.judge)
		rate := r.many(t, way.judge)
		goal := ""
		if way.goal > 0 {
			goal = fmt.Sprintf("   goal %.0f %%", 100*way.goal)
		}
		fmt.Printf("  %-44s %12.0f %13.0f %% %11.2f %9.2f%s\n", way.name, rate, 100*rate/ceiling, percentile(each, 50), percentile(each, 99), goal)
	}
	fmt.Printf("\n%d callers at once for the rates. Agents, callers and the product share this machine.\n\n", workers)
}

// percentile is one of what it sorts, in milliseconds.
func percentile(of []time.Duration, p int) float64 {
	slices.Sort(of)
	return float64(of[len(of)*p/100].Microseconds()) / 1000
}

// measureCeiling returns how many signatures all processors verify in a second.
func measureCeiling(t *testing.T) float64 {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	digest := sha256.Sum256([]byte("a signing input"))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	require.NoError(t, err)
	const span = 2 * time.Second
	var done atomic.Int64
	var wait sync.WaitGroup
	begun := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for time.Since(begun) < span {
				if ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
					done.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds()
}

// rig is the built binary with a Company that has an API, and agents with Sessions.
type rig struct {
	company *whole.Company
	key     string
	conn    *grpc.ClientConn
	agents  []*whole.Agent
}

func newRig(t *testing.T) *rig {
	t.Helper()
	outside := whole.StartOutside(t, publicnet.Outside+":443")
	i := whole.Serve(t, outside, whole.InstallationOptions{LogLevel: "warn"})
	r := &rig{company: whole.Onboard(t, i.API, outside, whole.Spec{Slug: "noodles", Domain: whole.Websites()[0]})}
	ctx := t.Context()
	require.NoError(t, i.API.Call(ctx, http.MethodPatch, r.company.Name+"/limits", object{"requests_per_minute": 60_000}, nil))
	require.NoError(t, i.API.Call(ctx, http.MethodPatch, r.company.Name+"/discoverySettings", object{"apis": []any{object{
		"type": "openapi", "url": base + "/openapi.json", "base_urls": []string{base}, "rules": []any{object{"path": "/orders/**"}},
	}}}, nil))
	var made struct{ Key string }
	require.NoError(t, i.API.Call(ctx, http.MethodPost, r.company.Name+"/apiKeys", object{"display_name": "gateway", "scopes": []string{"access.verify"}}, &made))
	r.key = made.Key
	endpoints, err := whole.FindCompany(ctx, i.Client, "https://"+r.company.Domain)
	require.NoError(t, err)
	for range agents {
		a := whole.NewAgent(t, outside, i.Client, endpoints)
		require.NoError(t, a.StartSession(ctx))
		r.agents = append(r.agents, a)
	}
	r.conn, err = poppy.Dial(i.GRPC, r.key, &tls.Config{RootCAs: i.Roots, ServerName: whole.APIHost, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.conn.Close()) })
	// The settings reach every part of the product within moments.
	require.Eventually(t, func() bool { return r.rpc(ctx, r.proven(1)[0]) == nil }, 20*time.Second, 50*time.Millisecond)
	return r
}

// proven signs n requests.
func (r *rig) proven(n int) []proven {
	out := make([]proven, n)
	var wait sync.WaitGroup
	for from := range r.agents {
		wait.Go(func() {
			for i := from; i < n; i += len(r.agents) {
				a := r.agents[from]
				out[i] = proven{a.Token, a.Proof(http.MethodGet, base+path, a.Token)}
			}
		})
	}
	wait.Wait()
	return out
}

// one returns how long each of a number of requests took, one after the other.
func (r *rig) one(t *testing.T, judge judge) []time.Duration {
	t.Helper()
	var out []time.Duration
	for _, p := range r.proven(alone) {
		begun := time.Now()
		require.NoError(t, judge(t.Context(), p))
		out = append(out, time.Since(begun))
	}
	return out
}

// many returns how many requests were judged a second, with as many at once as workers.
func (r *rig) many(t *testing.T, judge judge) float64 {
	t.Helper()
	requests := r.proven(together)
	var next atomic.Int64
	var wait sync.WaitGroup
	failed := make(chan error, workers)
	begun := time.Now()
	for range workers {
		wait.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= together {
					return
				}
				if err := judge(t.Context(), requests[i]); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(begun)
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	return together / elapsed.Seconds()
}

// rpc judges by AccessService.
func (r *rig) rpc(ctx context.Context, p proven) error {
	got, err := adminv1.NewAccessServiceClient(r.conn).VerifyRequest(ctx, &adminv1.VerifyRequestRequest{
		Parent: r.company.Name, Method: http.MethodGet, Url: base + path,
		Headers: []*adminv1.HeaderField{{Name: "Authorization", Value: "DPoP " + p.token}, {Name: "DPoP", Value: p.proof}},
	})
	if err == nil && !got.GetAllowed() {
		err = fmt.Errorf("%w: %s", errRefused, got.GetBody())
	}
	return err
}

// envoy judges by Envoy's external authorization.
func (r *rig) envoy(ctx context.Context, p proven) error {
	got, err := authv3.NewAuthorizationClient(r.conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Scheme: "https", Host: apiHost, Path: path,
			Headers: map[string]string{"authorization": "DPoP " + p.token, "dpop": p.proof},
		}},
	}})
	if err == nil && got.GetOkResponse() == nil {
		err = fmt.Errorf("%w: %s", errRefused, got.GetDeniedResponse().GetBody())
	}
	return err
}

// local judges by the SDK, which knows every token already.
func (r *rig) local(t *testing.T) judge {
	t.Helper()
	asked := &counted{ClientConnInterface: r.conn}
	v, err := poppy.New(t.Context(), poppy.Config{Company: r.company.Name, Conn: asked, BaseURL: base, Local: true})
	require.NoError(t, err)
	t.Cleanup(v.Close)
	verify := func(ctx context.Context, p proven) error {
		d, err := v.Verify(ctx, poppy.Request{Method: http.MethodGet, URL: base + path, Authorization: []string{"DPoP " + p.token}, DPoP: []string{p.proof}})
		if err == nil && !d.Allowed {
			err = fmt.Errorf("%w: %s", errRefused, d.Body)
		}
		return err
	}
	require.Eventually(t, func() bool {
		for _, p := range r.proven(agents) {
			if verify(t.Context(), p) != nil {
				return false
			}
		}
		before := asked.calls.Load()
		for _, p := range r.proven(agents) {
			if verify(t.Context(), p) != nil {
				return false
			}
		}
		return asked.calls.Load() == before
	}, 20*time.Second, 50*time.Millisecond, "the SDK goes on asking")
	return verify
}

// counted counts the calls that the SDK makes.
type counted struct {
	grpc.ClientConnInterface
	calls atomic.Int64
}

// Invoke implements grpc.ClientConnInterface.
func (c *counted) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.calls.Add(1)
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}
