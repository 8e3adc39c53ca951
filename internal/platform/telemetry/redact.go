package telemetry

import (
	"encoding"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
)

const redacted = "[redacted]"

// deniedWords are the words in a key that say its value is a secret, or something a User wrote.
var deniedWords = wordSet(
	"assertion", "authorization", "bearer", "body", "code", "codes", "cookie", "cookies", "credential", "credentials",
	"data", "dpop", "form", "jwt", "nonce", "passphrase", "passwd", "password", "payload", "private", "proof", "query",
	"secret", "secrets", "signature", "text", "token", "tokens", "verifier",
)

// allowedKeys hold one of those words and are harmless.
var allowedKeys = wordSet(
	"status_code", "error_code", "exit_code", "grpc_code", "http.status_code", "http.response.status_code", "rpc.grpc.status_code",
	"token_type", "token_endpoint", "data_dir",
)

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}

// denied reports whether values under key are not shown.
func denied(key string) bool {
	if allowedKeys[strings.ToLower(key)] {
		return false
	}
	for _, w := range words(key) {
		if deniedWords[w] {
			return true
		}
	}
	return false
}

// words splits a key at everything but letters and digits, and where an upper-case letter begins a word.
func words(key string) []string {
	var out []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			out = append(out, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	var last rune
	for _, c := range key {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			end()
		case unicode.IsUpper(c) && !unicode.IsUpper(last):
			end()
			word.WriteRune(c)
		default:
			word.WriteRune(c)
		}
		last = c
	}
	end()
	if strings.EqualFold(key, "dpop") { // DPoP would be split
		out = append(out, "dpop")
	}
	return out
}

func redact(a slog.Attr) slog.Attr {
	if a.Key != "" && denied(a.Key) {
		return slog.String(a.Key, redacted)
	}
	return slog.Attr{Key: a.Key, Value: redactValue(a.Value)}
}

func redactValue(v slog.Value) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(scrub(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, a := range group {
			clean[i] = redact(a)
		}
		return slog.GroupValue(clean...)
	case slog.KindAny:
		return redactAny(v.Any())
	default:
		return v
	}
}

// redactAny shows the few types whose text is known to be fit for a log. A struct,
// map or byte slice may hold anything and shows only its type.
func redactAny(v any) slog.Value {
	switch t := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case error:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return slog.StringValue("<nil>")
		}
		return slog.StringValue(scrub(t.Error()))
	case *url.URL:
		if t == nil {
			return slog.StringValue("")
		}
		return slog.StringValue(scrub((&url.URL{Scheme: t.Scheme, Host: t.Host, Path: t.Path}).String()))
	case slog.Level, time.Time, time.Duration, netip.Addr, netip.AddrPort, netip.Prefix:
		return slog.AnyValue(t)
	case []string:
		clean := make([]string, len(t))
		for i, s := range t {
			clean[i] = scrub(s)
		}
		return slog.AnyValue(clean)
	case *slog.Source:
		return slog.AnyValue(t)
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.String: // a named string, with the text its type shows
		if s, ok := v.(fmt.Stringer); ok {
			return slog.StringValue(scrub(s.String()))
		}
		if _, ok := v.(encoding.TextMarshaler); !ok {
			return slog.StringValue(scrub(rv.String()))
		}
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		if s, ok := v.(fmt.Stringer); ok {
			return slog.StringValue(scrub(s.String()))
		}
		return slog.AnyValue(v)
	default:
	}
	return slog.StringValue(fmt.Sprintf("[%T]", v))
}

// Shapes of secrets inside longer text, such as the text of an error. Every shape
// has a cheap test that most text fails.
var shapes = []struct {
	maybe   func(text string) bool
	find    *regexp.Regexp
	replace string
}{
	{ // JWTs: assertions and proofs
		func(text string) bool { return strings.Contains(text, "eyJ") },
		regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*){0,4}`), redacted,
	},
	{ // what follows the scheme of an Authorization header
		func(text string) bool {
			lower := strings.ToLower(text)
			return strings.Contains(lower, "bearer") || strings.Contains(lower, "dpop") || strings.Contains(lower, "basic")
		},
		regexp.MustCompile(`(?i)\b(bearer|dpop|basic)[ :]+[A-Za-z0-9._~+/=-]{12,}`), "$1 " + redacted,
	},
	{ // tokens and secrets of our own making: a prefix and 256 bits
		func(text string) bool { return len(text) > 42 && strings.Contains(text, "_") },
		regexp.MustCompile(`\b[a-z]{2,12}_[A-Za-z0-9_+/-]{40,}=*`), redacted,
	},
	{ // queries of URLs
		func(text string) bool { return strings.Contains(text, "?") && strings.Contains(text, "://") },
		regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://[^\s"?#]*)\?[^\s"]*`), "$1?" + redacted,
	},
	{ // user and password of a URL
		func(text string) bool { return strings.Contains(text, "@") && strings.Contains(text, "://") },
		regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://)[^\s"/@]+@`), "$1" + redacted + "@",
	},
	{ // members of forms and queries that stand alone
		func(text string) bool { return strings.Contains(text, "=") },
		regexp.MustCompile(`(?i)\b(access_token|refresh_token|token|client_assertion|assertion|client_secret|code|code_verifier|device_code|user_code|password)=[^&\s"]+`),
		"$1=" + redacted,
	},
}

// scrub takes what looks like a secret out of text.
func scrub(text string) string {
	for _, s := range shapes {
		if s.maybe(text) {
			text = s.find.ReplaceAllString(text, s.replace)
		}
	}
	return text
}
