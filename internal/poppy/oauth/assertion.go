package oauth

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Times of assertions: the longest lifetime, and how far clocks may differ.
const (
	MaxLifetime = 300 * time.Second
	Skew        = 30 * time.Second
)

// Lengths of an assertion's jti, in characters.
const (
	minJTI = 16
	maxJTI = 256
)

// rules names the clause behind each check, which differ between the assertions, what a
// refusal is called, and how long an assertion may live.
type rules struct {
	isTyp                                               func(string) bool
	lifetime                                            time.Duration
	kind                                                problem.Kind
	reason                                              problem.Reason
	form, typ, alg, key, issuer, audience, times, jtiID clause.ID
}

func clientRules() rules {
	return rules{
		isTyp: isJWT, lifetime: MaxLifetime,
		kind: problem.Unauthenticated, reason: problem.InvalidClient,
		form: "poppy-0.1/4.1#14", typ: "poppy-0.1/4.2#d6", alg: "poppy-0.1/4.1#d10", key: "poppy-0.1/4.2#21",
		issuer: "RFC7523/3", audience: "poppy-0.1/4.1#d4", times: "poppy-0.1/4.1#d8", jtiID: "poppy-0.1/4.1#d7",
	}
}

func sessionRules() rules {
	return rules{
		isTyp: isJWT, lifetime: MaxLifetime,
		kind: problem.Invalid, reason: problem.InvalidGrant,
		form: "poppy-0.1/4.2#53", typ: "poppy-0.1/4.2#d6", alg: "poppy-0.1/4.1#d10", key: "poppy-0.1/4.2#22",
		issuer: "poppy-0.1/4.2#23", audience: "poppy-0.1/4.2#d5", times: "poppy-0.1/4.2#d8", jtiID: "poppy-0.1/4.2#d7",
	}
}

// RFC7519/5.1: JWT is compared without case. Proofs and browser assertions have types of
// their own and fall out here.
func isJWT(typ string) bool { return typ == "" || strings.EqualFold(typ, "JWT") }

func (r rules) refuse(id clause.ID, detail string) *problem.Error {
	return problem.New(r.kind, r.reason, id, "%s", detail)
}

func refuseClient(id clause.ID, detail string) *problem.Error {
	return clientRules().refuse(id, detail)
}

// assertion is what both kinds have in common once verified.
type assertion struct {
	clientID, subject, jti string
	issuedAt, expiresAt    time.Time
}

// ClientID returns the client_id that the assertion proves.
func (a assertion) ClientID() string { return a.clientID }

// JTI returns the assertion's unique ID, of 16 to 256 characters.
func (a assertion) JTI() string { return a.jti }

// IssuedAt returns iat, in whole seconds.
func (a assertion) IssuedAt() time.Time { return a.issuedAt }

// ExpiresAt returns exp, in whole seconds.
func (a assertion) ExpiresAt() time.Time { return a.expiresAt }

// ReplayUntil returns until when the jti has to be remembered: exp plus Skew.
func (a assertion) ReplayUntil() time.Time { return a.expiresAt.Add(Skew) }

// A ClientAssertion passed every check of Poppy 4.1 and RFC 7523 §3 except replay.
// Only CheckClientAssertion makes one.
type ClientAssertion struct{ assertion }

// A SessionAssertion passed every check of Poppy 4.2 except replay. Only
// CheckSessionAssertion makes one.
type SessionAssertion struct{ assertion }

// UserID returns the User ID that the agent gave its User at this Company.
func (a SessionAssertion) UserID() string { return a.subject }

// CheckClientAssertion checks the client assertion of the agent clientID. Its aud has
// to be one of audiences, byte for byte, or a list of nothing else. It fails with
// INVALID_CLIENT; errors.Is(err, jose.ErrUnknownKID) tells that a newer copy of the
// agent's keys may have the key it was signed with. Whether the jti was seen before
// is the caller's question, to be asked only after success.
func CheckClientAssertion(raw string, keys jose.KeySet, clientID string, audiences []string, now time.Time) (ClientAssertion, error) {
	r := clientRules()
	jws, c, err := parseAssertion(raw, r)
	if err != nil {
		return ClientAssertion{}, err
	}
	if c.iss != clientID || c.sub != clientID {
		return ClientAssertion{}, r.refuse(r.issuer, "iss and sub of the client assertion are not client_id")
	}
	if len(c.aud) == 0 || slices.ContainsFunc(c.aud, func(aud string) bool { return !slices.Contains(audiences, aud) }) {
		return ClientAssertion{}, r.refuse(r.audience, "aud of the client assertion is not this Company")
	}
	a, err := r.finish(&jws, c, keys, now)
	return ClientAssertion{a}, err
}

// CheckSessionAssertion checks the Session assertion of the agent clientID, which has
// authenticated. Its aud has to be tokenEndpoint as a single string. It fails with
// INVALID_GRANT, and like CheckClientAssertion for a kid that keys don't have.
func CheckSessionAssertion(raw string, keys jose.KeySet, clientID, tokenEndpoint string, now time.Time) (SessionAssertion, error) {
	r := sessionRules()
	jws, c, err := parseAssertion(raw, r)
	if err != nil {
		return SessionAssertion{}, err
	}
	if c.iss != clientID {
		return SessionAssertion{}, r.refuse(r.issuer, "iss of the assertion is not the client_id that authenticated")
	}
	// A captured client assertion would otherwise start a Session for a User of that name.
	if c.sub == clientID {
		return SessionAssertion{}, r.refuse(r.typ, "a client assertion is not accepted as a Session assertion")
	}
	if err := CheckUserID(c.sub); err != nil {
		return SessionAssertion{}, err
	}
	if c.audList || len(c.aud) != 1 || c.aud[0] != tokenEndpoint {
		return SessionAssertion{}, r.refuse(r.audience, "aud of the assertion is not the token endpoint as a single string")
	}
	a, err := r.finish(&jws, c, keys, now)
	return SessionAssertion{a}, err
}

