// Command specreport compares the registry of the specification's clauses with what
// the tests of a run showed, prints a table, and fails when they contradict each
// other: a clause marked as covered that no passing test showed on every database,
// or code that names a clause which does not exist.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

type options struct {
	registry, records, root string
	databases, sections     []string
	missing, mark           bool
}

func main() {
	var o options
	var databases, sections string
	flag.StringVar(&o.registry, "registry", "docs/specs/poppy-0.1.yaml", "the registry of clauses")
	flag.StringVar(&o.records, "records", ".cache/clauses", "folder with the records of a test run")
	flag.StringVar(&o.root, "root", ".", "root of the source tree")
	flag.StringVar(&databases, "databases", "sqlite,postgres", "where a covered clause must have passed; a test says in its name which it uses")
	flag.StringVar(&sections, "sections", "", "sections to report, separated by commas; empty for all")
	flag.BoolVar(&o.missing, "missing", false, "list the Company's clauses that no test showed")
	flag.BoolVar(&o.mark, "mark", false, "mark every clause with records on all databases as covered in the registry")
	flag.Parse()
	o.databases, o.sections = list(databases), list(sections)
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "specreport:", err)
		os.Exit(1)
	}
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func run(w io.Writer, o options) error {
	registry, err := readRegistry(o.registry)
	if err != nil {
		return err
	}
	records, err := readRecords(o.records)
	if err != nil {
		return err
	}
	names, err := scanSources(o.root)
	if err != nil {
		return err
	}
	shown := collect(records, o.databases)
	if o.mark {
		n, err := markCovered(o.registry, shown)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d clauses newly marked as covered\n", n)
		if registry, err = readRegistry(o.registry); err != nil {
			return err
		}
	}
	printTable(w, registry, shown, o.sections)
	if o.missing {
		printMissing(w, registry, shown, o.sections)
	}
	printCases(w, names.cases)
	return errors.Join(
		checkCovered(registry, shown, o.databases),
		checkNamed(registry, names, records),
	)
}
