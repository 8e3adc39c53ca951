// Package events is the catalogue of what listening endpoints can be told of. Its one
// source are the types of internal/poppy/webhook, from which those who tell of events
// make their bodies, too; a type's schema and example are made from the same.
package events

import (
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// Ping is sent when somebody tries an endpoint.
const Ping = webhook.EventPing

// Types returns every type, in the catalogue's order.
func Types() []string { return webhook.EventTypes() }

// Matches reports whether one of patterns is the type, or ends in a star and stands for
// it; none at all stand for every type. Ping fits nothing: it goes to whom it is for.
func Matches(patterns []string, name string) bool { return webhook.MatchesEvent(patterns, name) }

// Check reports a pattern that fits no type. path names its field.
func Check(path, pattern string) error { return webhook.CheckEventPattern(path, pattern) }

// Describe says when an event of the type happens; "" where there is no such type.
func Describe(name string) string { return webhook.DescribeEvent(name) }

// Schema returns the JSON Schema (draft 2020-12) of the bodies of a type.
func Schema(name string) ([]byte, error) { return webhook.EventSchema(name) }

// Example returns a body as an event of the type may have it, as of at.
func Example(name string, at time.Time) ([]byte, error) { return webhook.ExampleEvent(name, at) }
