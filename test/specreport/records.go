package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// evidence is what the passing tests of a run showed about one clause.
type evidence struct {
	positive, negative bool
	tests              []string
	// lacking are the databases that no test has shown the clause on. A test whose name
	// has none of them in it shows it on all: it uses no database, or covers its
	// subtests on each.
	lacking []string
}

func readRecords(dir string) ([]clausetest.Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no records in %s", dir)
	}
	var all []clausetest.Record
	for _, name := range files {
		records, err := readRecordFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

func readRecordFile(name string) ([]clausetest.Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var records []clausetest.Record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r clausetest.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

func collect(records []clausetest.Record, databases []string) map[string]*evidence {
	shown := map[string]*evidence{}
	for _, r := range records {
		e := shown[string(r.Clause)]
		if e == nil {
			e = &evidence{lacking: slices.Clone(databases)}
			shown[string(r.Clause)] = e
		}
		e.positive = e.positive || r.Polarity == "positive"
		e.negative = e.negative || r.Polarity == "negative"
		if !slices.Contains(e.tests, r.Test) {
			e.tests = append(e.tests, r.Test)
		}
		e.lacking = without(e.lacking, r.Test, databases)
	}
	return shown
}

// without removes the database that a test ran on, which a part of the test's name
// says, from those lacking.
func without(lacking []string, test string, databases []string) []string {
	for part := range strings.SplitSeq(test, "/") {
		if slices.Contains(databases, part) {
			return slices.DeleteFunc(lacking, func(d string) bool { return d == part })
		}
	}
	return nil
}
