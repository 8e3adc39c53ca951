package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A clauseEntry is one clause of the registry.
type clauseEntry struct {
	ID      string `yaml:"id"`
	Section string `yaml:"section"`
	Level   string `yaml:"level"`
	Side    string `yaml:"side"`
	Text    string `yaml:"text"`
	Seen    bool   `yaml:"seen_from_outside"`
	Source  string `yaml:"source"`
	// Covered says that a test shows the clause and has to go on showing it.
	Covered bool `yaml:"covered"`
}

// company says whether the clause binds a Company.
func (c clauseEntry) company() bool { return c.Side != "agent" }

func readRegistry(path string) ([]clauseEntry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Spec    string        `yaml:"spec"`
		Version string        `yaml:"version"`
		Levels  []string      `yaml:"levels"`
		Sides   []string      `yaml:"sides"`
		Clauses []clauseEntry `yaml:"clauses"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	for _, c := range file.Clauses {
		if seen[c.ID] {
			return nil, fmt.Errorf("%s: clause %s stands twice", path, c.ID)
		}
		seen[c.ID] = true
	}
	return file.Clauses, nil
}

var (
	idLine    = regexp.MustCompile(`^  - id: "([^"]+)"$`)
	fieldLine = regexp.MustCompile(`^    [a-z_]+: `)
)

// markCovered adds the mark to every clause that is shown on all databases and has
// none yet. It edits lines, so that comments and layout stay as they are.
func markCovered(path string, shown map[string]*evidence) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(text), "\n")
	out := make([]string, 0, len(lines))
	marked := 0
	for i := 0; i < len(lines); {
		out = append(out, lines[i])
		m := idLine.FindStringSubmatch(lines[i])
		i++
		if m == nil {
			continue
		}
		has := false
		for ; i < len(lines) && fieldLine.MatchString(lines[i]); i++ {
			has = has || strings.HasPrefix(lines[i], "    covered:")
			out = append(out, lines[i])
		}
		if e := shown[m[1]]; !has && e != nil && len(e.lacking) == 0 {
			out = append(out, "    covered: true")
			marked++
		}
	}
	return marked, os.WriteFile(path, []byte(strings.Join(out, "\n")), 0o644)
}