// CheckDistinctAssertions refuses one JWT that serves as both assertions of a request.
// Signatures don't count: ECDSA has two for every one. It fails with INVALID_GRANT.
func CheckDistinctAssertions(client, session string) error {
	if signingInput(client) != signingInput(session) {
		return nil
	}
	r := sessionRules()
	return r.refuse(r.typ, "one JWT cannot be both the client assertion and the Session assertion")
}

func signingInput(raw string) string {
	if last := strings.LastIndexByte(raw, '.'); last >= 0 {
		return raw[:last]
	}
	return raw
}

type assertionClaims struct {
	iss, sub, jti string
	aud           []string
	audList       bool // aud was an array
	iat, exp      int64
	nbf           int64 // 0 when absent

	sessionID, returnTo string // of browser assertions
	hasReturnTo         bool
}

// parseAssertion reads the token and its claims, without judging whom they name.
func parseAssertion(raw string, r rules) (jose.JWS, assertionClaims, error) {
	jws, err := jose.ParseJWS(raw)
	if err != nil {
		id := r.form
		if errors.Is(err, jose.ErrAlg) {
			id = r.alg
		}
		return jose.JWS{}, assertionClaims{}, r.refuse(id, "the assertion is refused: "+err.Error()).WithCause(err)
	}
	if !r.isTyp(jws.Header.Typ) {
		return jose.JWS{}, assertionClaims{}, r.refuse(r.typ, "typ of the assertion is that of another kind of JWT")
	}
	c, err := r.parseClaims(jws.Payload)
	return jws, c, err
}

func (r rules) parseClaims(payload []byte) (assertionClaims, error) {
	object, err := jsonx.ParseObject(payload)
	if err != nil {
		return assertionClaims{}, r.refuse(r.form, "the payload of the assertion is not a sound JSON object").WithCause(err)
	}
	var c assertionClaims
	hasIat, hasExp, soundNbf := false, false, true
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		switch string(name) {
		case "iss":
			c.iss = v.Text()
		case "sub":
			c.sub = v.Text()
		case "jti":
			c.jti = v.Text()
		case "session_id":
			c.sessionID = v.Text()
		case "return_to":
			c.returnTo, c.hasReturnTo = v.Text(), true
		case "aud":
			if c.aud, c.audList, ok = readAudience(v); !ok {
				return assertionClaims{}, r.refuse(r.audience, "aud of the assertion is neither a string nor a list of strings")
			}
		case "iat":
			c.iat, hasIat = v.NumericDate()
		case "exp":
			c.exp, hasExp = v.NumericDate()
		case "nbf":
			c.nbf, soundNbf = v.NumericDate()
		}
	}
	if !hasIat || !hasExp || !soundNbf {
		return assertionClaims{}, r.refuse(r.times, "the assertion needs iat and exp, in seconds since 1970")
	}
	if n := utf8.RuneCountInString(c.jti); n < minJTI || n > maxJTI {
		return assertionClaims{}, r.refuse(r.jtiID, "jti of the assertion does not have 16 to 256 characters")
	}
	return c, nil
}

func readAudience(v jsonx.Value) ([]string, bool, bool) {
	if v.Kind() == jsonx.String {
		return []string{v.Text()}, false, true
	}
	list, ok := v.Array()
	if !ok {
		return nil, false, false
	}
	var aud []string
	for v, ok := list.Next(); ok; v, ok = list.Next() {
		if v.Kind() != jsonx.String {
			return nil, true, false
		}
		aud = append(aud, v.Text())
	}
	return aud, true, true
}

// finish checks times and signature, the signature last because it costs most.
func (r rules) finish(jws *jose.JWS, c assertionClaims, keys jose.KeySet, now time.Time) (assertion, error) {
	a, err := r.timely(c, now)
	if err == nil {
		err = r.verify(jws, keys)
	}
	if err != nil {
		return assertion{}, err
	}
	return a, nil
}

// timely checks iat, exp and nbf.
func (r rules) timely(c assertionClaims, now time.Time) (assertion, error) {
	iat, exp := time.Unix(c.iat, 0).UTC(), time.Unix(c.exp, 0).UTC()
	switch {
	case !exp.After(iat):
		return assertion{}, r.refuse(r.times, "exp of the assertion is not after iat")
	case exp.Sub(iat) > r.lifetime:
		return assertion{}, r.refuse(r.times, "the assertion lives longer than "+strconv.Itoa(int(r.lifetime/time.Second))+" seconds")
	case iat.Sub(now) > Skew:
		return assertion{}, r.refuse(r.times, "iat of the assertion is in the future")
	case c.nbf != 0 && time.Unix(c.nbf, 0).Sub(now) > Skew:
		return assertion{}, r.refuse(r.times, "the assertion is not valid yet")
	case now.Sub(exp) >= Skew:
		return assertion{}, r.refuse(r.times, "the assertion has expired")
	}
	return assertion{clientID: c.iss, subject: c.sub, jti: c.jti, issuedAt: iat, expiresAt: exp}, nil
}

func (r rules) verify(jws *jose.JWS, keys jose.KeySet) error {
	if _, err := keys.Verify(jws); err != nil {
		return r.refuse(r.key, "the assertion does not verify with the agent's keys: "+err.Error()).WithCause(err)
	}
	return nil
}
