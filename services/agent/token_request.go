package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

const (
	grantJWTBearer         = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantAuthorizationCode = "authorization_code"
	grantDeviceCode        = "urn:ietf:params:oauth:grant-type:device_code"
	grantRefreshToken      = "refresh_token"
	assertionTypeBearer    = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionLifetime      = time.Minute
)

// formRequest is a form POST to an endpoint of the issuer's metadata (3.2).
type formRequest struct {
	section, title, url string
	form                url.Values
	secrets             []string               // values of form that are not to be shown
	fresh               func(url.Values) error // sets what each try needs anew; may be nil
	proof               bool                   // with a DPoP Proof: at the token endpoint alone
	expected            []string               // errors that are answers like any other
}

// postForm sends a form with a client assertion, and all that must be fresh, of each try's own.
func (v *visit) postForm(ctx context.Context, r formRequest) (incoming, error) {
	out := outgoing{
		method: http.MethodPost, url: r.url, limit: documentLimit, expected: r.expected,
		repeatable: true, // each try has assertions of its own, so none can count as replayed
	}
	return v.agent.send(ctx, r.section, r.title, out, func(out *outgoing) error {
		form := maps.Clone(r.form)
		if r.fresh != nil {
			if err := r.fresh(form); err != nil {
				return err
			}
		}
		client, err := v.assertion(v.agent.identity.ClientID)
		if err != nil {
			return err
		}
		form.Set("client_id", v.agent.identity.ClientID)
		form.Set("client_assertion_type", assertionTypeBearer)
		form.Set("client_assertion", client)
		out.header = http.Header{"Content-Type": {formType}, "Accept": {jsonType}}
		out.known = append([]string{client, form.Get("assertion")}, r.secrets...)
		if r.proof {
			proof, err := v.proof(out, "")
			if err != nil {
				return err
			}
			out.header.Set("Dpop", proof)
			out.known = append(out.known, proof)
		}
		out.body = form.Encode()
		return nil
	})
}

// assertion signs a statement about subject for the token endpoint: the client_id for
// client authentication (4.1), the User ID for a Session (4.2).
func (v *visit) assertion(subject string) (string, error) {
	id, now := v.agent.identity, v.agent.clock.Now()
	signed, err := oauth.BuildAssertion(id.signer, id.kid, oauth.AssertionClaims{
		Issuer: id.ClientID, Subject: subject, Audience: v.company.tokenEndpoint,
		JTI: randomText(18), IssuedAt: now, ExpiresAt: now.Add(assertionLifetime),
	})
	if err != nil {
		return "", fmt.Errorf("an assertion: %w", err)
	}
	return signed, nil
}

// tokenForm begins a token request.
func (v *visit) tokenForm(grant string) url.Values {
	form := url.Values{"grant_type": {grant}}
	setIf(form, "resource", v.company.resource) // poppy-0.1/4.3#36
	return form
}

func setIf(form url.Values, name, value string) {
	if value != "" {
		form.Set(name, value)
	}
}
