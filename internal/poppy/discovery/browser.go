package discovery

import (
	"net/url"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// BrowserSessionPath is where, below its issuer, browsers join a Company's Sessions: what
// a proxy on the Company's own host forwards to.
const BrowserSessionPath = "/poppy/browser-session"

// BrowserCookie is the cookie of a Session's browser (section 5).
type BrowserCookie struct {
	Name   string `json:"name,omitempty"`   // empty: one that fits Domain
	Domain string `json:"domain,omitempty"` // empty: the endpoint's host alone
}

const (
	maxCookieName = 64
	hostPrefix    = "__Host-"
	securePrefix  = "__Secure-"
)

// NameInUse returns the name, or the one that stands in for none: with the strictest
// prefix that the Domain attribute allows (RFC 6265bis 4.1.3).
func (c BrowserCookie) NameInUse() string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Domain == "":
		return hostPrefix + "poppy"
	default:
		return securePrefix + "poppy"
	}
}

// checkBrowserCookie checks what can be told without the Company's domains.
func checkBrowserCookie(v *violations, s Settings) {
	if s.BrowserCookie == nil {
		return
	}
	c := *s.BrowserCookie
	u, detail := parseHTTPS(s.BrowserSessionEndpoint)
	switch {
	case s.BrowserSessionEndpoint == "":
		v.add(clauseWeb, "browser_session_endpoint", "is needed with a browser cookie: it is where browsers get it")
	case detail != "": // said already
	default:
		checkBrowserEndpoint(v, u, s.BrowserSessionEndpoint)
	}
	switch {
	case len(c.Name) > maxCookieName || strings.ContainsFunc(c.Name, isNoTokenChar):
		v.add(clauseBrowserCookie, "browser_cookie.name", "is no cookie name of at most %d letters, digits and -_.", maxCookieName)
	case c.Domain != "" && hasPrefixFold(c.Name, hostPrefix):
		v.add(clauseBrowserCookie, "browser_cookie.name", "starts with __Host-, which no cookie with a domain can have")
	}
	if c.Domain == "" || detail != "" {
		return
	}
	suffix, _ := publicsuffix.PublicSuffix(c.Domain)
	switch {
	case checkASCIIHost(c.Domain) != "":
		v.add(clauseBrowserCookie, "browser_cookie.domain", "is no lower-case host name")
	case suffix == c.Domain:
		v.add(clauseBrowserCookie, "browser_cookie.domain", "is a public suffix, which browsers set no cookie for")
	case !isWithin(u.Hostname(), c.Domain):
		v.add(clauseBrowserCookie, "browser_cookie.domain", "is neither the host of browser_session_endpoint nor a parent of it")
	}
}

// checkBrowserEndpoint asks for an endpoint in the one spelling that a request's host and
// path, and an aud, can be compared with.
func checkBrowserEndpoint(v *violations, u *url.URL, raw string) {
	if checkASCIIHost(u.Hostname()) != "" || u.Port() == "443" || strings.HasSuffix(u.Host, ":") {
		v.add(clauseWeb, "browser_session_endpoint", "has a host that is no lower-case name, or the default port")
	}
	if u.RawQuery != "" || u.ForceQuery {
		v.add(clauseWeb, "browser_session_endpoint", "has a query")
	}
	path := strings.TrimPrefix(raw, "https://"+u.Host)
	for _, segment := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." || segment == ".well-known" || strings.ContainsFunc(segment, isNotUnreserved) {
			v.add(clauseWeb, "browser_session_endpoint", "needs a path of segments with letters, digits and -._~ only")
			return
		}
	}
}

func isNoTokenChar(r rune) bool { return isNotUnreserved(r) || r == '~' }

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// isWithin reports whether host is domain or below it.
func isWithin(host, domain string) bool {
	return host == domain || strings.HasSuffix(host, "."+domain)
}

// Covering returns the longest of domains that host is or is below, "" for none.
func Covering(domains []string, host string) string {
	best := ""
	for _, d := range domains {
		if isWithin(host, d) && len(d) > len(best) {
			best = d
		}
	}
	return best
}

// CheckBrowserSession says whether the endpoint and the cookie's domain are the Company's
// to use: on its verified domains, and where the endpoint is on the issuer's host, at the
// issuer's own path. Settings without a browser cookie pass: then the endpoint is foreign.
func CheckBrowserSession(s Settings, i Issuer, verified []Domain) error {
	if s.BrowserCookie == nil {
		return nil
	}
	var v violations
	names := make([]string, len(verified))
	for n, d := range verified {
		names[n] = d.String()
	}
	host := BrowserHost(s)
	if Covering(names, host) == "" {
		v.add(clauseWeb, "browser_session_endpoint", "is not on a verified domain of the Company")
	}
	if host == i.Hostname() && s.BrowserSessionEndpoint != i.BrowserSessionEndpoint() {
		v.add(clauseWeb, "browser_session_endpoint", "on the issuer's host it has to be %s", i.BrowserSessionEndpoint())
	}
	if d := s.BrowserCookie.Domain; d != "" && Covering(names, d) == "" {
		v.add(clauseBrowserCookie, "browser_cookie.domain", "is not on a verified domain of the Company")
	}
	return v.err(problem.InvalidRequest)
}

// BrowserHost returns the host name, without port, of the endpoint that the installation
// answers at; "" where it doesn't.
func BrowserHost(s Settings) string {
	if s.BrowserCookie == nil {
		return ""
	}
	u, detail := parseHTTPS(s.BrowserSessionEndpoint)
	if detail != "" {
		return ""
	}
	return u.Hostname()
}

// CheckReturnTo asks for an https URL on one of the verified domains or below (section 5,
// decision 39), in a spelling that every browser reads as that host.
func CheckReturnTo(raw string, verified []string) error {
	u, detail := parseHTTPS(raw)
	switch {
	case detail != "":
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }):
		detail = "the URL has characters that belong escaped"
	case Covering(verified, strings.ToLower(u.Hostname())) == "":
		detail = "the URL is on none of the Company's domains"
	}
	if detail == "" {
		return nil
	}
	return problem.New(problem.Invalid, problem.InvalidRequest, clauseReturnTo, "return_to of the assertion: %s", detail)
}

// SiteRoot returns the page to open where no return_to is given: the root of the site
// that the endpoint belongs to.
func SiteRoot(endpoint string, verified []string) string {
	u, detail := parseHTTPS(endpoint)
	if detail != "" {
		return ""
	}
	domain := Covering(verified, u.Hostname())
	if domain == u.Hostname() {
		domain = u.Host // with its port
	}
	return "https://" + domain + "/"
}
