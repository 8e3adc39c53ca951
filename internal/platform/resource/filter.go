package resource

import (
	"maps"
	"slices"
	"strings"
)

// ParseFilter reads the filter of a list, as Conditions does. Values go where fields
// says; none is empty.
func ParseFilter(raw string, fields map[string]*string) error {
	return Conditions(raw, func(name, value string) error {
		target, known := fields[name]
		if !known {
			return NoIndex(slices.Sorted(maps.Keys(fields))...)
		}
		if value == "" {
			return noText(name)
		}
		*target = value
		return nil
	})
}

// Conditions reads a filter and gives each of its conditions to take. A filter is
// equalities joined by AND, such as
//
//	status = "idle" AND client_id = "https://agent.example/agent.json"
//
// Values are quoted, with \" and \\ as the only escapes. Each field may be named once.
func Conditions(raw string, take func(name, value string) error) error {
	seen := map[string]bool{}
	for rest := strings.TrimSpace(raw); rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return Invalid("filter", "expected field = \"value\"")
		}
		if seen[name] {
			return Invalid("filter", name+" is named twice")
		}
		seen[name] = true
		value, after, ok := cutQuoted(strings.TrimSpace(after))
		if !ok {
			return noText(name)
		}
		if err := take(name, value); err != nil {
			return err
		}
		if rest = strings.TrimSpace(after); rest == "" {
			return nil
		}
		if rest, ok = strings.CutPrefix(rest, "AND "); !ok {
			return Invalid("filter", "conditions are joined by AND")
		}
	}
	return nil
}

// NoIndex refuses a field of a filter that is none of fields.
func NoIndex(fields ...string) error {
	return Invalid("filter", "no index serves a filter on this field; these have one: "+strings.Join(fields, ", "))
}

func noText(name string) error {
	return Invalid("filter", "the value of "+name+" must be a quoted text")
}

// OneOf reports a value of a filter that is none of those it can have; "" is none and fits.
func OneOf(name, value string, all ...string) error {
	if value == "" || slices.Contains(all, value) {
		return nil
	}
	return Invalid("filter", name+" is one of "+strings.Join(all, ", "))
}

// cutQuoted takes a quoted text off the front of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
