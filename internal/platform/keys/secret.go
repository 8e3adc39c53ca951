package keys

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is text that must not be shown. Printing, logging and encoding it give
// the same word whatever it holds; only Reveal gives the text. The zero Secret is empty.
type Secret struct {
	// A pointer, since fmt prints the unexported fields of others without asking their methods.
	text *string
}

const redacted = "[redacted]"

// NewSecret hides text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

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
