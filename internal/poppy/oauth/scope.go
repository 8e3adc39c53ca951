package oauth

import (
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// ScopeSyntax is the rule that scope follows the grammar of RFC 6749 §3.3.
const ScopeSyntax clause.ID = "poppy-0.1/4.4#23"

// Limits of a scope parameter, in bytes and names.
const (
	maxScope      = 4096
	maxScopeNames = 100
)

// A Scope is a list of distinct scope names in the order they were asked for.
type Scope []string

// ParseScope reads a scope parameter: names separated by one space each, none twice.
// "" gives the empty Scope; whether that is allowed is for the caller. Which names
// exist is not judged. It fails with INVALID_SCOPE.
func ParseScope(s string) (Scope, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxScope {
		return nil, refuseScope("scope is too long")
	}
	var scope Scope
	for name := range strings.SplitSeq(s, " ") {
		switch {
		case !isScopeName(name):
			return nil, refuseScope("scope is not a list of names separated by single spaces")
		case slices.Contains(scope, name):
			return nil, refuseScope("scope names one scope twice")
		case len(scope) == maxScopeNames:
			return nil, refuseScope("scope has too many names")
		}
		scope = append(scope, name)
	}
	return scope, nil
}

// String returns the wire form, "" for the empty Scope.
func (s Scope) String() string { return strings.Join(s, " ") }

// Contains reports whether name is among the scopes.
func (s Scope) Contains(name string) bool { return slices.Contains(s, name) }

// Covers reports whether every name of other is in s.
func (s Scope) Covers(other Scope) bool {
	for _, name := range other {
		if !s.Contains(name) {
			return false
		}
	}
	return true
}

// isScopeName reports whether s is a scope-token: printable ASCII without space,
// quote and backslash.
func isScopeName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

func refuseScope(detail string) error {
	return problem.New(problem.Invalid, problem.InvalidScope, ScopeSyntax, "%s", detail)
}
