package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keep returns what the data directory has under a name, or keeps there what fresh makes.
func (cfg Config) keep(name string, fresh func() (string, error)) (string, error) {
	file := filepath.Join(cfg.DataDir, name)
	kept, err := readPrivate(file)
	if err != nil || kept != "" {
		return kept, err
	}
	if kept, err = fresh(); err != nil {
		return "", err
	}
	return strings.TrimSpace(kept), writePrivate(file, strings.TrimSpace(kept))
}

// readPrivate returns "" for a file that isn't there.
func readPrivate(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", filepath.Base(file), err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// writePrivate writes a file that only its owner may read; it is there whole or not at all.
func writePrivate(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".tmp-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(content + "\n")
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
