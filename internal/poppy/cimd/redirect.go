package cimd

import "strings"

// CheckRedirectURI says in words what is wrong with the redirect_uri of a client that has
// registered itself: it is an https URL, or one of the User's own device. "" is nothing.
func CheckRedirectURI(uri string) string {
	if IsLoopbackURI(uri) {
		return ""
	}
	_, fault := parseHTTPS(uri)
	return fault
}

// RedirectHost returns the host of a checked redirect_uri, without its port.
func RedirectHost(uri string) string {
	u, _ := parseHTTPS(secured(uri))
	return lower(u.host)
}

// IsLoopbackURI reports whether uri leads to a program on the User's own device by http
// (RFC 8252 section 7.3). IPv6's address isn't taken: no page can be told to lead there.
func IsLoopbackURI(uri string) bool {
	if !strings.HasPrefix(uri, "http://") {
		return false
	}
	u, fault := parseHTTPS(secured(uri))
	return fault == "" && !u.emptyPort && (u.host == "127.0.0.1" || u.host == "localhost")
}

// withoutPort returns a loopback URI without its port; ok is false for any other.
func withoutPort(uri string) (string, bool) {
	if !IsLoopbackURI(uri) {
		return "", false
	}
	u, _ := parseHTTPS(secured(uri))
	rest := strings.TrimPrefix(uri, "http://"+u.host)
	if u.port != "" {
		rest = strings.TrimPrefix(rest, ":"+u.port)
	}
	return u.host + rest, true
}

// secured has the parser for https URLs read an http one: their form is the same.
func secured(uri string) string {
	if rest, ok := strings.CutPrefix(uri, "http://"); ok {
		return "https://" + rest
	}
	return uri
}
