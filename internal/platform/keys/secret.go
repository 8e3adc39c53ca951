package keys

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is text that must not be shown. Printing, logging and encoding it give
// the same word whatever it holds; only Reveal gives the text.
type Secret string

const redacted = "[redacted]"

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// String hides the text.
func (Secret) String() string { return redacted }

// GoString hides the text from %#v.
func (Secret) GoString() string { return redacted }

// Format hides the text from every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the text from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON hides the text from encoding/json.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText hides the text from other encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
