package agent

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// credentials are what the User gave the agent for Mediated Sign-In. They live in
// memory as long as the command runs, and no part of them is ever shown, also where
// the agent was told to show secrets (poppy-0.1/4.7#7).
type credentials struct {
	values map[string]string
	codes  []string // one-time codes that were typed
	hidden *strings.Replacer
}

func newCredentials(values map[string]string) *credentials {
	c := &credentials{values: values}
	c.build()
	return c
}

// build makes the replacer, for the values as they are and as they stand in JSON. The
// longer ones come first: a value may be part of another one.
func (c *credentials) build() {
	var secrets []string
	for _, v := range append(slices.Collect(maps.Values(c.values)), c.codes...) {
		quoted := string(jsonx.AppendString(nil, v))
		secrets = append(secrets, v, quoted[1:len(quoted)-1])
		if plain, err := json.Marshal(v); err == nil { // which escapes <, > and & as well
			secrets = append(secrets, string(plain[1:len(plain)-1]))
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range slices.Compact(secrets) {
		if s != "" {
			pairs = append(pairs, s, redacted)
		}
	}
	c.hidden = strings.NewReplacer(pairs...)
}

func (c *credentials) addCode(code string) {
	c.codes = append(c.codes, code)
	c.build()
}

// hide returns text without any of them; c may be nil.
func (c *credentials) hide(text string) string {
	if c == nil || text == "" {
		return text
	}
	return c.hidden.Replace(text)
}

func (c *credentials) hideHeaders(h http.Header) http.Header {
	if c == nil {
		return h
	}
	out := make(http.Header, len(h))
	for name, values := range h {
		for _, v := range values {
			out.Add(c.hide(name), c.hide(v))
		}
	}
	return out
}

// checkCredentials wants exactly the fields that the Company lists.
func checkCredentials(fields []field, values map[string]string) error {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
		if values[f.Name] == "" {
			return fail(ExitUsage, "4.7", "the Company wants %s, which is missing", f.Name)
		}
	}
	for name := range values {
		if !slices.Contains(names, name) {
			return fail(ExitUsage, "4.7", "the Company asks only for %s", strings.Join(names, ", "))
		}
	}
	return nil
}

// ParseCredentials reads the credentials of Mediated Sign-In from a JSON object of
// strings. They are no part of the error.
func ParseCredentials(raw []byte) (map[string]string, error) {
	values := map[string]string{}
	if _, err := jsonx.ParseObject(raw); err != nil {
		return nil, fail(ExitUsage, "4.7", "the credentials must be a JSON object, such as {\"email\": \"…\", \"password\": \"…\"}").because(errors.New("malformed"))
	}
	if json.Unmarshal(raw, &values) != nil {
		return nil, fail(ExitUsage, "4.7", "every credential must be a string")
	}
	return values, nil
}
