package cimd

import "strings"

// httpsURL is an https URL taken apart by RFC 3986, nothing in it decoded.
type httpsURL struct {
	host      string
	port      string
	emptyPort bool // a colon with nothing after it
	path      string
}

// parseHTTPS takes an absolute https URL apart, or says what is wrong with it. It
// refuses what parsers read in different ways: userinfo, backslashes, space, control
// and non-ASCII characters, broken escapes, and hosts that are numbers in disguise.
func parseHTTPS(raw string) (httpsURL, string) {
	if len(raw) > maxURL {
		return httpsURL{}, "it is longer than 2048 characters"
	}
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		return httpsURL{}, "it is not an https URL"
	}
	if fault := badCharacter(rest); fault != "" {
		return httpsURL{}, fault
	}
	authority, path := rest, ""
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, path = rest[:end], rest[end:]
	}
	if query := strings.IndexByte(path, '?'); query >= 0 {
		path = path[:query]
	}
	u := httpsURL{host: authority, path: path}
	if colon := strings.LastIndexByte(authority, ':'); colon > strings.LastIndexByte(authority, ']') {
		u.host, u.port = authority[:colon], authority[colon+1:]
		u.emptyPort = u.port == ""
	}
	if u.port != "" && !isPort(u.port) {
		return httpsURL{}, "its port is not a port"
	}
	if !isHost(u.host) {
		return httpsURL{}, "its host is not a host name or address"
	}
	return u, ""
}

// badCharacter says which character of s no acceptable URL has.
func badCharacter(s string) string {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '#':
			return "it has a fragment"
		case c == '@' && !strings.ContainsAny(s[:i], "/?"):
			return "it has userinfo"
		case c <= ' ' || c >= 0x7F || strings.IndexByte(`"<>\^`+"`{|}", c) >= 0:
			return "it has a character that URLs don't have"
		case c == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])):
			return "it has a broken escape"
		}
	}
	return ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isPort(s string) bool {
	if len(s) > 5 || s[0] == '0' {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// isHost reports whether s is a dotted name, an IPv4 address of four decimal numbers
// or a bracketed IPv6 address without zone. Whether it may be connected to is not judged.
func isHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && strings.Trim(inner, "0123456789abcdefABCDEF:.") == ""
	}
	if len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 { // a trailing dot gives an empty label too
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	// Resolvers read a name whose last label is a number as an address, each in its own
	// way: 127.1, 0x7f.1 and 2130706433 are all the loopback address to some.
	return !isNumeric(labels[len(labels)-1]) || isDottedQuad(labels)
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(lower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isDottedQuad(labels []string) bool {
	if len(labels) != 4 {
		return false
	}
	for _, label := range labels {
		n := 0
		for i := range len(label) {
			if label[i] < '0' || label[i] > '9' {
				return false
			}
			n = n*10 + int(label[i]-'0')
		}
		if len(label) > 3 || n > 255 || len(label) > 1 && label[0] == '0' {
			return false
		}
	}
	return true
}

// hasDotSegment reports whether a segment of path is "." or "..", escaped or not.
func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		switch strings.ReplaceAll(lower(segment), "%2e", ".") {
		case ".", "..":
			return true
		}
	}
	return false
}

// lower folds ASCII letters only.
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' || s[i] >= 0x80 {
			b := []byte(s)
			for j, c := range b {
				if c >= 'A' && c <= 'Z' {
					b[j] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
