// Command generate writes the test vectors of sdk/vectors: what every SDK has to decide,
// to the byte. Keys and times are fixed and signatures deterministic, so that it writes
// the same files each time. It fails where the product decides otherwise than a case says.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", "sdk/vectors", "where the files go")
	flag.Parse()
	if err := write(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	files, err := build()
	if err != nil {
		return err
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil { //nolint:gosec // test vectors are for everybody
			return err
		}
	}
	return nil
}

// build makes all files, by name.
func build() (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, file := range map[string]func() (any, error){"proofs.json": proofs, "rules.json": rules, "webhooks.json": webhooks} {
		v, err := file()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = buf.Bytes()
	}
	return out, nil
}

// want is what a request is answered.
type want struct {
	Allowed bool              `json:"allowed"`
	Error   string            `json:"error,omitempty"`
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}
