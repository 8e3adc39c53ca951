package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// insideURLs are spellings of addresses that no stranger may make us connect to.
// PORT stands for the port of a listener on loopback.
func insideURLs() map[string]Kind {
	return map[string]Kind{
		// loopback and its spellings
		"https://127.0.0.1:PORT/":              Blocked,
		"https://127.0.0.2:PORT/":              Blocked,
		"https://127.255.255.254:PORT/":        Blocked,
		"https://127.1:PORT/":                  InvalidURL,
		"https://127.0.1:PORT/":                InvalidURL,
		"https://2130706433:PORT/":             InvalidURL,
		"https://0x7f000001:PORT/":             InvalidURL,
		"https://0x7f.1:PORT/":                 InvalidURL,
		"https://0X7F.0.0.1:PORT/":             InvalidURL,
		"https://0x:PORT/":                     InvalidURL,
		"https://127.0.0.0x1:PORT/":            InvalidURL,
		"https://017700000001:PORT/":           InvalidURL,
		"https://0177.0.0.1:PORT/":             InvalidURL,
		"https://127.0.0.01:PORT/":             InvalidURL,
		"https://127.0.0.1.:PORT/":             InvalidURL,
		"https://127.0.0.1..:PORT/":            InvalidURL,
		"https://127.0.0.256:PORT/":            InvalidURL,
		"https://1.127.0.0.1:PORT/":            InvalidURL,
		"https://foo.1:PORT/":                  InvalidURL,
		"https://0:PORT/":                      InvalidURL,
		"https://0.0.0.0:PORT/":                Blocked,
		"https://localhost:PORT/":              Blocked,
		"https://LOCALHOST:PORT/":              Blocked,
		"https://localhost.:PORT/":             Blocked,
		"https://a.localhost:PORT/":            Blocked,
		"https://A.LocalHost.:PORT/":           Blocked,
		"https://localhost.localdomain:PORT/":  Blocked, // by its answer
		"https://loopback.example:PORT/":       Blocked,
		"https://loopback.example.:PORT/":      Blocked,
		"https://loopback6.example:PORT/":      Blocked,
		"https://mapped.example:PORT/":         Blocked,
		"https://unspecified.example:PORT/":    Blocked,
		"https://private.example:PORT/":        Blocked,
		"https://nat64.example:PORT/":          Blocked,
		"https://[::1]:PORT/":                  Blocked,
		"https://[0:0:0:0:0:0:0:1]:PORT/":      Blocked,
		"https://[::]:PORT/":                   Blocked,
		"https://[::ffff:127.0.0.1]:PORT/":     Blocked,
		"https://[::ffff:7f00:1]:PORT/":        Blocked,
		"https://[::FFFF:7F00:0001]:PORT/":     Blocked,
		"https://[::127.0.0.1]:PORT/":          Blocked,
		"https://[::7f00:1]:PORT/":             Blocked,
		"https://[::ffff:0:127.0.0.1]:PORT/":   Blocked,
		"https://[::ffff:169.254.169.254]/":    Blocked,
		"https://[::ffff:8.8.8.8]/":            Blocked,
		"https://[::1%25lo]:PORT/":             InvalidURL,
		"https://[::1%lo]:PORT/":               InvalidURL,
		"https://[fe80::1%25eth0]:PORT/":       InvalidURL,
		"https://[127.0.0.1]:PORT/":            InvalidURL,
		"https://[localhost]:PORT/":            InvalidURL,
		"https://[::1":                         InvalidURL,
		"https://::1/":                         InvalidURL,
		"https://[64:ff9b::127.0.0.1]:PORT/":   Blocked,
		"https://[64:ff9b::a9fe:a9fe]/":        Blocked,
		"https://[64:ff9b::10.0.0.1]/":         Blocked,
		"https://[64:ff9b:1::8.8.8.8]/":        Blocked,
		"https://[2002:7f00:1::]:PORT/":        Blocked,
		"https://[2002:808:808::1]/":           Blocked,
		"https://[2001:0:808:808::1]/":         Blocked,
		"https://[2600:1::5efe:127.0.0.1]/":    Blocked,
		"https://[2600:1::200:5efe:10.0.0.1]/": Blocked,
		// private, shared, link-local, special
		"https://10.0.0.1/":        Blocked,
		"https://172.16.0.1/":      Blocked,
		"https://172.31.255.255/":  Blocked,
		"https://192.168.1.1/":     Blocked,
		"https://100.64.0.1/":      Blocked,
		"https://100.127.255.255/": Blocked,
		"https://169.254.0.1/":     Blocked,
		"https://192.0.0.8/":       Blocked,
		"https://192.0.2.1/":       Blocked,
		"https://198.51.100.7/":    Blocked,
		"https://203.0.113.7/":     Blocked,
		"https://198.18.0.1/":      Blocked,
		"https://198.19.255.255/":  Blocked,
		"https://192.88.99.1/":     Blocked,
		"https://224.0.0.1/":       Blocked,
		"https://239.255.255.255/": Blocked,
		"https://240.0.0.1/":       Blocked,
		"https://255.255.255.255/": Blocked,
		"https://[fc00::1]/":       Blocked,
		"https://[fd12:3456::1]/":  Blocked,
		"https://[fe80::1]/":       Blocked,
		"https://[fec0::1]/":       Blocked,
		"https://[ff02::1]/":       Blocked,
		"https://[100::1]/":        Blocked,
		"https://[100:0:0:1::1]/":  Blocked,
		"https://[2001:2::1]/":     Blocked,
		"https://[2001:db8::1]/":   Blocked,
		"https://[3fff::1]/":       Blocked,
		"https://[5f00::1]/":       Blocked,
		"https://[2001:10::1]/":    Blocked,
		"https://[2001:20::1]/":    Blocked,
		"https://[4000::1]/":       Blocked,
		// cloud metadata
		"https://169.254.169.254/latest/meta-data/":     Blocked,
		"https://169.254.170.2/v2/credentials":          Blocked,
		"https://[fd00:ec2::254]/":                      Blocked,
		"https://[fd20:ce::254]/":                       Blocked,
		"https://100.100.100.200/":                      Blocked,
		"https://168.63.129.16/":                        Blocked,
		"https://192.0.0.192/":                          Blocked,
		"https://metadata.google.internal/":             Blocked,
		"https://metadata/":                             Blocked,
		"https://kubernetes.default.svc.cluster.local/": Blocked,
		"https://printer.local/":                        Blocked,
		"https://router.home.arpa/":                     Blocked,
		"https://1.0.0.127.in-addr.arpa/":               Blocked,
		// internationalised digits, letters and dots
		"https://１２７.0.0.1:PORT/":       InvalidURL,
		"https://127。0。0。1:PORT/":       InvalidURL,
		"https://①②⑦.0.0.1:PORT/":       InvalidURL,
		"https://127.0.0.1。:PORT/":      InvalidURL,
		"https://０x7f.1:PORT/":          InvalidURL,
		"https://８.8.8.8/":              InvalidURL,
		"https://ｌｏｃａｌｈｏｓｔ:PORT/":       Blocked,
		"https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/":       Blocked,
		"https://local\u00adhost:PORT/": Blocked,
		"https://xn--a:PORT/":           InvalidURL,
		"https://xn--127-.0.0.1:PORT/":  InvalidURL,
		// user information and confusing separators
		"https://public.example@127.0.0.1:PORT/":          InvalidURL,
		"https://public.example:443@127.0.0.1:PORT/":      InvalidURL,
		"https://127.0.0.1:PORT@public.example/":          InvalidURL,
		"https://@127.0.0.1:PORT/":                        InvalidURL,
		"https://public.example\\@127.0.0.1:PORT/":        InvalidURL,
		"https://127.0.0.1:PORT\\.public.example/":        InvalidURL,
		"https://127.0.0.1:PORT#@public.example/":         InvalidURL,
		"https://public.example#@127.0.0.1:PORT/":         InvalidURL,
		"https://127%2e0%2e0%2e1:PORT/":                   InvalidURL,
		"https://%31%32%37.0.0.1:PORT/":                   InvalidURL,
		"https://loopback%2eexample:PORT/":                InvalidURL,
		"https://public.example\t.127.0.0.1:PORT/":        InvalidURL,
		"https://public.example\r\nHost: 127.0.0.1:PORT/": InvalidURL,
		"https://public.example\x00.127.0.0.1:PORT/":      InvalidURL,
		" https://127.0.0.1:PORT/":                        InvalidURL,
		"https:///127.0.0.1:PORT/":                        InvalidURL,
		"https:127.0.0.1:PORT/":                           InvalidURL,
		"https:/127.0.0.1:PORT/":                          InvalidURL,
		"//127.0.0.1:PORT/":                               InvalidURL,
		"https://pub_lic.example/":                        InvalidURL,
		"https://-a.example/":                             InvalidURL,
		"https://a..example/":                             InvalidURL,
		"https://.example/":                               InvalidURL,
		"https://*.example/":                              InvalidURL,
		"https://127.0.0.1:PORT,public.example/":          InvalidURL,
		// ports
		"https://public.example:0/":        InvalidURL,
		"https://public.example:/":         InvalidURL,
		"https://public.example:65536/":    InvalidURL,
		"https://public.example:-1/":       InvalidURL,
		"https://public.example:0443/":     InvalidURL,
		"https://public.example:+443/":     InvalidURL,
		"https://public.example:443:PORT/": InvalidURL,
		"https://public.example:https/":    InvalidURL,
		// schemes
		"":                            InvalidURL,
		"http://public.example/":      InvalidURL,
		"http://127.0.0.1:PORT/":      InvalidURL,
		"file:///etc/passwd":          InvalidURL,
		"gopher://127.0.0.1:PORT/":    InvalidURL,
		"unix:///var/run/docker.sock": InvalidURL,
		"data:application/json,{}":    InvalidURL,
		"https://public.example/" + strings.Repeat("a", MaxURLLength): InvalidURL,
		"https://public.example/\xff":                                 InvalidURL,
	}
}

