package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// counts is one row of the table.
type counts struct {
	clauses, marked, shown, positive, negative, both, missing int
}

func (c *counts) add(o counts) {
	c.clauses += o.clauses
	c.marked += o.marked
	c.shown += o.shown
	c.positive += o.positive
	c.negative += o.negative
	c.both += o.both
	c.missing += o.missing
}

// printTable prints a row for every section that has clauses which bind a Company.
func printTable(w io.Writer, registry []clauseEntry, shown map[string]*evidence, only []string) {
	rows := map[string]*counts{}
	for _, c := range registry {
		if !c.company() || !wanted(c.Section, only) {
			continue
		}
		row := rows[c.Section]
		if row == nil {
			row = &counts{}
			rows[c.Section] = row
		}
		row.add(count(c, shown[c.ID]))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "section\tclauses\tmarked\tshown\tpositive\tnegative\tboth\tmissing\t")
	var total counts
	for _, section := range slices.SortedFunc(maps.Keys(rows), bySection) {
		total.add(*rows[section])
		printRow(t, section, *rows[section])
	}
	printRow(t, "all", total)
	_ = t.Flush() // nothing to do where standard output is gone
}

func printRow(w io.Writer, name string, c counts) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, c.clauses, c.marked, c.shown, c.positive, c.negative, c.both, c.missing)
}

func count(c clauseEntry, e *evidence) counts {
	row := counts{clauses: 1}
	if c.Covered {
		row.marked = 1
	}
	if e == nil {
		row.missing = 1
		return row
	}
	row.shown = 1
	if e.positive {
		row.positive = 1
	}
	if e.negative {
		row.negative = 1
	}
	if e.positive && e.negative {
		row.both = 1
	}
	return row
}

func printMissing(w io.Writer, registry []clauseEntry, shown map[string]*evidence, only []string) {
	fmt.Fprintln(w, "\nnot shown by any test:")
	for _, c := range registry {
		if c.company() && wanted(c.Section, only) && shown[c.ID] == nil {
			fmt.Fprintf(w, "  %-20s %-10s %s\n", c.ID, c.Level, c.Text)
		}
	}
	fmt.Fprintln(w, "\nshown in one way only:")
	for _, c := range registry {
		e := shown[c.ID]
		if !c.company() || !wanted(c.Section, only) || e == nil || e.positive && e.negative {
			continue
		}
		lacks := "negative"
		if !e.positive {
			lacks = "positive"
		}
		fmt.Fprintf(w, "  %-20s %-10s lacks a %s test: %s\n", c.ID, c.Level, lacks, c.Text)
	}
}

func printCases(w io.Writer, cases []string) {
	fmt.Fprintf(w, "\n%d real-world cases have a test of their name: %s\n", len(cases), strings.Join(cases, " "))
}

// checkCovered refuses marks that the tests of this run do not bear out.
func checkCovered(registry []clauseEntry, shown map[string]*evidence, databases []string) error {
	var problems []error
	for _, c := range registry {
		if !c.Covered {
			continue
		}
		switch e := shown[c.ID]; {
		case e == nil:
			problems = append(problems, fmt.Errorf("%s is marked as covered and no passing test shows it", c.ID))
		case len(e.lacking) > 0:
			problems = append(problems, fmt.Errorf("%s is marked as covered and not shown on %s (of %s)",
				c.ID, strings.Join(e.lacking, ", "), strings.Join(databases, ", ")))
		}
	}
	return errors.Join(problems...)
}

// checkNamed refuses clause ids in code and records that the registry does not have.
func checkNamed(registry []clauseEntry, names sources, records []clausetest.Record) error {
	known := map[string]bool{}
	for _, c := range registry {
		known[c.ID] = true
	}
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(names.clauses)) {
		if !known[id] {
			problems = append(problems, fmt.Errorf("%s names clause %s, which is not in the registry", names.clauses[id], id))
		}
	}
	for _, r := range records {
		id := string(r.Clause)
		if strings.HasPrefix(id, "poppy-0.1/") && !known[id] && names.clauses[id] == "" {
			known[id] = true // once is enough
			problems = append(problems, fmt.Errorf("%s shows clause %s, which is not in the registry", r.Test, id))
		}
	}
	return errors.Join(problems...)
}

func wanted(section string, only []string) bool {
	return len(only) == 0 || slices.Contains(only, section)
}

// bySection orders 4.10 after 4.9.
func bySection(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		n, errN := strconv.Atoi(x[i])
		m, errM := strconv.Atoi(y[i])
		if errN != nil || errM != nil {
			return cmp.Compare(a, b)
		}
		if n != m {
			return cmp.Compare(n, m)
		}
	}
	return cmp.Compare(len(x), len(y))
}
