package dpop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
)

func TestNormalizeURL_NormalForm(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d2")
	for in, want := range map[string]string{
		"https://a.example":                     "https://a.example/",
		"https://a.example?x":                   "https://a.example/",
		"https://a.example#x":                   "https://a.example/",
		"HtTpS://A.eXample:0443/":               "https://a.example:0443/",
		"https://a.example:443":                 "https://a.example/",
		"http://a.example:80/":                  "http://a.example/",
		"http://a.example:443/":                 "http://a.example:443/",
		"https://[2001:DB8::1]:443/a":           "https://[2001:db8::1]/a",
		"https://[2001:db8::1]/a":               "https://[2001:db8::1]/a",
		"https://a.example/%7euser/%2f%c3%A9":   "https://a.example/~user/%2F%C3%A9",
		"https://a.example/a/b/../../../c":      "https://a.example/c",
		"https://a.example/a/./b/.":             "https://a.example/a/b/",
		"https://a.example/a/b/..":              "https://a.example/a/",
		"https://a.example/..":                  "https://a.example/",
		"https://a.example/a//../b":             "https://a.example/a/b",
		"https://a.example/.hidden/a..b/...":    "https://a.example/.hidden/a..b/...",
		"https://a.example/a/%2E%2e/b;c=1,d:e@": "https://a.example/b;c=1,d:e@",
	} {
		got, err := dpop.NormalizeURL(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
}

func TestNormalizeURL_Refuses(t *testing.T) {
	for _, in := range []string{
		"", "https", "https:", "https:/a.example/", "//a.example/", "/a", "ftp://a.example/", "javascript:alert(1)", "https://",
		"https:///a", "https://?", "https://user@a.example/", "https://a.example:x/", "http://[::1w:80/./", "http://[::1]x/", "http://[]/", "http://[[::1]]/", "http://a:1:2/", "https://:443/", "https://a.example/%", "https://a.example/%2",
		"https://a.example/%zz", "https://a.example/a b", "https://a.example/\x00", "https://a.example/é", "https://a.example\\@b/", "https://a.example/\\",
	} {
		_, err := dpop.NormalizeURL(in)
		require.Error(t, err, in)
	}
}

func FuzzNormalizeURL(f *testing.F) {
	for _, seed := range []string{"https://a.example:443/a/../%7e%2f", "http://[::1]:80/./", "https://a/%2e%2e/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		once, err := dpop.NormalizeURL(raw)
		if err != nil {
			return
		}
		twice, err := dpop.NormalizeURL(once)
		require.NoError(t, err)
		require.Equal(t, once, twice, "not idempotent")
	})
}
