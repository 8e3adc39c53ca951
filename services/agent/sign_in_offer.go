package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

// The types of sign-in (4.5, 4.6, 4.7), in the order in which the agent prefers them:
// what the User does themselves at the Company comes before giving the agent a password.
const (
	SignInDirect   = "direct"
	SignInDevice   = "device"
	SignInMediated = "mediated"
)

// offer is a type of sign-in that the Company supports, with the scopes it can grant.
type offer struct {
	kind     string
	scopes   oauth.Scope
	endpoint string  // mediated: the only place that credentials may be sent to
	fields   []field // mediated: what to ask the User for
}

type field struct {
	Name   string `json:"name"`
	Label  string `json:"label"`
	Secret *bool  `json:"secret"`
}

// secret holds also for a field that doesn't say: to protect too much does no harm.
func (f field) secret() bool { return f.Secret == nil || *f.Secret }

// parseOffers reads auth.direct, auth.device and auth.mediated. One that can't be used
// counts as not offered: the Company can be talked to all the same.
func parseOffers(doc poppyDocument) (offers []offer, skipped []string) {
	for kind, raw := range map[string]json.RawMessage{
		SignInDirect: doc.Auth.Direct, SignInDevice: doc.Auth.Device, SignInMediated: doc.Auth.Mediated,
	} {
		if !present(raw) {
			continue
		}
		o, err := parseOffer(kind, raw)
		if err != nil {
			skipped = append(skipped, fmt.Sprintf("%s: %s", kind, err))
			continue
		}
		offers = append(offers, o)
	}
	order := []string{SignInDirect, SignInDevice, SignInMediated}
	slices.SortFunc(offers, func(a, b offer) int { return slices.Index(order, a.kind) - slices.Index(order, b.kind) })
	slices.Sort(skipped)
	return offers, skipped
}

func parseOffer(kind string, raw json.RawMessage) (offer, error) {
	var in struct {
		Scopes   []string `json:"scopes"`
		Endpoint string   `json:"endpoint"`
		Fields   []field  `json:"fields"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return offer{}, errors.New("it is not an object as section 3.1 describes it")
	}
	scopes, err := oauth.ParseScope(strings.Join(in.Scopes, " "))
	if err != nil || len(scopes) == 0 {
		return offer{}, errors.New("it lists no usable scopes")
	}
	o := offer{kind: kind, scopes: scopes}
	if kind != SignInMediated {
		return o, nil
	}
	u, err := httpsURL(in.Endpoint)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return offer{}, errors.New("its endpoint is not an https URL")
	}
	var names []string
	for _, f := range in.Fields {
		if f.Name == "" || f.Label == "" || slices.Contains(names, f.Name) {
			return offer{}, errors.New("its fields are not distinct names with labels")
		}
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return offer{}, errors.New("it lists no fields")
	}
	o.endpoint, o.fields = in.Endpoint, in.Fields
	return o, nil
}

func (c Company) mediatedEndpoint() string {
	for _, o := range c.offers {
		if o.kind == SignInMediated {
			return o.endpoint
		}
	}
	return ""
}

// chooseOffer picks the type of sign-in and the scopes to ask it for (poppy-0.1/4.4#2).
// Where no scopes are named they are what the type lists, so that a Company without the
// broad ones is asked for its own (poppy-0.1/4.4#19).
func (c Company) chooseOffer(kind string, want oauth.Scope, redirects bool) (offer, oauth.Scope, error) {
	none := func(format string, args ...any) (offer, oauth.Scope, error) {
		return offer{}, nil, fail(ExitUsage, "4.4", "%s; %s", fmt.Sprintf(format, args...), c.describeOffers())
	}
	if kind != "" && !slices.Contains([]string{SignInDirect, SignInDevice, SignInMediated}, kind) {
		return none("--type %q: direct, device or mediated is wanted", kind)
	}
	for _, o := range c.offers {
		switch {
		case kind != "" && o.kind != kind:
		case o.kind == SignInDirect && !redirects:
			if kind == SignInDirect {
				return none("the agent has no redirect URI for Direct Sign-In; run: poppyfield agent init --redirect-uri https://…")
			}
		case len(want) == 0:
			return o, o.scopes, nil
		case o.scopes.Covers(want):
			return o, want, nil
		}
	}
	if kind != "" {
		return none("there is no %s sign-in for %q", kind, want.String())
	}
	return none("there is no sign-in for %q that this agent can use", want.String())
}

func (c Company) describeOffers() string {
	if len(c.offers) == 0 {
		return c.name + " offers signed-out Sessions only"
	}
	parts := make([]string, 0, len(c.offers))
	for _, o := range c.offers {
		parts = append(parts, fmt.Sprintf("%s (%s)", o.kind, o.scopes))
	}
	return c.name + " offers " + strings.Join(parts, ", ")
}

// signInCommand is what the User runs to sign in. A scope is the Company's text, so it
// is only put into a line that people copy where no shell makes something else of it.
func (c Company) signInCommand(scope string) string {
	line := "poppyfield agent sign-in " + c.asked
	if regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._/ -]{0,500}$`).MatchString(scope) {
		line += fmt.Sprintf(" --scope %q", scope)
	}
	return line
}

// parseScopeFlag reads a scope of the command line.
func parseScopeFlag(s string) (oauth.Scope, error) {
	scope, err := oauth.ParseScope(strings.Join(strings.Fields(s), " "))
	if err != nil {
		return nil, fail(ExitUsage, "4.4", "--scope: names with spaces between them are wanted").because(err)
	}
	return scope, nil
}
