package httpx

import (
	"net/netip"
	"strconv"
	"strings"
)

// NormalizeHost takes the value of a Host header apart: the name in lower case
// without the trailing dot of a fully qualified one, or an IP address without
// brackets, and the port, "" where none is given. ok is false for what no name
// may look like; such a request belongs to nobody.
func NormalizeHost(host string) (name, port string, ok bool) {
	if rest, bracket := strings.CutPrefix(host, "["); bracket {
		return splitBracketed(rest)
	}
	name, port, hasPort := strings.Cut(host, ":")
	if hasPort && !isPort(port) {
		return "", "", false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !isHostName(name) {
		return "", "", false
	}
	return name, port, true
}

func splitBracketed(rest string) (name, port string, ok bool) {
	literal, after, closed := strings.Cut(rest, "]")
	addr, err := netip.ParseAddr(literal)
	if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", "", false
	}
	if after != "" {
		port, ok = strings.CutPrefix(after, ":")
		if !ok || !isPort(port) {
			return "", "", false
		}
	}
	return addr.String(), port, true
}

// isPort accepts an empty port too: RFC 3986 section 3.2.3 lets "host:" stand for "host".
func isPort(s string) bool {
	if s == "" {
		return true
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
