package access

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Caps on what a Company may set.
const (
	maxRules   = 200
	maxMethods = 10
	maxScopes  = 20
	maxPath    = 1000
)

// CheckRules calls bad for everything that is wrong with rules, with its path.
// isScope says whether the Company grants a scope.
func CheckRules(rules []Rule, isScope func(string) bool, bad func(path, detail string)) {
	if len(rules) > maxRules {
		bad("rules", fmt.Sprintf("has more than %d entries", maxRules))
	}
	for i, r := range rules {
		at := fmt.Sprintf("rules[%d]", i)
		if len(r.Methods) > maxMethods {
			bad(at+".methods", fmt.Sprintf("has more than %d entries", maxMethods))
		}
		for j, m := range r.Methods {
			if !isMethod(m) {
				bad(fmt.Sprintf("%s.methods[%d]", at, j), "is no HTTP method in capitals")
			}
		}
		if detail := checkPath(r.Path); detail != "" {
			bad(at+".path", detail)
		}
		if len(r.Scopes) > maxScopes {
			bad(at+".scopes", fmt.Sprintf("has more than %d entries", maxScopes))
		}
		for j, s := range r.Scopes {
			path := fmt.Sprintf("%s.scopes[%d]", at, j)
			if !isScope(s) {
				bad(path, "is neither a scope of the protocol nor one of custom_scopes")
			}
			if slices.Contains(r.Scopes[:j], s) {
				bad(path, "is there twice")
			}
		}
	}
}

// CheckBase says what is wrong with an https URL below which an API is to be found; "" for nothing.
func CheckBase(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "is no URL"
	}
	if _, ok := split(u.EscapedPath()); !ok || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "is no plain address: it has dots, empty segments, a query or a fragment"
	}
	return ""
}

func isMethod(m string) bool {
	return m != "" && len(m) <= 20 && !strings.ContainsFunc(m, func(c rune) bool { return c < 'A' || c > 'Z' })
}

func checkPath(path string) string {
	switch segments, ok := split(path); {
	case len(path) > maxPath:
		return fmt.Sprintf("has more than %d characters", maxPath)
	case !strings.HasPrefix(path, "/"):
		return "does not begin with a slash"
	case !ok || strings.ContainsAny(path, ";?#%"):
		return "is no plain path: it has dots, empty segments, parameters or encoded characters"
	default:
		for i, s := range segments {
			if s == "**" && i < len(segments)-1 {
				return "has ** elsewhere than at its end"
			}
			if strings.Contains(s, "*") && s != "*" && s != "**" {
				return "has a segment that is * only in part"
			}
		}
	}
	return ""
}
