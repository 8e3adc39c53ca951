package pages

import (
	"fmt"
	"net/http"
	"strings"
)

// mayLeave says whether the answer to the page's form may redirect to the agent's
// site: browsers hold redirects after a form against form-action, too.
func mayLeave(p Page) bool {
	switch p := p.(type) {
	case Login:
		return p.MayLeave
	case Code:
		return p.MayLeave
	case Leave:
		return p.MayLeave
	case Consent:
		return p.MayLeave
	case Failure:
		return p.MayLeave
	default:
		return false
	}
}

// setHeaders sets what keeps a page from being framed, cached, or made to load or send
// anything elsewhere. It replaces what an outer handler has set for answers that are data.
func setHeaders(h http.Header, leaves bool, o Options) error {
	formAction, ancestors, assets := "'self'", "'none'", "'self'"
	if leaves {
		// Not the agent's host alone: its callback may redirect on.
		formAction += " https:"
		if o.ToDevice {
			formAction += " http://127.0.0.1:* http://localhost:*"
		}
	}
	if len(o.FrameAncestors) > 0 {
		for _, a := range o.FrameAncestors {
			if a == "" || strings.ContainsAny(a, ";, \t\r\n") {
				return fmt.Errorf("frame ancestor %q is not a source expression", a)
			}
		}
		ancestors = strings.Join(o.FrameAncestors, " ")
	}
	if o.AssetOrigin != "" {
		if strings.ContainsAny(o.AssetOrigin, ";, \t\r\n") {
			return fmt.Errorf("asset origin %q is not a source expression", o.AssetOrigin)
		}
		assets += " " + o.AssetOrigin
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+assets+"; img-src "+assets+"; form-action "+formAction+
		"; base-uri 'none'; frame-ancestors "+ancestors)
	// X-Frame-Options can't name who may: with it, no one could embed the page.
	if len(o.FrameAncestors) > 0 {
		h.Del("X-Frame-Options")
	} else {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	// No Cross-Origin-Opener-Policy: it would part an agent from the popup that it opens (poppy-0.1/4.5#4).
	h.Del("Cross-Origin-Opener-Policy")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	return nil
}