func insideZone() *zone {
	return &zone{a: map[string][][]string{
		"public.example.":        {{"93.184.215.14"}},
		"localhost.localdomain.": {{"127.0.0.1"}},
		"loopback.example.":      {{"127.0.0.1"}},
		"loopback6.example.":     {{"::1"}},
		"mapped.example.":        {{"::ffff:127.0.0.1"}},
		"unspecified.example.":   {{"0.0.0.0", "::"}},
		"private.example.":       {{"10.1.2.3", "fd00::1", "169.254.169.254"}},
		"nat64.example.":         {{"64:ff9b::7f00:1"}},
	}}
}

func TestCI01_InsideURLMakesNoConnection(t *testing.T) {
	in := newInside(t)
	z := insideZone()
	c := newClient(t, nil, z)
	tried := spy(c)
	require.GreaterOrEqual(t, len(insideURLs()), 60)
	for raw, kind := range insideURLs() {
		raw = strings.ReplaceAll(raw, "PORT", strconv.Itoa(int(in.port)))
		_, err := c.Fetch(t.Context(), Request{URL: raw})
		require.Equal(t, kind, KindOf(err), "GET %q: %v", raw, err)
		_, err = c.Post(t.Context(), PostRequest{URL: raw, Body: []byte("{}")})
		require.Equal(t, kind, KindOf(err), "POST %q: %v", raw, err)
		require.NotContains(t, DetailOf(err), "127.0.0.1", "the detail of %q tells an address", raw)
		require.Empty(t, tried.all(), "%q", raw)
	}
	require.Zero(t, in.accepts.Load())
	for _, name := range z.asked() {
		require.Contains(t, z.a, name, "asked the resolver for a name it should not have seen")
	}
}

