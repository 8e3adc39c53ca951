package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sources is what the Go files of the tree name.
type sources struct {
	// clauses maps a clause id to the first place that names it.
	clauses map[string]string
	// cases are the ids of the real-world cases that tests are named after, sorted.
	cases []string
}

var (
	clauseName = regexp.MustCompile(`poppy-0\.1/[0-9]+(?:\.[0-9]+)*#d?[0-9]+`)
	// A case's test starts with its id: TestDP05_…, or a subtest named "DP-05 …".
	caseTest = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)([A-Z]{2,3})([0-9]{2,3}[a-z]?)_`)
	caseName = regexp.MustCompile(`"([A-Z]{2,3})-([0-9]{2,3}[a-z]?)[ "_:]`)
)

func scanSources(root string) (sources, error) {
	s := sources{clauses: map[string]string{}}
	cases := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.Contains(filepath.ToSlash(path), "test/specreport/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, id := range clauseName.FindAllString(string(text), -1) {
			if s.clauses[id] == "" {
				s.clauses[id] = path
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, pattern := range []*regexp.Regexp{caseTest, caseName} {
				for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
					cases[m[1]+"-"+m[2]] = true
				}
			}
		}
		return nil
	})
	s.cases = slices.Sorted(maps.Keys(cases))
	return s, err
}
