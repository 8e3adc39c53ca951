package app

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// Roles of Endpoint.
const (
	RoleAnswers = "answers" // the backend, of which a Company has one
	RoleListens = "listens" // is told of events
)

// KindStream is a backend that opens a stream to us: it has no URL.
const KindStream = "stream"

// Endpoint is where a Company is reached: its backend, or one that listens.
type Endpoint struct {
	ID             string // empty: a backend that was never set up
	Role           string
	Kind           string
	DisplayName    string
	URL            string
	Enabled        bool
	DisableReason  string
	AckTimeout     time.Duration // until the answer begins; 0: the default
	AttemptTimeout time.Duration // of all of it; 0: the default
	DeliverLate    bool
	Settings
	// Sealed are its Credentials, nil for none.
	Sealed []byte
	Series
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Settings are what has no column of its own. The JSON is what the database keeps.
type Settings struct {
	Policy Policy `json:"policy"`
	// EventTypes are the patterns of what an endpoint listens to; none: everything.
	EventTypes   []string `json:"event_types,omitempty"`
	Model        string   `json:"model,omitempty"` // these three are of KindOpenAIChat
	Instructions string   `json:"instructions,omitempty"`
	History      int      `json:"history,omitempty"`
	HasAPIKey    bool     `json:"has_api_key,omitempty"`
	// Epoch grows when the endpoint starts afresh: what was known of how attempts go,
	// and attempts that are still under way, mean nothing any more.
	Epoch int64 `json:"epoch,omitempty"`
	// Recovering: it was turned off by itself, and has taken nothing since it is on again.
	Recovering bool `json:"recovering,omitempty"`
}

// Policy is how an endpoint is sent to. The zero value of a field is the default.
type Policy struct {
	Schedule     []time.Duration `json:"schedule,omitempty"` // before the 2nd, 3rd, … attempt
	MaxInFlight  int             `json:"max_in_flight,omitempty"`
	Rate         float64         `json:"rate,omitempty"` // attempts a second; 0: no limit
	Burst        int             `json:"burst,omitempty"`
	HeaderNames  []string        `json:"header_names,omitempty"`
	Certificate  string          `json:"certificate,omitempty"` // PEM, the chain that we show
	DisableAfter time.Duration   `json:"disable_after,omitempty"`
}

// Series is how attempts went lately, as the row remembers it.
type Series struct {
	Failures      int        // one after the other; several processes add to it now and then
	FailingSince  *time.Time // the first failure after the last success
	LastSuccessAt *time.Time // of the last success that ended a series of failures
}

// Defaults and bounds.
const (
	DefaultAckTimeout     = 10 * time.Second
	MaxAckTimeout         = 60 * time.Second
	DefaultAttemptTimeout = 30 * time.Second
	MinAttemptTimeout     = 100 * time.Millisecond
	MaxAttemptTimeout     = 5 * time.Minute
	ListenerTimeout       = 15 * time.Second

	BackendInFlight  = 64
	ListenerInFlight = 16

	DefaultHistory = 50

	DefaultDisableAfter = 5 * 24 * time.Hour
	MaxDisableAfter     = 30 * 24 * time.Hour
)

// NewBackend is the backend of a Company that has set up none yet.
func NewBackend() Endpoint {
	return Endpoint{Role: RoleAnswers, Kind: KindWebhook, Enabled: true, DeliverLate: true}
}

// NewListener is an endpoint that listens, before anything is said of it.
func NewListener() Endpoint {
	return Endpoint{Role: RoleListens, Kind: KindWebhook, Enabled: true}
}

// IsSet reports whether there is anything to reach.
func (e Endpoint) IsSet() bool { return e.URL != "" || e.Kind == KindStream }

// Name is the resource name below the Company's.
func (e Endpoint) Name() string {
	if e.Role == RoleListens {
		return "endpoints/" + e.ID
	}
	return "backend"
}

// Ack is how long until the answer has to begin.
func (e Endpoint) Ack() time.Duration {
	d := e.AckTimeout
	if d == 0 {
		d = DefaultAckTimeout
	}
	return min(d, e.Whole())
}

// Whole is how long an attempt may take.
func (e Endpoint) Whole() time.Duration {
	switch {
	case e.AttemptTimeout != 0:
		return e.AttemptTimeout
	case e.Role == RoleListens:
		return ListenerTimeout
	default:
		return DefaultAttemptTimeout
	}
}

// Schedule is the waits before each attempt, the first one's included.
func (e Endpoint) Schedule() []time.Duration {
	switch {
	case len(e.Policy.Schedule) > 0:
		return append([]time.Duration{0}, e.Policy.Schedule...)
	case e.Role == RoleListens:
		// Nobody waits for it: without the early second attempt.
		return slices.Delete(webhook.DefaultSchedule(), 1, 2)
	default:
		return webhook.DefaultSchedule()
	}
}

// InFlight is how many attempts may be under way at once.
func (e Endpoint) InFlight() int {
	switch {
	case e.Policy.MaxInFlight > 0:
		return e.Policy.MaxInFlight
	case e.Role == RoleListens:
		return ListenerInFlight
	default:
		return BackendInFlight
	}
}

func (e Endpoint) disableAfter() time.Duration {
	if e.Policy.DisableAfter > 0 {
		return e.Policy.DisableAfter
	}
	return DefaultDisableAfter
}

// bucket returns the size of the token bucket: unless it is set, what the rate gives in a
// tenth of a second.
func (e Endpoint) bucket() int {
	if e.Policy.Burst > 0 {
		return e.Policy.Burst
	}
	return max(1, int(e.Policy.Rate/10))
}

// afresh forgets how attempts went: another place is meant, or somebody says that it works again.
func (e *Endpoint) afresh() {
	e.Enabled, e.DisableReason, e.Series, e.Recovering = true, "", Series{LastSuccessAt: e.LastSuccessAt}, false
	e.Epoch++
}

// Hidden stands for a secret value: it is shown in its place, and sent as that it stays.
const Hidden = "•••"

// Credentials are an endpoint's secrets. Printing them shows none.
type Credentials struct {
	APIKey    string            `json:"api_key,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"` // by canonical name
	ClientKey string            `json:"client_key,omitempty"`
}

// String returns a placeholder.
func (Credentials) String() string { return "[redacted]" }

// GoString returns a placeholder.
func (c Credentials) GoString() string { return c.String() }

// keepSecretsHome drops the credentials once e has left the server that its URL before
// named: they were given for that one, and whoever may change the URL may not read them.
func (e *Endpoint) keepSecretsHome(c *Credentials, before string) {
	if before == "" || originOf(before) == originOf(e.URL) {
		return
	}
	*c = Credentials{}
	e.Policy.Certificate = ""
}

// originOf returns scheme, host and port of a URL, which is itself where it has none.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (c Credentials) empty() bool { return c.APIKey == "" && len(c.Headers) == 0 && c.ClientKey == "" }

// put adds what the endpoint wants in every request to h.
func (c Credentials) put(h http.Header) {
	for name, value := range c.Headers {
		h[name] = []string{value}
	}
	if c.APIKey != "" {
		h["Authorization"] = []string{"Bearer " + c.APIKey}
	}
}
