package bus

import (
	"fmt"
	"strings"
)

// Patterns for Subscribe and NewHub; each matches what the function of the same kind builds.
const (
	AllConversations = "pf.conversation.*.*"
	AllSessions      = "pf.session.*.*"
	AllCompanies     = "pf.company.*"
	AllDeliveries    = "pf.delivery.*"
	AllEvents        = "pf.event.*"
	AllDeltas        = "pf.delta.*.*"
	AllTaken         = "pf.taken.*"
)

const prefix = "pf."

// MaxToken is the longest token of a subject in bytes.
const MaxToken = 256

// ConversationSubject is rung when a conversation has new events.
func ConversationSubject(company, conversation string) (string, error) {
	return Subject("conversation", company, conversation)
}

// DeltaSubject carries the pieces of a message while it is being written.
func DeltaSubject(company, conversation string) (string, error) {
	return Subject("delta", company, conversation)
}

// SessionSubject is rung when a Session ended or a token of it was revoked.
func SessionSubject(company, session string) (string, error) {
	return Subject("session", company, session)
}

// CompanySubject is rung when a Company's settings, domains or admission changed.
func CompanySubject(company string) (string, error) { return Subject("company", company) }

// DeliverySubject is rung when a Company has a webhook delivery that is due.
func DeliverySubject(company string) (string, error) { return Subject("delivery", company) }

// EventSubject is rung when something happened at a Company that its listeners are to be told of.
func EventSubject(company string) (string, error) { return Subject("event", company) }

// TakenSubject carries what a process took of the limits that those of a name count.
func TakenSubject(limiter string) (string, error) { return Subject("taken", limiter) }

// Subject joins a kind and its tokens. A token that is empty, longer than MaxToken
// or holds anything but letters, digits, "_" and "-" is an error, so that no
// foreign value can turn into a wildcard or another Company's subject.
func Subject(kind string, tokens ...string) (string, error) {
	if err := checkToken(kind); err != nil {
		return "", fmt.Errorf("kind of subject: %w", err)
	}
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteString(kind)
	for i, t := range tokens {
		if err := checkToken(t); err != nil {
			return "", fmt.Errorf("token %d of a %s subject: %w", i+1, kind, err)
		}
		b.WriteByte('.')
		b.WriteString(t)
	}
	return b.String(), nil
}

// Tokens returns what follows the kind in a subject that Subject built; nil for any other.
func Tokens(subject string) []string {
	rest, ok := strings.CutPrefix(subject, prefix)
	if !ok {
		return nil
	}
	parts := strings.Split(rest, ".")
	return parts[1:]
}

func checkToken(s string) error {
	if s == "" || len(s) > MaxToken {
		return fmt.Errorf("has %d bytes, allowed are 1 to %d", len(s), MaxToken)
	}
	for i := range len(s) {
		if c := s[i]; !isTokenByte(c) {
			return fmt.Errorf("holds %q", c)
		}
	}
	return nil
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// checkSubject accepts what Subject builds; with wildcards also patterns.
func checkSubject(s string, wildcards bool) error {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return fmt.Errorf("subject %q does not start with %q", s, prefix)
	}
	for t := range strings.SplitSeq(rest, ".") {
		if wildcards && t == "*" {
			continue
		}
		if err := checkToken(t); err != nil {
			return fmt.Errorf("subject %q: %w", s, err)
		}
	}
	return nil
}
