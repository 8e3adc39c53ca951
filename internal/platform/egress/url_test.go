package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckURL_AcceptsAndNormalises(t *testing.T) {
	g := NewGuard(GuardConfig{DevHosts: DevHosts{"agent": {Name: "agent", Addr: netip.MustParseAddr("127.0.0.1")}}})
	for raw, want := range map[string]string{
		"https://Agent.Example":                   "https://agent.example",
		"HTTPS://agent.example/":                  "https://agent.example/",
		"https://agent.example./client.json":      "https://agent.example/client.json",
		"https://agent.example:443/a?b=c%20d":     "https://agent.example/a?b=c%20d",
		"https://agent.example:8443/a":            "https://agent.example:8443/a",
		"https://agent.example:1/":                "https://agent.example:1/",
		"https://bücher.example/":                 "https://xn--bcher-kva.example/",
		"https://BÜCHER.example。/":                "https://xn--bcher-kva.example/",
		"https://ａｇｅｎｔ．example/":                  "https://agent.example/",
		"https://xn--bcher-kva.example/":          "https://xn--bcher-kva.example/",
		"https://r3---sn-a.example/":              "https://r3---sn-a.example/",
		"https://1.example/":                      "https://1.example/",
		"https://0x7f.example/":                   "https://0x7f.example/",
		"https://8.8.8.8/":                        "https://8.8.8.8/",
		"https://[2606:4700:4700:0:0::1111]/":     "https://[2606:4700:4700::1111]/",
		"https://[2606:4700:4700::1111]:8443/":    "https://[2606:4700:4700::1111]:8443/",
		"https://agent/":                          "https://agent/",
		"https://agent.example/@127.0.0.1?u=a@b":  "https://agent.example/@127.0.0.1?u=a@b",
		"https://agent.example?next=//127.0.0.1/": "https://agent.example?next=//127.0.0.1/",
	} {
		u, err := g.CheckURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, u.String(), raw)
	}
	u, err := g.CheckURL("https://agent.example:8443/")
	require.NoError(t, err)
	require.Equal(t, "agent.example", u.Hostname())
	require.Equal(t, uint16(8443), u.Port())
}

func FuzzCheckURL(f *testing.F) {
	for raw := range insideURLs() {
		f.Add(strings.ReplaceAll(raw, "PORT", "8443"))
	}
	for _, raw := range []string{
		"https://agent.example/client.json", "https://bücher.example:1/?q=%C3%BC", "https://[2606:4700::1]/", "https://1.1.1.1:99/a",
	} {
		f.Add(raw)
	}
	g := NewGuard(GuardConfig{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.CheckURL(raw)
		if err != nil {
			kind := KindOf(err)
			require.True(t, kind == InvalidURL || kind == Blocked, "%q: %v", raw, err)
			return
		}
		again, err := g.CheckURL(u.String())
		require.NoError(t, err, "%q became %q", raw, u)
		require.Equal(t, u.String(), again.String())
		require.Equal(t, u.Hostname(), again.Hostname())
		std, err := url.Parse(u.String())
		require.NoError(t, err)
		require.Equal(t, "https", std.Scheme)
		require.Nil(t, std.User)
		require.Equal(t, u.Hostname(), std.Hostname())
		require.NotZero(t, u.Port())
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.NoError(t, g.CheckAddr(addr), raw)
			return
		}
		require.Contains(t, u.Hostname(), ".")
		require.False(t, looksNumeric(u.Hostname()))
		require.Empty(t, strings.Trim(u.Hostname(), "abcdefghijklmnopqrstuvwxyz0123456789-."))
	})
}
