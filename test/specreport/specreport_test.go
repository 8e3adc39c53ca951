package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

const registryText = `# a comment that stays
spec: "poppy-0.1"
version: "0.1"
clauses:
  - id: "poppy-0.1/3#1"
    section: "3"
    level: "MUST"
    side: "company"
    text: "One."
    seen_from_outside: true
    source: "text"
  # between two
  - id: "poppy-0.1/3#2"
    section: "3"
    level: "FACT"
    side: "both"
    text: "Two."
    seen_from_outside: true
    source: "text"
    covered: true
`

func tree(t *testing.T, source string, records ...clausetest.Record) options {
	t.Helper()
	dir := t.TempDir()
	o := options{
		registry: filepath.Join(dir, "registry.yaml"), records: filepath.Join(dir, "records"), root: filepath.Join(dir, "src"),
		databases: []string{"sqlite", "postgres"},
	}
	require.NoError(t, os.WriteFile(o.registry, []byte(registryText), 0o600))
	for _, d := range []string{o.records, o.root} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.root, "a_test.go"), []byte(source), 0o600))
	var lines bytes.Buffer
	for _, r := range records {
		require.NoError(t, json.NewEncoder(&lines).Encode(r))
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.records, "a.jsonl"), lines.Bytes(), 0o600))
	return o
}

func record(id, database string) clausetest.Record {
	return clausetest.Record{Clause: clause.ID(id), Test: strings.TrimSuffix("TestX/"+database, "/"), Polarity: "positive"}
}

func TestRun_CoveredClauseShownOnBothDatabases(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#2", "sqlite"), record("poppy-0.1/3#2", "postgres"))
	require.NoError(t, run(&bytes.Buffer{}, o))
}

func TestRun_CoveredClauseShownWithoutDatabase(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#2", ""))
	require.NoError(t, run(&bytes.Buffer{}, o))
}

func TestRun_CoveredClauseShownOnOneDatabaseOnly(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#2", "sqlite"))
	require.ErrorContains(t, run(&bytes.Buffer{}, o), "poppy-0.1/3#2 is marked as covered and not shown on postgres")
}

func TestRun_CoveredClauseWithoutTest(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#1", ""))
	require.ErrorContains(t, run(&bytes.Buffer{}, o), "poppy-0.1/3#2 is marked as covered and no passing test shows it")
}

func TestRun_CodeNamesUnknownClause(t *testing.T) {
	o := tree(t, `package a; const x = "poppy-0.1/3#99"`, record("poppy-0.1/3#2", ""))
	require.ErrorContains(t, run(&bytes.Buffer{}, o), "names clause poppy-0.1/3#99")
}

func TestRun_TestShowsUnknownClause(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#2", ""), record("poppy-0.1/3#98", ""))
	require.ErrorContains(t, run(&bytes.Buffer{}, o), "TestX shows clause poppy-0.1/3#98")
}

func TestRun_NoRecords(t *testing.T) {
	o := tree(t, "package a")
	require.NoError(t, os.Remove(filepath.Join(o.records, "a.jsonl")))
	require.ErrorContains(t, run(&bytes.Buffer{}, o), "no records")
}

func TestRun_ListsCases(t *testing.T) {
	source := "package a\nfunc TestDP05_Query(t *testing.T) {\n\tt.Run(\"CI-01 mapped\", nil)\n}\n"
	o := tree(t, source, record("poppy-0.1/3#2", ""))
	var out bytes.Buffer
	require.NoError(t, run(&out, o))
	require.Contains(t, out.String(), "2 real-world cases have a test of their name: CI-01 DP-05")
}

func TestRun_MarkAddsTheMarkAndNothingElse(t *testing.T) {
	o := tree(t, "package a", record("poppy-0.1/3#1", ""), record("poppy-0.1/3#2", ""))
	o.mark = true
	require.NoError(t, run(&bytes.Buffer{}, o))
	text, err := os.ReadFile(o.registry)
	require.NoError(t, err)
	want := bytes.Replace([]byte(registryText), []byte("    source: \"text\"\n  # between"),
		[]byte("    source: \"text\"\n    covered: true\n  # between"), 1)
	require.Equal(t, string(want), string(text))
}
