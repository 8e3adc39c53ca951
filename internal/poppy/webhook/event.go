package webhook

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The types of events that listeners are told of. EventMessage is one of them too.
const (
	EventStarted           = "conversation.started"
	EventStatusChanged     = "conversation.status_changed"
	EventHandoffRequested  = "conversation.handoff_requested"
	EventPersonJoined      = "conversation.person_joined"
	EventHandedBack        = "conversation.handed_back"
	EventUserRequested     = "conversation.user_requested"
	EventAuthorization     = "conversation.authorization_requested"
	EventDirectOpened      = "conversation.direct_opened"
	EventDirectClosed      = "conversation.direct_closed"
	EventClosed            = "conversation.closed"
	EventSessionStarted    = "session.started"
	EventSessionSignedIn   = "session.signed_in"
	EventSessionSignedOut  = "session.signed_out"
	EventSessionEnded      = "session.ended"
	EventEndpointDisabled  = "endpoint.disabled"
	EventEndpointRecovered = "endpoint.recovered"
	EventDeliveryExhausted = "delivery.exhausted"
	EventSecretExpiring    = "secret.expiring"
	EventPing              = "test.ping"
)

const (
	maxPattern     = 100
	exampleCompany = "companies/cmp_01hxk5c4d3q2w1e0r9t8y7z6m5"

	companyMember = "company"
	companyDoc    = "The Company, as its resource name."
	typeDoc       = "The event's type."
	timestampDoc  = "When it happened, not when it is sent."
)

// EventTypes returns every type of the catalogue, in its order.
func EventTypes() []string {
	out := make([]string, 0, len(catalogue))
	for _, k := range catalogue {
		out = append(out, k.name)
	}
	return out
}

// DescribeEvent says in a sentence when an event of the type happens; "" for a type that there isn't.
func DescribeEvent(name string) string {
	if k, ok := kindOf(name); ok {
		return k.doc
	}
	return ""
}

// MatchesEvent reports whether one of patterns names the type: by itself, or with a
// star at the end that stands for the rest. No pattern at all is every type but
// EventPing, which is sent to whom it is for alone.
func MatchesEvent(patterns []string, name string) bool {
	if name == EventPing {
		return false
	}
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		stem, star := strings.CutSuffix(p, "*")
		return p == name || star && strings.HasPrefix(name, stem)
	})
}

// CheckEventPattern reports a pattern that no type fits, so that a misspelt one is
// found when it is written and not by what never comes.
func CheckEventPattern(path, p string) error {
	if len(p) <= maxPattern && slices.ContainsFunc(catalogue, func(k eventKind) bool { return MatchesEvent([]string{p}, k.name) }) {
		return nil
	}
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "%s: no event has such a type", path).WithField(path, "no event has such a type")
}

// BuildEvent makes the body of an event. data is of the type that the catalogue has
// for it. Every member is always there, and the bytes are made once: each attempt
// sends the same ones to each listener.
func BuildEvent(name, company string, at time.Time, data any) ([]byte, error) {
	k, ok := kindOf(name)
	if !ok || reflect.TypeOf(data) != reflect.TypeOf(k.example) {
		return nil, problem.New(problem.Internal, problem.ServerError, "", "an event is none of the catalogue")
	}
	return encode(wireEvent{Type: name, Timestamp: at.UTC().Format(timeLayout), Data: withCompany{company, data}})
}

// ExampleEvent returns a body as an event of the type may have it.
func ExampleEvent(name string, at time.Time) ([]byte, error) {
	k, ok := kindOf(name)
	if !ok {
		return nil, problem.New(problem.NotFound, problem.NotFoundReason, "", "no event has such a type")
	}
	return BuildEvent(name, exampleCompany, at, k.example)
}

type wireEvent struct {
	Type      string      `json:"type"`
	Timestamp string      `json:"timestamp"`
	Data      withCompany `json:"data"`
}

// withCompany is an event's data with the Company as its first member, so that nobody
// who tells of something has to say whose it is.
type withCompany struct {
	company string
	data    any
}

// MarshalJSON implements json.Marshaler.
func (w withCompany) MarshalJSON() ([]byte, error) {
	head, err := encode(map[string]string{companyMember: w.company})
	if err != nil {
		return nil, err
	}
	rest, err := encode(w.data)
	if err != nil {
		return nil, err
	}
	if string(rest) == "{}" {
		return head, nil
	}
	return append(append(head[:len(head)-1], ','), rest[1:]...), nil
}

func kindOf(name string) (eventKind, bool) {
	i := slices.IndexFunc(catalogue, func(k eventKind) bool { return k.name == name })
	if i < 0 {
		return eventKind{}, false
	}
	return catalogue[i], true
}
