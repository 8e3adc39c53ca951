package connect

import (
	"context"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

const (
	// maxAccount bounds an account and its label, in characters.
	maxAccount = 255
	// skew is how far the provider's clock may be behind ours.
	skew = 30 * time.Second
)

// claims are those of an ID token that passed every check, or of its userinfo.
type claims map[string]jsonx.Value

func parseClaims(raw []byte) (claims, bool) {
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return nil, false
	}
	c := claims{}
	for name, value, ok := obj.Next(); ok; name, value, ok = obj.Next() {
		c[string(name)] = value
	}
	return c, true
}

// checkIDToken checks an ID token by OIDC-Core-1.0/3.1.3.7.
func (p *provider) checkIDToken(ctx context.Context, raw, clientID, nonce string, now time.Time) (claims, error) {
	signed := &onceVerified{keys: p.keys}
	token, err := oidc.NewVerifier(p.Issuer, signed, &oidc.Config{
		ClientID: clientID, SupportedSigningAlgs: jose.Algs(), Now: func() time.Time { return now.Add(-skew) },
	}).Verify(ctx, raw)
	var expired *oidc.TokenExpiredError
	switch {
	case signed.err != nil:
		return nil, signed.err
	case errors.As(err, &expired):
		return nil, refused("the ID token has expired")
	case err != nil && signed.payload == nil:
		return nil, refused("the ID token is not signed by an algorithm of ours")
	case err != nil: // its text quotes the token
		return nil, refused("the ID token is of another issuer, for another client, or not valid yet")
	}
	c, ok := parseClaims(signed.payload)
	if !ok {
		return nil, refused("the ID token's claims are no sound JSON object")
	}
	azp, hasAZP := c["azp"]
	switch {
	case hasAZP && azp.Text() != clientID, !hasAZP && len(token.Audience) > 1:
		return nil, refused("the ID token's azp is not our client")
	case nonce == "" || subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return nil, refused("the ID token's nonce is another one")
	case c["sub"].Text() == "":
		return nil, refused("the ID token has no sub")
	}
	return c, nil
}

// account returns whose ID token it is. What the Company's settings ask for and the
// token lacks is looked up at the userinfo endpoint, where many providers keep it.
func (o *OIDC) account(ctx context.Context, set directory.OIDCProvider, p *provider, c claims, accessToken string) (Account, error) {
	claim := set.AccountClaim
	if claim == "" {
		claim = "sub"
	}
	_, there := c[claim]
	var missing error
	if p.UserinfoEndpoint != "" && (!there || c.label(set.LabelClaim) == "" && len(set.Scopes) > 0) {
		missing = o.addUserinfo(ctx, p, c, accessToken)
	}
	id, ok := c.account(claim)
	switch {
	case !ok && missing != nil:
		return Account{}, missing
	case !ok:
		return Account{}, refused("the account's claim is missing, empty, too long, or neither a string nor a whole number")
	case claim == "email" && !c.vouchedEmail():
		return Account{}, refused("the account's email is not verified")
	}
	return Account{ID: id, Label: c.label(set.LabelClaim)}, nil
}

// addUserinfo adds the claims of the userinfo endpoint that c lacks.
func (o *OIDC) addUserinfo(ctx context.Context, p *provider, c claims, accessToken string) error {
	if !isHTTPS(p.UserinfoEndpoint) || strings.ContainsFunc(accessToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return unavailable("userinfo", "the endpoint or the access token is malformed")
	}
	body, err := o.http.get(ctx, "userinfo", p.UserinfoEndpoint, "Bearer "+accessToken)
	if err != nil {
		return err
	}
	more, ok := parseClaims(body)
	if !ok {
		return unavailable("userinfo", "the answer is no sound JSON object")
	}
	// The access token may have been swapped for another User's: OIDC-Core-1.0/5.3.2.
	if more["sub"].Text() != c["sub"].Text() {
		return refused("userinfo is about somebody else")
	}
	for name, value := range more {
		if _, there := c[name]; !there {
			c[name] = value
		}
	}
	return nil
}

// account returns a claim that is a string or a whole number, as text.
func (c claims) account(name string) (string, bool) {
	v := c[name]
	text := v.Text()
	if v.Kind() == jsonx.Number {
		text = string(v.Raw())
		if strings.ContainsAny(text, ".eE") { // other spellings would be other accounts
			return "", false
		}
	}
	return text, isLine(text)
}

// label returns the first claim that the User may know the account by.
func (c claims) label(configured string) string {
	for _, name := range slices.Concat([]string{configured}, []string{"email", "preferred_username", "name"}) {
		if text := c[name].Text(); isLine(text) {
			return text
		}
	}
	return ""
}

// vouchedEmail reports whether the provider doesn't say itself that the email may be
// anybody's. Some write the boolean as a string.
func (c claims) vouchedEmail() bool {
	v, there := c["email_verified"]
	verified, _ := v.Bool()
	return !there || verified || v.Text() == "true"
}

// isLine reports whether text is neither empty nor too long and has no control character.
func isLine(text string) bool {
	return text != "" && utf8.RuneCountInString(text) <= maxAccount && !strings.ContainsFunc(text, unicode.IsControl)
}
