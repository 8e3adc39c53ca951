package browser

import (
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// __Host-: from this very host, for TLS alone, and never set by a neighbour.
const (
	cookiePrefix = "__Host-pf_"
	deviceCookie = cookiePrefix + "device"
	maxCookie    = 200
)

// cookieOf returns the secret of the browser's cookie for a sign-in, "" without one.
func cookieOf(r *http.Request, id string) string { return readCookie(r, cookiePrefix+id) }

func readCookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil || len(c.Value) > maxCookie {
		return ""
	}
	return c.Value
}

func (s *Site) keepCookie(w http.ResponseWriter, in store.SignIn, secret string) {
	setCookie(w, cookiePrefix+in.ID, secret, in.ExpiresAt.Sub(s.now()))
}

func dropCookie(w http.ResponseWriter, id string) {
	setCookie(w, cookiePrefix+id, "", -1)
}

// setCookie sets a cookie that only top-level navigations bring here from other sites:
// the way back from the Company's login is one. A lifetime below zero deletes it.
func setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	seconds := int(min(lifetime, signin.Lifetime) / time.Second)
	if lifetime < 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
