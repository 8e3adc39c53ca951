package oauth

import (
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	// BrowserTyp is the typ of a browser assertion, in this spelling alone.
	BrowserTyp = "poppy-browser+jwt"
	// MaxBrowserLifetime is how long after iat the exp of a browser assertion may be.
	MaxBrowserLifetime = 60 * time.Second
)

// The clauses of what a browser assertion has beside others.
const (
	BrowserSession clause.ID = "poppy-0.1/5#11"
	BrowserSubject clause.ID = "poppy-0.1/5#9"
)

func browserRules() rules {
	return rules{
		isTyp: func(typ string) bool { return typ == BrowserTyp }, lifetime: MaxBrowserLifetime,
		kind: problem.Invalid, reason: problem.InvalidRequest,
		form: "poppy-0.1/5#7", typ: "poppy-0.1/5#20", alg: "poppy-0.1/4.1#d10", key: "poppy-0.1/5#19",
		issuer: "poppy-0.1/5#9", audience: "poppy-0.1/5#23", times: "poppy-0.1/5#25", jtiID: "poppy-0.1/5#d7",
	}
}

// A ClaimedBrowserAssertion is right in all that can be seen without the keys of the agent
// that it claims to be of. Only ParseBrowserAssertion makes one.
type ClaimedBrowserAssertion struct {
	jws    jose.JWS
	claims assertionClaims
	assertion
}

// A BrowserAssertion passed every check of Poppy 5 that needs neither the Session nor the
// Company's domains, and was not asked for replay. Only a ClaimedBrowserAssertion makes one.
type BrowserAssertion struct {
	assertion
	claims assertionClaims
}

// UserID returns the User whose Session it has to be.
func (a BrowserAssertion) UserID() string { return a.subject }

// SessionID returns the Session that the browser joins.
func (a BrowserAssertion) SessionID() string { return a.claims.sessionID }

// ReturnTo returns the page to open next, and whether the assertion names one.
func (a BrowserAssertion) ReturnTo() (string, bool) { return a.claims.returnTo, a.claims.hasReturnTo }

// ParseBrowserAssertion reads the assertion of a browser that is to join a Session
// (Poppy 5). Its aud has to be endpoint as a single string. It fails with INVALID_REQUEST.
func ParseBrowserAssertion(raw, endpoint string, now time.Time) (ClaimedBrowserAssertion, error) {
	r := browserRules()
	jws, c, err := parseAssertion(raw, r)
	if err != nil {
		return ClaimedBrowserAssertion{}, err
	}
	if c.audList || len(c.aud) != 1 || c.aud[0] != endpoint {
		return ClaimedBrowserAssertion{}, r.refuse(r.audience, "aud of the assertion is not this browser session endpoint as a single string")
	}
	if c.sub == c.iss || CheckUserID(c.sub) != nil {
		return ClaimedBrowserAssertion{}, r.refuse(BrowserSubject, "sub of the assertion is not a User ID")
	}
	if c.sessionID == "" {
		return ClaimedBrowserAssertion{}, r.refuse(BrowserSession, "the assertion names no Session")
	}
	a, err := r.timely(c, now)
	if err != nil {
		return ClaimedBrowserAssertion{}, err
	}
	return ClaimedBrowserAssertion{jws: jws, claims: c, assertion: a}, nil
}

// Check verifies the signature with the keys of the agent that ClientID names; like
// CheckClientAssertion for a kid that keys don't have.
func (c ClaimedBrowserAssertion) Check(keys jose.KeySet) (BrowserAssertion, error) {
	if err := browserRules().verify(&c.jws, keys); err != nil {
		return BrowserAssertion{}, err
	}
	return BrowserAssertion{assertion: c.assertion, claims: c.claims}, nil
}
