package cimd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func requireInvalidClient(t *testing.T, err error, id clause.ID) {
	t.Helper()
	var e *problem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, problem.InvalidClient, e.Reason)
	require.Equal(t, problem.Unauthenticated, e.Kind)
	require.Equal(t, id, e.Clause, "%v", err)
}

func TestCI10_ClientIDsThatAreKeptAsTheyAre(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#1")
	for in, host := range map[string]string{
		"https://agent.example/agent.json":                            "agent.example",
		"https://agent.example/":                                      "agent.example",
		"https://agent.example:8443/agent.json":                       "agent.example",
		"https://agent.example/agent.json?v=2&x=%2e%2e":               "agent.example",
		"https://agent.example/a/":                                    "agent.example",
		"https://agent.example/Agent%20One/a..b/.well-known/@me;x=1":  "agent.example",
		"https://agent.localhost:43210/agent.json":                    "agent.localhost",
		"https://xn--bcher-kva.example/agent.json":                    "xn--bcher-kva.example",
		"https://203.0.113.7/agent.json":                              "203.0.113.7",
		"https://[2001:db8::1]:8443/agent.json":                       "[2001:db8::1]",
		"https://7.example/a":                                         "7.example",
		"https://agent.example/" + strings.Repeat("a", 2048-22):       "agent.example",
		"https://" + strings.Repeat("a.", 120) + "example/agent.json": strings.Repeat("a.", 120) + "example",
	} {
		id, err := cimd.ParseClientID(in)
		require.NoError(t, err, in)
		require.Equal(t, in, id.String())
		require.Equal(t, host, id.Host())
	}
}

func TestCI10_ClientIDsThatAreRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#1")
	for _, in := range []string{
		"", "agent", "http://agent.example/agent.json", "HTTPS://agent.example/agent.json", "https:agent.example/a", "//agent.example/a",
		"https:///agent.json", "https://agent.example", "https://agent.example?x=1", "https://agent.example#x",
		"https://Agent.example/agent.json", "https://agent.example:443/agent.json", "https://agent.example:/agent.json",
		"https://agent.example:0443/a", "https://agent.example:99999/a", "https://agent.example:-1/a", "https://agent.example:8x/a",
		"https://agent.example/agent.json#x", "https://agent.example/agent.json#", "https://user:pw@agent.example/agent.json",
		"https://user@agent.example/agent.json", "https://agent.example%2f@evil.example/", "https://@agent.example/a",
		"https://agent.example/a/../agent.json", "https://agent.example/./agent.json", "https://agent.example/a/..",
		"https://agent.example/%2e%2e/agent.json", "https://agent.example/a/%2E./agent.json", "https://agent.example/.%2e",
		"https://agent.example/%2e/a", "https://agent.example/..?x=1",
		"https://agent.example/a%", "https://agent.example/%zz", "https://agent.example/a b", "https://agent.example/\x00", "https://agent.example/é",
		"https://agént.example/a", `https://agent.example\@evil.example/`, `https://agent.example/a\b`, "https://agent.example/a\n",
		"https://agent.example./a", "https://.agent.example/a", "https://agent..example/a", "https://localhost./a",
		"https://127.1/a", "https://2130706433/a", "https://0x7f.1/a", "https://0177.0.0.1/a", "https://0x7f000001/a", "https://1.2.3.256/a",
		"https://[::1%25lo]/a", "https://[::1/a", "https://[]/a", "https://[::1]x/a", "https://::1/a",
		"https://" + strings.Repeat("a", 64) + ".example/a", "https://agent.example/" + strings.Repeat("a", 2048),
	} {
		id, err := cimd.ParseClientID(in)
		requireInvalidClient(t, err, cimd.HTTPSClientID)
		require.Zero(t, id, in)
	}
}
