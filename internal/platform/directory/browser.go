package directory

import (
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

// BrowserSession is where a Personal Agent's browser joins a Session (Poppy 5), and the
// cookie that it gets there.
type BrowserSession struct {
	// Endpoint is the aud of browser assertions, as published.
	Endpoint     string
	CookieName   string
	CookieDomain string // empty: the endpoint's host alone
}

// at reports whether the endpoint is at the path of the host, whatever the port.
func (b *BrowserSession) at(host, path string) bool {
	rest, ok := strings.CutPrefix(b.Endpoint, "https://"+host)
	if !ok {
		return false
	}
	if strings.HasPrefix(rest, ":") {
		if slash := strings.IndexByte(rest, '/'); slash >= 0 {
			rest = rest[slash:]
		}
	}
	return rest == path
}

// joining returns the Company whose browser session endpoint it is. Where a Company has a
// domain and another one a domain below it, the endpoint is of the one that is closer.
func joining(on []*Company, host, path string) *Company {
	var best *Company
	closest := -1
	for _, c := range on {
		if c.Browser == nil || !c.Browser.at(host, path) {
			continue
		}
		if n := len(discovery.Covering(c.Domains, host)); n > closest {
			best, closest = c, n
		}
	}
	return best
}

func browserFrom(b *directoryv1.BrowserSession) *BrowserSession {
	if b == nil {
		return nil
	}
	return &BrowserSession{Endpoint: b.GetEndpoint(), CookieName: b.GetCookieName(), CookieDomain: b.GetCookieDomain()}
}
