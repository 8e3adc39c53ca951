package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// BrowserCookie is the cookie of a Session's browser; its value is nowhere.
type BrowserCookie struct {
	Hash, SessionID      string
	CreatedAt, ExpiresAt time.Time
}

// Visit is what a visit to the website with a cookie is judged by, as of one moment.
type Visit struct {
	Standing
	Cookie  BrowserCookie
	Session SessionView
}

// Browsers keeps the cookies of Sessions' browsers.
type Browsers interface {
	// SaveBrowserCookie puts c in the place of the Session's cookie before and marks the
	// Session as used; it fails with ErrEnded if that has ended.
	SaveBrowserCookie(ctx context.Context, scope tenancy.Scope, c BrowserCookie) error
	// Visits finds what the cookies stand for, the latest first; those unknown are left out.
	Visits(ctx context.Context, scope tenancy.Scope, hashes []string) ([]Visit, error)
	// PruneBrowserCookies drops cookies of all Companies that expired before, at most limit.
	PruneBrowserCookies(ctx context.Context, before time.Time, limit int) (int, error)
}
