// Package clausetest records which clauses of the specification a passing test
// showed. The records are lines of JSON in the directory that the environment
// variable POPPYFIELD_CLAUSE_DIR names; without it nothing is written.
package clausetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
)

// Dir names the environment variable that turns recording on.
const Dir = "POPPYFIELD_CLAUSE_DIR"

// Record is one line of a coverage file: a test that passed and what it showed.
type Record struct {
	Clause clause.ID `json:"clause"`
	Test   string    `json:"test"`
	// Polarity is "positive" where right input got the right answer, "negative"
	// where wrong input was refused.
	Polarity string `json:"polarity"`
}

// Covers records, once t has passed, that right input got the answer that ids ask for.
func Covers(t testing.TB, ids ...clause.ID) {
	t.Helper()
	record(t, "positive", ids)
}

// Refuses records, once t has passed, that input breaking ids was refused as they ask.
func Refuses(t testing.TB, ids ...clause.ID) {
	t.Helper()
	record(t, "negative", ids)
}

var mu sync.Mutex // serialises appends of parallel tests of one process

func record(t testing.TB, polarity string, ids []clause.ID) {
	t.Helper()
	dir := os.Getenv(Dir)
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		name := filepath.Join(dir, filepath.Base(os.Args[0])+"."+strconv.Itoa(os.Getpid())+".jsonl")
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Errorf("recording clauses: %v", err)
			return
		}
		defer f.Close()
		enc := json.NewEncoder(f)
		for _, id := range ids {
			r := Record{Clause: id, Test: t.Name(), Polarity: polarity}
			if err := enc.Encode(r); err != nil {
				t.Errorf("recording clauses: %v", err)
			}
		}
	})
}
