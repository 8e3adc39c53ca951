package relaybench_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// The goals.
const (
	goalCommits   = 2.0  // durable commits that a turn may take at half load, at the median
	goalAdded     = 3.0  // ms beside them
	goalPeak      = 0.60 // of what the database gives as many clients that commit the same rows
	goalIsolation = 0.95 // of the good Companies' turns
)

func report(w io.Writer, r results) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nturns a second / the same rows committed by as many clients\tmeasured\tfloor\tratio\tgoal\t")
	for _, s := range r.Steps {
		goal, verdict := "-", ""
		ratio := s.Relay.PerSecond / s.Floor.PerSecond
		if s.Agents == r.Peak.Agents {
			goal, verdict = fmt.Sprintf("at least %.2f", goalPeak), met(ratio >= goalPeak)
		}
		fmt.Fprintf(t, "%d agents\t%.0f\t%.0f\t%.2f\t%s\t%s\n", s.Agents, s.Relay.PerSecond, s.Floor.PerSecond, ratio, goal, verdict)
	}
	fmt.Fprintf(t, "commits of one row each, %d clients\t\t%.0f\t\t\t\n", r.Peak.Agents, r.Group.PerSecond)

	fmt.Fprintf(t, "\nlatency at half load, %.0f turns/s, ms\tp50\tp95\tp99\tgoal of p50\t\n", r.Offered)
	row := func(what string, f figures, goal string) {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\n", what, f.P50, f.P95, f.P99, goal)
	}
	most := goalCommits*r.Commit.P50 + goalAdded
	added := r.added()
	row("added: turn less the backend's median", added, fmt.Sprintf("at most %.2f\t%s", most, met(added.P50 <= most)))
	row("turn, as the agent sees it", r.Half, "\t")
	row("backend alone, one client", r.Backend, "\t")
	row("commit of one row, one client", r.Commit, "\t")
	fmt.Fprintf(t, "added / (2 commits + 3 ms)\t%.2f\t%.2f\t%.2f\t\t\n",
		added.P50/most, added.P95/(goalCommits*r.Commit.P95+goalAdded), added.P99/(goalCommits*r.Commit.P99+goalAdded))

	alone, beside := sum(r.Alone), sum(r.Beside)
	fmt.Fprintf(t, "\n%d good Companies, turns a second\tbeside 2 bad\talone\tratio\tgoal\t\n", len(r.Alone))
	fmt.Fprintf(t, "all\t%.0f\t%.0f\t%.2f\tat least %.2f\t%s\n", beside, alone, beside/alone, goalIsolation, met(beside/alone >= goalIsolation))
	ratios := make([]float64, len(r.Alone))
	for i := range ratios {
		ratios[i] = r.Beside[i] / r.Alone[i]
	}
	slices.Sort(ratios)
	fmt.Fprintf(t, "each Company: worst, median, best ratio\t%.2f\t%.2f\t%.2f\t\t\n", ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1])

	fmt.Fprintf(t, "all, run by run: alone, beside, beside, alone\t%.0f\t%.0f\t%.0f\t%.0f\t\n", r.Runs[0], r.Runs[1], r.Runs[2], r.Runs[3])

	fmt.Fprint(t, "\na turn at 16 agents writes\tinserts\tupdates\tbytes a row\t\t\n")
	for _, one := range r.Written {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%s\t\t\n", one.Table, one.Inserts, one.Updates, strconv.Itoa(one.Bytes))
	}
	fmt.Fprintf(t, "transactions a turn, reads included\t%.1f\t\t\t\t\n", r.Commits)
	fmt.Fprintf(t, "write-ahead log a turn, bytes\t%.0f\t\t\t\t\n", r.LogBytes)
	fmt.Fprintf(t, "processor time a turn at the peak, service and agents, ms\t%.2f\t\t\t\t\n", r.Peak.CPU)
	fmt.Fprintf(t, "processors busy at the peak, with the database and all others\t%.0f %%\t\t\t\t\n", 100*r.Peak.Busy)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
Sessions are judged by a stub and the directory is one; what they say still comes over
internal gRPC. Agents run in the service's process, PostgreSQL and the backends (HTTPS)
on the same machine. The bad Companies' %d agents made %d requests.

`, 2*bad, r.Outstanding)
	return err
}

// added is what a turn takes beside the backend's own time.
func (r results) added() figures {
	out := r.Half
	out.P50, out.P95, out.P99 = out.P50-r.Backend.P50, out.P95-r.Backend.P50, out.P99-r.Backend.P50
	return out
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

func sum(all []float64) float64 {
	out := 0.0
	for _, v := range all {
		out += v
	}
	return out
}
