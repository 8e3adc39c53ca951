package httpx_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
)

func TestMT07_EqualHostsAreOneName(t *testing.T) {
	for _, host := range []string{"acme.example", "ACME.EXAMPLE", "acme.example.", "Acme.Example.", "acme.example:", "acme.example:443", "ACME.example.:8443"} {
		name, port, ok := httpx.NormalizeHost(host)
		require.True(t, ok, host)
		require.Equal(t, "acme.example", name, host)
		_, after, _ := strings.Cut(host, ":")
		require.Equal(t, after, port, host)
	}
}

func TestNormalizeHost_Addresses(t *testing.T) {
	for host, want := range map[string][2]string{
		"127.0.0.1:8080":    {"127.0.0.1", "8080"},
		"[::1]":             {"::1", ""},
		"[::1]:8443":        {"::1", "8443"},
		"[2001:DB8:0::1]":   {"2001:db8::1", ""},
		"localhost":         {"localhost", ""},
		"a_b.c-d.example":   {"a_b.c-d.example", ""},
		"xn--bcher-kva.com": {"xn--bcher-kva.com", ""},
	} {
		name, port, ok := httpx.NormalizeHost(host)
		require.True(t, ok, host)
		require.Equal(t, want, [2]string{name, port}, host)
	}
}

func TestDP11_MalformedHostBelongsToNobody(t *testing.T) {
	for _, host := range []string{
		"", ".", "..", ":", ":443", "exa mple:abc", "acme.example:abc", "acme.example:0", "acme.example:65536", "acme.example:-1", "acme.example:+1", "acme.example:80:80",
		"acme..example", ".acme.example", "acme.example..", "-acme.example", "acme-.example", "user@acme.example", "acme.example/x", "acme.example?x", "acme%2eexample",
		"bücher.example", "acme\x00.example", "a,b", "[::1", "::1", "[::1]x", "[::1]:x", "[1.2.3.4]", "[fe80::1%25eth0]", "[]", "*.example",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "aa",
	} {
		name, port, ok := httpx.NormalizeHost(host)
		require.False(t, ok, host)
		require.Empty(t, name+port)
	}
}

func FuzzNormalizeHost(f *testing.F) {
	for _, s := range []string{"acme.example:443", "[::1]:1", "exa mple:abc", "A.", "[", "]:["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, _, ok := httpx.NormalizeHost(host)
		if !ok {
			return
		}
		require.NotEmpty(t, name)
		require.Equal(t, strings.ToLower(name), name)
		require.NotContains(t, name, "/")
		if !strings.Contains(name, ":") {
			again, port, ok := httpx.NormalizeHost(name)
			require.True(t, ok)
			require.Equal(t, name, again)
			require.Empty(t, port)
		}
	})
}
