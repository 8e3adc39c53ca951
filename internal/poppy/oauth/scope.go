package oauth

import (
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses of a scope parameter.
const (
	ScopeSyntax    clause.ID = "poppy-0.1/4.4#23" // the grammar of RFC 6749 §3.3
	ScopeRequired  clause.ID = "poppy-0.1/4.4#24" // every sign-in says what it is for
	ScopeKnown     clause.ID = "poppy-0.1/4.4#25"
	ScopeAvailable clause.ID = "poppy-0.1/4.4#26" // to the type of sign-in
)

// The broad scopes that the protocol defines.
const (
	ReadScope  = "poppy:read"
	WriteScope = "poppy:write"
)

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

// CheckRequestedScope reads the scope of a sign-in request, of which the type used may
// grant allowed. One that is missing, malformed, unknown or not for this type is
// INVALID_SCOPE; nothing is ever left out in silence.
func CheckRequestedScope(requested string, allowed Scope) (Scope, error) {
	scope, err := ParseScope(requested)
	if err != nil {
		return nil, err
	}
	if len(scope) == 0 {
		return nil, problem.New(problem.Invalid, problem.InvalidScope, ScopeRequired, "scope is missing")
	}
	for _, name := range scope {
		if allowed.Contains(name) {
			continue
		}
		if slices.Contains([]string{ReadScope, WriteScope}, name) {
			return nil, problem.New(problem.Invalid, problem.InvalidScope, ScopeAvailable, "the scope %s is not available to this type of sign-in", name)
		}
		return nil, problem.New(problem.Invalid, problem.InvalidScope, ScopeKnown, "the scope %s is not known to this type of sign-in", name)
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
