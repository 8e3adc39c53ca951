package discovery

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	maxName    = 253     // octets of a host name without its trailing dot (RFC 1035)
	maxLabel   = 63      // octets of one label
	maxRawName = 4 * 253 // octets looked at before mapping: a U-label may be longer than its A-label
)

// Domain is a Company's domain in its registered form: lower case, no trailing
// dot, no leading "www.", IDN labels as A-labels, at least two labels. Only
// ParseDomain makes one; domains compare with ==.
type Domain struct{ name string }

// String returns the domain as it stands in organization.domain and poppy_domains.
func (d Domain) String() string { return d.name }

// IsZero reports whether d was never parsed.
func (d Domain) IsZero() bool { return d.name == "" }

// ParseDomain brings a host name typed by a person, or requested by an agent,
// to its registered form. It refuses IP addresses, ports, single labels and
// whatever can't be a DNS host name. One leading "www." is dropped, unless that
// would leave a single label; a second one is refused, so that parsing the
// result again gives the same domain.
func ParseDomain(raw string) (Domain, error) {
	name, detail := normalizeHost(raw)
	if detail != "" {
		return Domain{}, badDomain(detail)
	}
	if rest, ok := strings.CutPrefix(name, "www."); ok && strings.Contains(rest, ".") {
		name = rest
		if strings.HasPrefix(name, "www.") {
			return Domain{}, badDomain("a domain has at most one leading www.")
		}
	}
	if !strings.Contains(name, ".") {
		return Domain{}, badDomain("a domain has at least two labels, such as example.com")
	}
	return Domain{name: name}, nil
}

func badDomain(detail string) error {
	return problem.New(problem.Invalid, problem.InvalidRequest, clauseDomainForm, "%s", detail).WithField("domain", detail)
}

// normalizeHost maps a host name to lower-case A-labels without a trailing dot.
// It returns the name, or what is wrong with it.
func normalizeHost(raw string) (name, detail string) {
	switch {
	case raw == "":
		return "", "the name is empty"
	case len(raw) > maxRawName:
		return "", "the name is too long"
	case !utf8.ValidString(raw):
		return "", "the name is no UTF-8"
	case strings.ContainsAny(raw, ":/@?#[]\\"):
		return "", "a bare host name is needed: no scheme, port, path or address literal"
	}
	profile := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true),
		idna.BidiRule(), idna.CheckHyphens(false))
	name, err := profile.ToASCII(raw)
	if err != nil {
		return "", "the name has characters that no host name can have"
	}
	name = strings.TrimSuffix(name, ".")
	if d := checkASCIIHost(name); d != "" {
		return "", d
	}
	return name, ""
}

// checkASCIIHost says what keeps name from being a lower-case DNS host name, or "".
func checkASCIIHost(name string) string {
	if name == "" || len(name) > maxName {
		return "a host name has 1 to 253 characters"
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > maxLabel {
			return "each label of a host name has 1 to 63 characters"
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "no label of a host name starts or ends with a hyphen"
		}
		for i := range len(label) {
			if c := label[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return "a host name has only lower-case letters, digits, hyphens and dots"
			}
		}
	}
	// Resolvers and browsers read a name whose last label is a number as an IPv4
	// address ("127.1", "1.2.3.0x7f").
	if isNumeric(labels[len(labels)-1]) {
		return "an IP address is no domain"
	}
	return ""
}

func isNumeric(label string) bool {
	digits, base16 := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!base16 || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
