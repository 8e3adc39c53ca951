package dpop

import (
	"errors"
	"strings"
)

var errURL = errors.New("not an absolute http or https URL without userinfo")

// sameURL reports whether htu names the same resource as want, both in normal form.
// Most agents send exactly what the Company published, which needs no work.
func sameURL(htu []byte, want string) bool {
	if string(htu) == want {
		return true
	}
	a, err := NormalizeURL(string(htu))
	if err != nil {
		return false
	}
	b, err := NormalizeURL(want)
	return err == nil && a == b
}

// NormalizeURL returns the normal form of RFC 3986 §6.2.2 and §6.2.3 of an absolute
// http or https URL, without query and fragment: scheme and host in lower case, no
// default port, unreserved characters unescaped, other escapes in upper case, no dot
// segments, "/" for an empty path. The case of the path and a trailing slash stay.
func NormalizeURL(raw string) (string, error) {
	if end := strings.IndexAny(raw, "?#"); end >= 0 {
		raw = raw[:end]
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "https" && scheme != "http" {
		return "", errURL
	}
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	host, ok := normalizeAuthority(scheme, authority)
	if !ok {
		return "", errURL
	}
	path, ok = normalizeEscapes(path)
	if !ok {
		return "", errURL
	}
	return scheme + "://" + host + removeDotSegments(path), nil
}

// normalizeAuthority lower-cases the host and drops an empty or default port.
func normalizeAuthority(scheme, authority string) (string, bool) {
	if authority == "" || strings.ContainsAny(authority, "@\\") {
		return "", false
	}
	authority, ok := normalizeEscapes(authority)
	if !ok {
		return "", false
	}
	host, port := strings.ToLower(authority), ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		host, port = host[:colon], host[colon+1:]
	}
	if !isHost(host) || strings.Trim(port, "0123456789") != "" {
		return "", false
	}
	if port == "" || scheme == "https" && port == "443" || scheme == "http" && port == "80" {
		return host, true
	}
	return host + ":" + port, true
}

// isHost tells a name, whatever its characters, from a bracketed address. Without the
// difference a colon could belong to either.
func isHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && !strings.ContainsAny(inner, "[]")
	}
	return s != "" && !strings.ContainsAny(s, "[]:")
}

// normalizeEscapes unescapes unreserved characters and writes the other escapes in
// upper case. Characters that no URL may hold are refused.
func normalizeEscapes(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7F || strings.IndexByte(`"<>\^`+"`{|}", c) >= 0 {
			return "", false
		}
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		high, okHigh := hexDigit(s[i+1])
		low, okLow := hexDigit(s[i+2])
		if !okHigh || !okLow {
			return "", false
		}
		i += 2
		if c = high<<4 | low; unreserved(c) {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.Write([]byte{'%', digits[high], digits[low]})
	}
	return b.String(), true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// removeDotSegments applies RFC 3986 §5.2.4 to a path that is empty or begins with a slash.
func removeDotSegments(path string) string {
	if path == "" {
		return "/"
	}
	if !strings.Contains(path, "/.") {
		return path
	}
	segments := strings.Split(path[1:], "/")
	kept := make([]string, 0, len(segments))
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "") // a final dot segment leaves the slash before it
		}
	}
	return "/" + strings.Join(kept, "/")
}
