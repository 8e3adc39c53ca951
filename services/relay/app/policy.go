package app

import (
	"crypto/tls"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Bounds of a policy.
const (
	maxWaits     = 20
	maxWait      = 48 * time.Hour
	maxInFlight  = 256
	maxRate      = 10000
	maxBurst     = 10000
	maxHeaders   = 20
	maxHeader    = 2000 // bytes of a value
	maxName      = 100  // bytes of a header's name
	maxPEM       = 32000
	maxAPIKey    = 4096
	maxModel     = 200
	maxPrompt    = 32000 // characters
	maxHistory   = 200
	maxURL       = 2000
	maxDisplay   = 200
	maxPatterns  = 50
	maxReason    = 200
	maxListeners = 50
)

// PolicyChange is what may change of a policy; nil leaves a field.
type PolicyChange struct {
	Schedule     *[]time.Duration
	MaxInFlight  *int
	Rate         *float64
	Burst        *int
	Headers      map[string]string // nil leaves them; a value that is Hidden stays what it was, at the same server
	Certificate  *string
	ClientKey    *string // write-only: an empty one stays what it was
	DisableAfter *time.Duration
}

// faults collects what is wrong with a change, so that it is said at once.
type faults struct{ err *problem.Error }

func (f *faults) add(field, detail string) {
	if f.err == nil {
		f.err = resource.Invalid(field, detail)
		return
	}
	f.err = f.err.WithField(field, detail)
}

func (f *faults) check(ok bool, field, detail string) {
	if !ok {
		f.add(field, detail)
	}
}

func (f *faults) error() error {
	if f.err == nil {
		return nil
	}
	return f.err
}

// apply changes the policy of e and its credentials c; path is the policy's field.
func (ch PolicyChange) apply(e *Endpoint, c *Credentials, path string, f *faults) {
	p := &e.Policy
	if ch.Schedule != nil {
		p.Schedule = slices.Clone(*ch.Schedule)
		f.check(len(p.Schedule) <= maxWaits, path+".schedule", "at most "+strconv.Itoa(maxWaits)+" waits")
		for i, d := range p.Schedule {
			f.check(d >= 0 && d <= maxWait, path+".schedule["+strconv.Itoa(i)+"]", "must be between 0 and 48 h")
		}
	}
	if ch.MaxInFlight != nil {
		p.MaxInFlight = *ch.MaxInFlight
		f.check(p.MaxInFlight >= 0 && p.MaxInFlight <= maxInFlight, path+".max_in_flight", "must be between 0 and 256")
	}
	if ch.Rate != nil {
		p.Rate = *ch.Rate
		f.check(p.Rate >= 0 && p.Rate <= maxRate, path+".rate", "must be between 0 and 10,000") // refuses NaN too
	}
	if ch.Burst != nil {
		p.Burst = *ch.Burst
		f.check(p.Burst >= 0 && p.Burst <= maxBurst, path+".burst", "must be between 0 and 10,000")
	}
	if ch.DisableAfter != nil {
		p.DisableAfter = *ch.DisableAfter
		f.check(p.DisableAfter >= 0 && p.DisableAfter <= MaxDisableAfter, path+".disable_after", "must be between 0 and 30 days")
	}
	if ch.Headers != nil {
		c.Headers = mergeHeaders(ch.Headers, c.Headers, path+".headers", f)
	}
	p.HeaderNames = slices.Sorted(maps.Keys(c.Headers))
	if _, there := c.Headers["Authorization"]; there && c.APIKey != "" {
		f.add(path+".headers", "Authorization is made of the API key")
	}
	ch.applyCertificate(p, c, path, f)
}

func (ch PolicyChange) applyCertificate(p *Policy, c *Credentials, path string, f *faults) {
	if ch.Certificate == nil && ch.ClientKey == nil {
		return
	}
	if ch.Certificate != nil {
		p.Certificate = *ch.Certificate
	}
	if ch.ClientKey != nil && *ch.ClientKey != "" {
		c.ClientKey = *ch.ClientKey
	}
	if p.Certificate == "" {
		f.check(ch.ClientKey == nil || *ch.ClientKey == "", path+".client_certificate", "is needed with a key")
		c.ClientKey = ""
		return
	}
	if len(p.Certificate) > maxPEM || len(c.ClientKey) > maxPEM {
		f.add(path+".client_certificate", "is too long")
		return
	}
	if c.ClientKey == "" {
		f.add(path+".client_key", "is needed with a certificate")
		return
	}
	// What the parser says may quote the key.
	_, err := tls.X509KeyPair([]byte(p.Certificate), []byte(c.ClientKey))
	f.check(err == nil, path+".client_certificate", "certificate and key don't parse in PEM form, or don't belong together")
}

// mergeHeaders returns sent with what is Hidden there taken from before.
func mergeHeaders(sent, before map[string]string, path string, f *faults) map[string]string {
	f.check(len(sent) <= maxHeaders, path, "at most "+strconv.Itoa(maxHeaders)+" headers")
	out := make(map[string]string, len(sent))
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		field := path + "[" + strconv.Quote(name) + "]"
		if why := unfitName(name); why != "" {
			f.add(field, why)
			continue
		}
		canonical, value := http.CanonicalHeaderKey(name), sent[name]
		if _, twice := out[canonical]; twice {
			f.add(field, "is there twice")
			continue
		}
		if value == Hidden {
			old, known := before[canonical]
			f.check(known, field, "has no value for this URL that could stay")
			value = old
		}
		f.check(len(value) <= maxHeader && strings.TrimSpace(value) == value && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }),
			field, "the value must be at most 2,000 visible ASCII characters")
		out[canonical] = value
	}
	return out
}

// unfitName says why a header can't be set; "" where it can.
func unfitName(name string) string {
	if len(name) > maxName || !httpguts.ValidHeaderFieldName(name) {
		return "is no name of a header"
	}
	lower := strings.ToLower(name)
	switch lower {
	case "host", "user-agent", "accept", "accept-encoding", "expect", "traceparent", "tracestate", "baggage":
		return "is ours to set"
	case "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings":
		return "is about the connection"
	}
	switch {
	case strings.HasPrefix(lower, "content-"):
		return "is ours to set"
	case strings.HasPrefix(lower, "webhook-"):
		return "is the signature's"
	case strings.HasPrefix(lower, "proxy-"):
		return "is about the connection"
	}
	return ""
}
