package keys

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// RootSize is the length of a root key in bytes.
const RootSize = 32

// Ring holds the versions of the installation's root key. The current one seals,
// all of them open. It is safe for concurrent use.
type Ring struct {
	current byte
	roots   map[byte][RootSize]byte
}

// NewRing makes a ring of root keys of 32 bytes with versions from 1 to 255.
func NewRing(current byte, roots map[byte][]byte) (*Ring, error) {
	r := &Ring{current: current, roots: make(map[byte][RootSize]byte, len(roots))}
	for version, root := range roots {
		if version == 0 || len(root) != RootSize {
			return nil, fmt.Errorf("keys: root key version %d has %d bytes; versions start at 1 and keys have %d bytes", version, len(root), RootSize)
		}
		r.roots[version] = [RootSize]byte(root)
	}
	if _, ok := r.roots[current]; !ok {
		return nil, fmt.Errorf("keys: there is no root key of the current version %d", current)
	}
	return r, nil
}

// ParseRing reads lines of "version:base64 of 32 bytes"; empty lines and lines that
// begin with # don't count. The highest version is the current one. Errors name a
// line by its number and never show it.
func ParseRing(text []byte) (*Ring, error) {
	roots := map[byte][]byte{}
	var current byte
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		version, err := strconv.ParseUint(strings.TrimSpace(left), 10, 8)
		if !ok || err != nil || version == 0 {
			return nil, fmt.Errorf("keys: line %d is not of the form version:base64, with a version from 1 to 255", n)
		}
		root, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(right))
		if err != nil || len(root) != RootSize {
			return nil, fmt.Errorf("keys: the key on line %d is not the base64 of %d bytes", n, RootSize)
		}
		if _, twice := roots[byte(version)]; twice {
			return nil, fmt.Errorf("keys: line %d repeats version %d", n, version)
		}
		roots[byte(version)] = root
		current = max(current, byte(version))
	}
	if len(roots) == 0 {
		return nil, errors.New("keys: there is no root key")
	}
	return NewRing(current, roots)
}

// LoadRing reads the ring from a file, in the form of ParseRing.
func LoadRing(path string) (*Ring, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("keys: reading the root key: %w", err)
	}
	return ParseRing(text)
}

// LoadOrCreate reads the ring from a file, or writes one with a fresh key that
// only its owner may read. Of two processes that find no file one creates it and
// both use it. A lost file makes everything sealed with it unreadable.
func LoadOrCreate(path string) (*Ring, error) {
	ring, err := LoadRing(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return ring, err
	}
	var root [RootSize]byte
	rand.Read(root[:]) // never fails
	// The file appears under its name with all its contents, so nobody reads half of it.
	tmp, err := os.CreateTemp(dirOf(path), ".root-key-*")
	if err != nil {
		return nil, fmt.Errorf("keys: creating the root key: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone or not, its name is never read
	text := "1:" + base64.StdEncoding.EncodeToString(root[:]) + "\n"
	if err := errors.Join(writeAll(tmp, text), tmp.Close()); err != nil {
		return nil, fmt.Errorf("keys: writing the root key: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("keys: writing the root key: %w", err)
	}
	return LoadRing(path)
}

func writeAll(f *os.File, text string) error {
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

func dirOf(path string) string {
	if i := strings.LastIndexByte(path, os.PathSeparator); i > 0 {
		return path[:i]
	} else if i == 0 {
		return string(os.PathSeparator)
	}
	return "."
}

// Derive returns a key of the Company for one purpose, from the current root key:
// it changes when the root is rotated. A key that has to last is random and sealed.
func (r *Ring) Derive(companyID, purpose string) [32]byte {
	key, _ := r.derive(r.current, "derive", companyID, purpose)
	return key
}

// DeriveAll returns Derive's key first, then what Derive returned, or returns in
// another process, for the ring's other versions. It finds what is kept for minutes.
func (r *Ring) DeriveAll(companyID, purpose string) [][32]byte {
	versions := r.versions()
	out := make([][32]byte, 0, len(versions))
	for _, v := range versions {
		key, _ := r.derive(v, "derive", companyID, purpose) // versions come from the ring itself
		out = append(out, key)
	}
	return out
}

// versions returns the current version first, then the others from new to old.
func (r *Ring) versions() []byte {
	out := make([]byte, 0, len(r.roots))
	for v := range r.roots {
		if v != r.current {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	out = append(out, r.current)
	slices.Reverse(out)
	return out
}

// derive is HKDF-SHA256 of the root key; use keeps sealing keys and derived keys apart.
func (r *Ring) derive(version byte, use, companyID, purpose string) (key [32]byte, ok bool) {
	root, ok := r.roots[version]
	if !ok {
		return key, false
	}
	info := string(join("poppyfield", use, companyID, purpose))
	out, err := hkdf.Key(sha256.New, root[:], nil, info, len(key))
	if err != nil { // only a length above 255 hashes or a FIPS policy refuses
		return key, false
	}
	return [32]byte(out), true
}

// join puts each part's length in front of it, so that no two lists give the same bytes.
func join(parts ...string) []byte {
	var out []byte
	for _, p := range parts {
		out = binary.BigEndian.AppendUint64(out, uint64(len(p)))
		out = append(out, p...)
	}
	return out
}
