package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxURLLength is the longest URL accepted, in bytes.
const MaxURLLength = 2048

// URL is a URL that passed [Guard.CheckURL]; only it makes one.
type URL struct {
	u    *url.URL
	host string // A-label, lower-case, without trailing dot; or an IP in its shortest form
	addr netip.Addr
	port uint16
}

// String returns the URL as it is requested: host in A-labels, everything else as given.
func (u URL) String() string { return u.u.String() }

// Hostname returns the host in lower-case A-labels or an IP address, without brackets and without port.
func (u URL) Hostname() string { return u.host }

// Port returns the port, 443 when the URL names none.
func (u URL) Port() uint16 { return u.port }

// CheckURL checks without any look-up that raw may be requested. It accepts an
// https URL with a DNS name of at least two labels (dev hosts: any) or a globally
// reachable IP literal in its one canonical spelling, and any port but 0. User
// information, fragments, zone ids and names that mean this machine or this
// network (localhost, .local, .internal and the like) are refused.
//
// An error is an [Error] of kind InvalidURL or Blocked.
func (g *Guard) CheckURL(raw string) (URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return URL{}, err
	}
	if u.addr.IsValid() {
		if err := g.CheckAddr(u.addr); err != nil {
			return URL{}, err
		}
		return u, nil
	}
	if _, ok := g.dev[u.host]; ok {
		return u, nil
	}
	if localName(u.host) {
		return URL{}, newError(Blocked, "the host is not a name of the public Internet", nil)
	}
	return u, nil
}

// parseURL checks the form. It looks at the raw text first, because a parser that
// repairs its input would hide what a second parser may read differently.
func parseURL(raw string) (URL, error) {
	if len(raw) > MaxURLLength {
		return URL{}, invalid("the URL is longer than 2048 bytes")
	}
	if !utf8.ValidString(raw) {
		return URL{}, invalid("the URL is not UTF-8")
	}
	for _, r := range raw {
		if r <= ' ' || r == 0x7f || r == '\\' {
			return URL{}, invalid("the URL has a space, a control character or a backslash")
		}
	}
	const scheme = "https://"
	if len(raw) < len(scheme) || !strings.EqualFold(raw[:len(scheme)], scheme) {
		return URL{}, invalid("the URL is not https")
	}
	if strings.Contains(raw, "#") {
		return URL{}, invalid("the URL has a fragment")
	}
	authority := raw[len(scheme):]
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority = authority[:i]
	}
	if strings.Contains(authority, "@") {
		return URL{}, invalid("the URL has user information")
	}
	if strings.Contains(authority, "%") {
		return URL{}, invalid("the host has a percent sign: neither escapes nor zone ids are accepted")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil {
		return URL{}, invalid("the URL is malformed")
	}
	if u.Host != authority {
		return URL{}, invalid("the host is malformed")
	}
	out := URL{u: u}
	host, port, err := splitAuthority(authority)
	if err != nil {
		return URL{}, err
	}
	out.port = port
	if out.host, out.addr, err = canonicalHost(host); err != nil {
		return URL{}, err
	}
	u.Host = out.host
	if out.addr.Is6() {
		u.Host = "[" + out.host + "]"
	}
	if port != 443 {
		u.Host = net.JoinHostPort(out.host, strconv.Itoa(int(port)))
	}
	return out, nil
}

func invalid(detail string) *Error { return newError(InvalidURL, detail, nil) }

// splitAuthority returns the host, still in its brackets, and the port.
func splitAuthority(authority string) (string, uint16, error) {
	var host, port string
	var found bool
	if end := strings.LastIndexByte(authority, ']'); end >= 0 {
		host = authority[:end+1]
		port, found = strings.CutPrefix(authority[end+1:], ":")
		if !found && authority[end+1:] != "" {
			return "", 0, invalid("the host is malformed")
		}
	} else {
		host, port, found = strings.Cut(authority, ":")
	}
	if !found {
		return host, 443, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", 0, invalid("the port is not a number from 1 to 65535")
	}
	return host, uint16(n), nil
}

// canonicalHost returns the host in its one spelling, and the address when it is an IP literal.
func canonicalHost(host string) (string, netip.Addr, error) {
	if v6, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(v6, "]"))
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", netip.Addr{}, invalid("the host is not an IPv6 address")
		}
		return addr.String(), addr, nil
	}
	// ParseAddr takes four decimal numbers without leading zeros and nothing else.
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return host, addr, nil
	}
	name, err := canonicalName(host)
	if err != nil {
		return "", netip.Addr{}, invalid(err.Error())
	}
	if looksNumeric(name) {
		return "", netip.Addr{}, invalid("the host is an IP address in another form than four decimal numbers")
	}
	return name, netip.Addr{}, nil
}

// looksNumeric reports whether the last label is one that inet_aton or the WHATWG
// host parser take for a number: such a host is an IPv4 address to somebody.
func looksNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// canonicalName returns a DNS name in lower-case A-labels without trailing dot.
func canonicalName(name string) (string, error) {
	// Four bytes a character at most; what is longer need not be mapped first.
	if len(name) > 4*254 {
		return "", errors.New("the host is longer than 253 characters")
	}
	if !ascii(name) || strings.Contains(strings.ToLower(name), "xn--") {
		// Lookup maps full-width letters, digits and dots to plain ones; what comes out
		// is checked like any other name below, and an address among it refused.
		mapped, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", errors.New("the host is not a valid internationalised name")
		}
		name = mapped
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" {
		return "", errors.New("the host is empty")
	}
	if len(name) > 253 {
		return "", errors.New("the host is longer than 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		if !validLabel(label) {
			return "", errors.New("the host is not a DNS name")
		}
	}
	return name, nil
}

// validLabel reports whether label is letters, digits and inner hyphens (RFC 1123, section 2.1).
func validLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// localName reports names that mean this machine or a private network wherever
// they are asked. One label alone would be completed by the search list of a resolver.
func localName(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	for _, zone := range []string{
		"localhost",    // RFC 6761
		"local",        // RFC 6762, multicast DNS
		"internal",     // reserved for private use by ICANN; cloud metadata names
		"home.arpa",    // RFC 8375
		"onion", "alt", // RFC 7686, RFC 9476
		"in-addr.arpa", // reverse zones name no hosts
		"ip6.arpa",
	} {
		if name == zone || strings.HasSuffix(name, "."+zone) {
			return true
		}
	}
	return false
}
