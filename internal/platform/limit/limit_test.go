package limit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

func start() time.Time { return time.Unix(1_800_000_000, 0) }

func TestAllow_ABurstAndThenARate(t *testing.T) {
	l := limit.New(0)
	now := start()
	for i := range 6 {
		ok, wait := l.Allow("k", 6, now)
		require.True(t, ok, "%d", i)
		require.Zero(t, wait)
	}
	ok, wait := l.Allow("k", 6, now)
	require.False(t, ok)
	require.Equal(t, 10*time.Second, wait)
	// A refused try costs nothing.
	ok, wait = l.Allow("k", 6, now.Add(9*time.Second))
	require.False(t, ok)
	require.Equal(t, time.Second, wait)
	ok, _ = l.Allow("k", 6, now.Add(10*time.Second))
	require.True(t, ok)
	ok, _ = l.Allow("k", 6, now.Add(10*time.Second))
	require.False(t, ok)
	// After a quiet minute the burst is back.
	for range 6 {
		ok, _ = l.Allow("k", 6, now.Add(2*time.Minute))
		require.True(t, ok)
	}
}

func TestAllow_WaitingAsToldIsEnough(t *testing.T) {
	for _, perMinute := range []int{1, 7, 60, 1000} {
		l, now := limit.New(0), start()
		for range 3 * perMinute {
			ok, wait := l.Allow("k", perMinute, now)
			if !ok {
				require.Positive(t, wait)
				now = now.Add(wait)
				ok, _ = l.Allow("k", perMinute, now)
			}
			require.True(t, ok)
		}
	}
}

func TestAllow_ZeroIsUnlimited(t *testing.T) {
	l := limit.New(0)
	for range 10_000 {
		ok, _ := l.Allow("k", 0, start())
		require.True(t, ok)
	}
	require.Zero(t, l.Len())
}

func TestMT06_KeysAreIndependent(t *testing.T) {
	l := limit.New(0)
	ok, _ := l.Allow("cmp_1/agent", 1, start())
	require.True(t, ok)
	ok, _ = l.Allow("cmp_1/agent", 1, start())
	require.False(t, ok)
	ok, _ = l.Allow("cmp_2/agent", 1, start())
	require.True(t, ok)
}

func TestAllow_ParallelCallersGetTheBurstOnce(t *testing.T) {
	l := limit.New(0)
	var allowed atomic.Int32
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			for range 10 {
				if ok, _ := l.Allow("k", 100, start()); ok {
					allowed.Add(1)
				}
			}
		})
	}
	wait.Wait()
	require.Equal(t, int32(100), allowed.Load())
}

func TestCO05_MemoryIsBoundedAndABusyKeyStaysLimited(t *testing.T) {
	l := limit.New(1600)
	now := start()
	for range 5 {
		l.Allow("busy", 5, now)
	}
	for i := range 1_000_000 {
		l.Allow(strconv.Itoa(i), 5, now)
		if i%20 == 0 { // whoever goes on trying isn't forgotten
			ok, _ := l.Allow("busy", 5, now)
			require.False(t, ok)
		}
	}
	require.LessOrEqual(t, l.Len(), 1600)
}

func request(peer string, forwarded ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	r.Header["X-Forwarded-For"] = forwarded
	return r
}

func TestCO05_ClientAddr(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, c := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"direct":                           {"203.0.113.7:1234", nil, "203.0.113.7"},
		"direct with a claim":              {"203.0.113.7:1234", []string{"198.51.100.1"}, "203.0.113.7"},
		"proxy":                            {"10.1.1.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"proxy adds to what the peer said": {"10.1.1.1:1", []string{"192.0.2.66, 198.51.100.1"}, "198.51.100.1"},
		"two headers":                      {"10.1.1.1:1", []string{"192.0.2.66", "198.51.100.1"}, "198.51.100.1"},
		"two proxies":                      {"10.1.1.1:1", []string{"192.0.2.66, 198.51.100.1 , 10.2.2.2"}, "198.51.100.1"},
		"all are proxies":                  {"10.1.1.1:1", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		"proxy says nothing":               {"10.1.1.1:1", nil, "10.1.1.1"},
		"garbage from the client":          {"10.1.1.1:1", []string{"<script>, 198.51.100.1"}, "198.51.100.1"},
		"garbage at the end":               {"10.1.1.1:1", []string{"198.51.100.1, unknown"}, "10.1.1.1"},
		"with a port":                      {"10.1.1.1:1", []string{"198.51.100.1:5555"}, "198.51.100.1"},
		"IPv6 with a port":                 {"[fd00::1]:1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		"IPv6 in brackets":                 {"[fd00::1]:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"mapped peer":                      {"[::ffff:10.1.1.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"mapped hop":                       {"10.1.1.1:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		"zone":                             {"[fe80::1%eth0]:1", nil, "fe80::1"},
	} {
		require.Equal(t, netip.MustParseAddr(c.want), limit.ClientAddr(request(c.peer, c.forwarded...), trusted), name)
	}
	require.False(t, limit.ClientAddr(request("@"), trusted).IsValid())
	require.Equal(t, "unknown", limit.Key(limit.ClientAddr(request("@"), trusted)))
}

func TestCO05_RandomForwardedForGivesNoFreshKey(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	keys := map[string]bool{}
	for i := range 1000 {
		fake := fmt.Sprintf("192.0.%d.%d", i/250, i%250)
		keys[limit.Key(limit.ClientAddr(request("203.0.113.7:1", fake), trusted))] = true
		keys[limit.Key(limit.ClientAddr(request("10.0.0.1:1", fake+", 203.0.113.7"), trusted))] = true
	}
	require.Equal(t, map[string]bool{"203.0.113.7": true}, keys)
}

func TestCO05_AnIPv6NetworkIsOneClient(t *testing.T) {
	one, two := netip.MustParseAddr("2001:db8:1:2::1"), netip.MustParseAddr("2001:db8:1:2:ffff:ffff:ffff:ffff")
	require.Equal(t, limit.Key(one), limit.Key(two))
	require.NotEqual(t, limit.Key(one), limit.Key(netip.MustParseAddr("2001:db8:1:3::1")))
	require.NotEqual(t, limit.Key(netip.MustParseAddr("192.0.2.1")), limit.Key(netip.MustParseAddr("192.0.2.2")))
}

func FuzzClientAddr(f *testing.F) {
	f.Add("10.0.0.1:1", "1.2.3.4, 5.6.7.8")
	f.Add("[::1]:1", "[::1]:x,,")
	f.Fuzz(func(t *testing.T, peer, forwarded string) {
		trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		a := limit.ClientAddr(request(peer, forwarded), trusted)
		require.NotEmpty(t, limit.Key(a))
		if ap, err := netip.ParseAddrPort(peer); err == nil && !trusted[0].Contains(ap.Addr().Unmap()) {
			require.Equal(t, ap.Addr().Unmap().WithZone(""), a)
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	l, now := limit.New(0), start()
	for i := 0; b.Loop(); i++ {
		l.Allow(strconv.Itoa(i%5000), 1000, now)
	}
}