func TestCI04_RebindingNameConnectsToNothingUnchecked(t *testing.T) {
	in := newInside(t)
	z := &zone{a: map[string][][]string{"rebind.example.": {{"93.184.215.14"}, {"127.0.0.1"}}}}
	c := newClient(t, nil, z)
	tried := spy(c)
	raw := "https://rebind.example:" + strconv.Itoa(int(in.port)) + "/"

	_, err := c.Fetch(t.Context(), Request{URL: raw})
	require.Equal(t, Connect, KindOf(err), "%v", err)
	require.Equal(t, []string{"93.184.215.14:" + strconv.Itoa(int(in.port))}, tried.all())
	require.Len(t, z.asked(), 1, "the look-up of the check is the look-up of the connection")

	_, err = c.Fetch(t.Context(), Request{URL: raw})
	require.Equal(t, Blocked, KindOf(err))
	require.Len(t, tried.all(), 1)
	require.Zero(t, in.accepts.Load())
}

func TestCI04_MixedAnswersUseOnlyAllowedOnes(t *testing.T) {
	in := newInside(t)
	z := &zone{a: map[string][][]string{"mixed.example.": {{
		"127.0.0.1", "::1", "2606:2800:21f:cb07::1", "::ffff:10.0.0.1", "93.184.215.14", "::ffff:93.184.215.14", "169.254.169.254",
	}}}}
	c := newClient(t, nil, z)
	tried := spy(c)
	port := strconv.Itoa(int(in.port))
	_, err := c.Fetch(t.Context(), Request{URL: "https://mixed.example:" + port + "/"})
	require.Equal(t, Connect, KindOf(err))
	require.ElementsMatch(t, []string{"[2606:2800:21f:cb07::1]:" + port, "93.184.215.14:" + port}, tried.all())
	require.Zero(t, in.accepts.Load())
}

