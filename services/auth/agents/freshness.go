package agents

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of how long a text is kept, whatever its server says. The lower one keeps a
// server that forbids caching from being asked for every token request; the upper one
// is how long a withdrawn key can live on.
const (
	minLifetime     = time.Minute
	maxLifetime     = 24 * time.Hour
	defaultLifetime = 5 * time.Minute // where the server says nothing
)

// lifetime returns for how long from now an answer with header h is kept: by
// Cache-Control, else by Expires, less the Age it already has (RFC 9111, section
// 4.2), within the bounds above.
func lifetime(h http.Header, now time.Time) time.Duration {
	life, ok := maxAge(h.Values("Cache-Control"))
	if !ok {
		life, ok = expires(h, now)
	}
	if !ok {
		return defaultLifetime
	}
	if age, ok := deltaSeconds(h.Get("Age")); ok {
		life -= age
	}
	return min(max(life, minLifetime), maxLifetime)
}

// maxAge reads Cache-Control as a shared cache does. Where directives repeat, the
// shortest counts.
func maxAge(values []string) (time.Duration, bool) {
	shared, private := time.Duration(-1), time.Duration(-1)
	for directive := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-store", "no-cache":
			return 0, true
		case "max-age":
			private = shorter(private, value)
		case "s-maxage":
			shared = shorter(shared, value)
		}
	}
	switch {
	case shared >= 0:
		return shared, true
	case private >= 0:
		return private, true
	default:
		return 0, false
	}
}

// shorter returns the shorter of old, unless it is negative, and value. A value that
// is no number of seconds means that the answer is stale already.
func shorter(old time.Duration, value string) time.Duration {
	d, ok := deltaSeconds(strings.Trim(strings.TrimSpace(value), `"`))
	if !ok {
		d = 0
	}
	if old >= 0 {
		return min(old, d)
	}
	return d
}

func expires(h http.Header, now time.Time) (time.Duration, bool) {
	values := h.Values("Expires")
	if len(values) == 0 {
		return 0, false
	}
	at, err := http.ParseTime(values[0])
	if err != nil {
		// "0" and other bad dates mean the past (RFC 9111, section 5.3).
		return 0, true
	}
	// The difference to the server's own Date does not depend on its clock being right.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return at.Sub(now), true
}

// deltaSeconds reads a number of seconds, at most about a year: more is far above maxLifetime.
func deltaSeconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	const most = 1 << 25
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		n = most
	}
	return time.Duration(n) * time.Second, true
}
