package method

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// companyPath begins every path of Also; the segment after it is the Company.
const companyPath = "/v1/companies/"

var (
	doorPath = regexp.MustCompile(`^/v1/companies/\*/[a-zA-Z]+$`)
	doorRPC  = regexp.MustCompile(`^/[a-z0-9.]+\.[A-Z][a-zA-Z]*/[A-Z][a-zA-Z]*$`)
)

// open makes the table of what stands in Also.
func (t *Table) open() error {
	t.doors = map[string]*Method{}
	for _, m := range t.methods {
		for _, door := range m.Also {
			switch {
			case m.Stream || !m.NamesCompany():
				return fmt.Errorf("%s: only calls that name a Company have other ways to ask them", m.FullName)
			case !doorPath.MatchString(door) && !doorRPC.MatchString(door):
				return fmt.Errorf("%s: also %q is neither a path of a Company nor a gRPC method", m.FullName, door)
			case t.doors[door] != nil:
				return fmt.Errorf("%s: also %q is twice in the table", m.FullName, door)
			}
			t.doors[door] = m
		}
	}
	return nil
}

// Doors returns everything that stands in Also, sorted.
func (t *Table) Doors() []string {
	out := make([]string, 0, len(t.doors))
	for door := range t.doors {
		out = append(out, door)
	}
	slices.Sort(out)
	return out
}

// IsPath tells a path of Also from a gRPC method.
func IsPath(door string) bool { return strings.HasPrefix(door, companyPath) }

// ByDoor returns the method that an entry of Also asks; nil for no entry.
func (t *Table) ByDoor(door string) *Method { return t.doors[door] }

// FindDoor returns the entry of Also that a path is of, and the Company's id in it.
func (t *Table) FindDoor(path string) (door, company string, ok bool) {
	rest, ok := strings.CutPrefix(path, companyPath)
	if !ok {
		return "", "", false
	}
	company, verb, ok := strings.Cut(rest, "/")
	door = companyPath + "*/" + verb
	return door, company, ok && company != "" && t.doors[door] != nil
}
