// Command benchreport runs the benchmarks that have a floor, prints each beside its
// floor of the same run, and fails when one breaks its budget.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A pair is a benchmark and what it can't be faster than.
type pair struct {
	what, pkg, bench, floor string
	// maxRatio and maxAllocs are the budget; zero means that there is none.
	maxRatio, maxAllocs float64
}

func pairs() []pair {
	out := []pair{
		{
			what: "proof verification / a bare ES256 verification", pkg: "./internal/poppy/dpop",
			bench: "BenchmarkCheckProof_ES256", floor: "BenchmarkBareES256Verify", maxRatio: 1.3, maxAllocs: 20,
		},
		{
			what: "request judged by the SDK, all processors / a bare ES256 verification", pkg: "./sdk/go",
			bench: "BenchmarkVerify_Local", floor: "BenchmarkFloorES256Verify", maxRatio: 1 / 0.6,
		},
		{what: "document / static bytes over TLS", pkg: "./test/bench", bench: "BenchmarkDocument", floor: "BenchmarkFloorDocument"},
		{
			what: "Session start / 3 signatures made and verified, 1 commit", pkg: "./test/bench",
			bench: "BenchmarkSessionStart", floor: "BenchmarkFloorSessionStart",
		},
		{
			what: "relay turn / 3 requests, 2 signatures made and verified, 2 commits", pkg: "./test/bench",
			bench: "BenchmarkRelayTurn", floor: "BenchmarkFloorRelayTurn",
		},
	}
	// Token requests in one process: against what no implementation can save.
	for _, p := range []pair{
		{what: "session start, %s / 3 ES256 verifications", bench: "BenchmarkSessionStart/", floor: "BenchmarkSessionStartFloor"},
		{what: "code exchange, %s / 2 ES256 verifications", bench: "BenchmarkCodeExchange/", floor: "BenchmarkExchangeFloor"},
		{what: "refresh, %s / 2 ES256 verifications", bench: "BenchmarkRefresh/", floor: "BenchmarkExchangeFloor"},
	} {
		for _, database := range []string{"sqlite", "postgres"} {
			out = append(out, pair{what: fmt.Sprintf(p.what, database), pkg: "./services/auth", bench: p.bench + database, floor: p.floor})
		}
	}
	return out
}

// A result is the best of a benchmark's repetitions: noise only ever adds.
type result struct {
	nanoseconds, allocs float64
}

func main() {
	benchtime := flag.String("benchtime", "1s", "as of go test")
	count := flag.Int("count", 3, "repetitions, of which the best counts")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *benchtime, *count); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, benchtime string, count int) error {
	results := map[string]result{}
	for _, pkg := range packages(pairs()) {
		names := strings.Join(benchmarks(pairs(), pkg), "|")
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^("+names+")$", "-benchmem",
			"-benchtime", benchtime, "-count", strconv.Itoa(count), "-timeout", "30m", pkg)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, w), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		parse(&out, results)
	}
	return report(w, pairs(), results)
}

func packages(all []pair) []string {
	var out []string
	for _, p := range all {
		if len(out) == 0 || out[len(out)-1] != p.pkg {
			out = append(out, p.pkg)
		}
	}
	return out
}

// benchmarks are the functions to run, each once, with all their sub-benchmarks.
func benchmarks(all []pair, pkg string) []string {
	var out []string
	for _, p := range all {
		if p.pkg != pkg {
			continue
		}
		for _, name := range []string{p.bench, p.floor} {
			function, _, _ := strings.Cut(name, "/")
			if !slices.Contains(out, function) {
				out = append(out, function)
			}
		}
	}
	return out
}

var line = regexp.MustCompile(`^(Benchmark[\w/]+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?\s([\d.]+) allocs/op`)

func parse(r io.Reader, results map[string]result) {
	for s := bufio.NewScanner(r); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		ns, errNs := strconv.ParseFloat(m[2], 64)
		allocs, errAllocs := strconv.ParseFloat(m[3], 64)
		if errNs != nil || errAllocs != nil {
			continue
		}
		best, ok := results[m[1]]
		if !ok {
			best = result{nanoseconds: math.Inf(1), allocs: math.Inf(1)}
		}
		results[m[1]] = result{nanoseconds: min(best.nanoseconds, ns), allocs: min(best.allocs, allocs)}
	}
}

func report(w io.Writer, all []pair, results map[string]result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nwhat / floor\tmeasured\tfloor\tratio\tallocations\tbudget")
	var problems []error
	for _, p := range all {
		got, ok := results[p.bench]
		floor, okFloor := results[p.floor]
		if !ok || !okFloor {
			problems = append(problems, fmt.Errorf("%s: no result", p.what))
			continue
		}
		ratio := got.nanoseconds / floor.nanoseconds
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%.0f\t%s\n", p.what, duration(got.nanoseconds), duration(floor.nanoseconds), ratio, got.allocs, budget(p))
		if p.maxRatio > 0 && ratio > p.maxRatio {
			problems = append(problems, fmt.Errorf("%s: ratio %.2f is above %.2f", p.what, ratio, p.maxRatio))
		}
		if p.maxAllocs > 0 && got.allocs > p.maxAllocs {
			problems = append(problems, fmt.Errorf("%s: %.0f allocations are above %.0f", p.what, got.allocs, p.maxAllocs))
		}
	}
	return errors.Join(errors.Join(problems...), t.Flush())
}

func budget(p pair) string {
	if p.maxRatio == 0 && p.maxAllocs == 0 {
		return "-"
	}
	return fmt.Sprintf("ratio %.1f, %.0f allocations", p.maxRatio, p.maxAllocs)
}

func duration(nanoseconds float64) string {
	if nanoseconds < 1e6 {
		return fmt.Sprintf("%.1f µs", nanoseconds/1e3)
	}
	return fmt.Sprintf("%.2f ms", nanoseconds/1e6)
}
