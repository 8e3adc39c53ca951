package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const output = `goos: linux
BenchmarkCheckProof_ES256-2    	    9000	    130000 ns/op	    5000 B/op	      18 allocs/op
BenchmarkCheckProof_ES256-2    	    9000	    125000.5 ns/op	    5000 B/op	      18 allocs/op
BenchmarkBareES256Verify-2     	   10000	    100000 ns/op	     500 B/op	       9 allocs/op
PASS
`

func measured(t *testing.T, text string) map[string]result {
	t.Helper()
	results := map[string]result{}
	parse(strings.NewReader(text), results)
	return results
}

func proofs() []pair { return pairs()[:1] }

func TestReport_WithinBudget(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report(&out, proofs(), measured(t, output)))
	require.Contains(t, out.String(), "125.0 µs")
	require.Contains(t, out.String(), "1.25")
}

func TestReport_TooSlow(t *testing.T) {
	slow := strings.ReplaceAll(output, "100000 ns/op", "90000 ns/op")
	require.ErrorContains(t, report(&bytes.Buffer{}, proofs(), measured(t, slow)), "ratio 1.39 is above 1.30")
}

func TestReport_TooManyAllocations(t *testing.T) {
	many := strings.ReplaceAll(output, "18 allocs/op", "21 allocs/op")
	require.ErrorContains(t, report(&bytes.Buffer{}, proofs(), measured(t, many)), "21 allocations are above 20")
}

func TestParse_SubBenchmarks(t *testing.T) {
	got := measured(t, "BenchmarkRefresh/sqlite-2 \t 200\t 3000000 ns/op\t 9 B/op\t 7 allocs/op\nBenchmarkRefresh/postgres \t 200\t 2000000 ns/op\t 9 B/op\t 7 allocs/op\n")
	require.InDelta(t, 3e6, got["BenchmarkRefresh/sqlite"].nanoseconds, 0)
	require.InDelta(t, 2e6, got["BenchmarkRefresh/postgres"].nanoseconds, 0)
	require.ElementsMatch(t, []string{"BenchmarkSessionStart", "BenchmarkSessionStartFloor", "BenchmarkCodeExchange", "BenchmarkExchangeFloor", "BenchmarkRefresh"},
		benchmarks(pairs(), "./services/auth"))
}

func TestReport_NoResult(t *testing.T) {
	require.ErrorContains(t, report(&bytes.Buffer{}, proofs(), measured(t, "PASS")), "no result")
}
