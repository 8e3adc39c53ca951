package app

import (
	"strings"
	"unicode"

	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// maxExtension is as long as a name can be that a Company asks for.
const maxExtension = 256

// listed are the extensions of a document that a Company can ask for (Poppy 3.3): one
// whose name has a space or is overlong is nobody's.
func listed(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		if name != "" && len(name) <= maxExtension && !strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) {
			out = append(out, name)
		}
	}
	return out
}

// listing is the Session of an agent whose document lists names by now.
func listing(s store.Session, names []string) store.Session {
	s.Extensions = listed(names)
	return s
}