func TestCI04_SocketToAnotherAddressIsRefusedBeforeConnecting(t *testing.T) {
	in := newInside(t)
	z := &zone{a: map[string][][]string{"public.example.": {{"93.184.215.14"}}}}
	c := newClient(t, nil, z)
	// A connect that goes elsewhere, as a rebinding second look-up would make it.
	c.dialer.connect = func(ctx context.Context, _ netip.AddrPort, control controlFunc) (net.Conn, error) {
		return connectTCP(ctx, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), in.port), control)
	}
	_, err := c.Fetch(t.Context(), Request{URL: "https://public.example:" + strconv.Itoa(int(in.port)) + "/"})
	require.Equal(t, Blocked, KindOf(err), "%v", err)
	require.Zero(t, in.accepts.Load())
}

func TestControl_DevHostOpensExactlyItsAddress(t *testing.T) {
	g := NewGuard(GuardConfig{})
	d := &dialer{guard: g}
	dev := target{addr: netip.MustParseAddrPort("127.0.0.1:8443"), dev: true}
	require.NoError(t, d.control(dev)(t.Context(), "tcp4", "127.0.0.1:8443", nil))
	for _, other := range []string{"127.0.0.1:8444", "127.0.0.2:8443", "[::1]:8443", "10.0.0.1:8443", "nonsense"} {
		require.Equal(t, Blocked, KindOf(d.control(dev)(t.Context(), "tcp", other, nil)), other)
	}
	// Without the mark of a dev host the same address does not pass.
	plain := target{addr: dev.addr}
	require.Equal(t, Blocked, KindOf(d.control(plain)(t.Context(), "tcp4", "127.0.0.1:8443", nil)))
}

func TestCheckAddr_RegistriesAreRefusedAtBothEnds(t *testing.T) {
	g := NewGuard(GuardConfig{})
	for _, b := range append(blocksV4(), blocksV6()...) {
		require.Equal(t, b.prefix.Masked(), b.prefix, "%s has host bits", b.name)
		require.Error(t, g.CheckAddr(b.prefix.Addr()), b.name)
		require.Error(t, g.CheckAddr(lastAddr(b.prefix)), b.name)
	}
	require.Error(t, g.CheckAddr(netip.Addr{}))
	require.Error(t, g.CheckAddr(netip.MustParseAddr("2606:4700::1%eth0")))
}

func TestCheckAddr_GloballyReachableIsAccepted(t *testing.T) {
	g := NewGuard(GuardConfig{Deny: []netip.Prefix{netip.MustParsePrefix("34.1.2.3/24"), netip.MustParsePrefix("2600:1:2::/48")}})
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2a00::1",
		"64:ff9b::8.8.8.8",
	} {
		require.NoError(t, g.CheckAddr(netip.MustParseAddr(s)), s)
	}
	for _, s := range []string{"34.1.2.0", "34.1.2.255", "2600:1:2::5", "64:ff9b::34.1.2.9"} {
		require.Error(t, g.CheckAddr(netip.MustParseAddr(s)), s)
	}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestFetch_RedirectToInsideIsReturnedNotFollowed(t *testing.T) {
	in := newInside(t)
	ca := newCA(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{"https://127.0.0.1:PORT/", "http://127.0.0.1:PORT/", "https://localhost:PORT/", "//127.0.0.1:PORT/"} {
			to = strings.ReplaceAll(to, "PORT", strconv.Itoa(int(in.port)))
			s := newSite(t, ca, "agent.example", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			})
			c := newClient(t, ca, nil, s.dev())
			r, err := c.Fetch(t.Context(), Request{URL: "https://agent.example/"})
			require.NoError(t, err)
			require.Equal(t, status, r.Status)
			require.Equal(t, Redirect, KindOf(r.CheckJSON()))
			r, err = c.Post(t.Context(), PostRequest{URL: "https://agent.example/", Body: []byte("{}")})
			require.NoError(t, err)
			require.Equal(t, status, r.Status)
			_, err = c.FetchFollowing(t.Context(), Request{URL: "https://agent.example/"}, 3)
			require.Equal(t, Redirect, KindOf(err))
		}
	}
	require.Zero(t, in.accepts.Load())
}

func TestFetch_ProxyOfEnvironmentIsNotUsed(t *testing.T) {
	in := newInside(t)
	proxy := "http://127.0.0.1:" + strconv.Itoa(int(in.port))
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	c := newClient(t, nil, &zone{a: map[string][][]string{"public.example.": {{"93.184.215.14"}}}})
	tried := spy(c)
	_, err := c.Fetch(t.Context(), Request{URL: "https://public.example/", Timeout: time.Second})
	require.Error(t, err)
	require.Equal(t, []string{"93.184.215.14:443"}, tried.all())
	require.Zero(t, in.accepts.Load())
}
