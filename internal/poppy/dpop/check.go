package dpop

import (
	"crypto/subtle"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The rules a proof can break, in the order in which they are checked.
const (
	OneHeader  clause.ID = "poppy-0.1/4.3#d26" // one DPoP header
	Present    clause.ID = "poppy-0.1/4.3#2"   // a proof comes with the request
	WellFormed clause.ID = "RFC9449/4.3#2"     // one well-formed JWT
	Claims     clause.ID = "RFC9449/4.3#3"     // all required claims
	Typ        clause.ID = "poppy-0.1/4.3#9"   // typ is dpop+jwt, the key is in jwk
	Algorithm  clause.ID = "poppy-0.1/4.3#d10" // an algorithm of the allow-list
	PublicKey  clause.ID = "RFC9449/4.3#7"     // jwk holds no private key
	Signature  clause.ID = "poppy-0.1/4.3#18"  // signed by the key in the header
	JTI        clause.ID = "poppy-0.1/4.3#d7"  // jti has 1 to 256 characters
	Match      clause.ID = "poppy-0.1/4.3#20"  // htm and htu are the request's
	Nonce      clause.ID = "poppy-0.1/4.3#24"  // a nonce the Company issued
	Window     clause.ID = "poppy-0.1/4.3#21"  // iat within the acceptance window
	TokenMatch clause.ID = "poppy-0.1/4.3#23"  // ath is the token's hash
	KeyMatch   clause.ID = "poppy-0.1/4.3#19"  // the key is the one the token is bound to
)

// The acceptance window of iat, and the longest jti in characters.
const (
	DefaultMaxAge    = 60 * time.Second
	DefaultMaxFuture = 10 * time.Second
	maxJTI           = 256
)

// Request is what a proof has to match.
type Request struct {
	Method string
	// URL is the absolute URL of the endpoint by the Company's configuration. Query
	// and fragment don't count.
	URL string
	// TokenHash is TokenHash of the Session Token sent with the proof. At the token
	// endpoint there is none, and an ath is not judged.
	TokenHash string
	// KeyThumbprint is the thumbprint of the key that the Session Token is bound to.
	KeyThumbprint string
}

// Policy is the Company's choice where RFC 9449 leaves one.
type Policy struct {
	MaxAge    time.Duration // 0: DefaultMaxAge
	MaxFuture time.Duration // 0: DefaultMaxFuture
	// NonceRequired asks for a nonce out of Nonces. Otherwise nonces are not judged.
	NonceRequired bool
	Nonces        []string
}

// A VerifiedProof is a proof that passed every check of RFC 9449 §4.3 except replay.
// Only CheckProof makes one.
type VerifiedProof struct {
	jkt, jti    string
	issuedAt    time.Time
	replayUntil time.Time
}

// JKT returns the thumbprint of the proof's key (RFC 7638, base64url).
func (p VerifiedProof) JKT() string { return p.jkt }

// JTI returns the proof's unique ID, of 1 to 256 characters.
func (p VerifiedProof) JTI() string { return p.jti }

// IssuedAt returns iat, in whole seconds.
func (p VerifiedProof) IssuedAt() time.Time { return p.issuedAt }

// ReplayUntil returns until when the pair of JKT and JTI has to be remembered: the
// end of the acceptance window plus its allowance for clocks that differ.
func (p VerifiedProof) ReplayUntil() time.Time { return p.replayUntil }

// ParseHeader picks the proof out of the values of the DPoP header field. No value
// is no error, since some requests need no proof; two are INVALID_REQUEST.
func ParseHeader(values []string) (string, bool, error) {
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, problem.New(problem.Invalid, problem.InvalidRequest, OneHeader, "more than one DPoP header")
}

// CheckProof runs the checks of RFC 9449 §4.3 in the order listed there; the first
// failure decides the error, INVALID_DPOP_PROOF or, for a nonce that is missing or
// not current, USE_DPOP_NONCE. An empty raw is a missing proof. It does no I/O:
// whether the jti was seen before (§11.1) is the caller's question to its store, to
// be asked only after CheckProof has succeeded.
func CheckProof(raw string, req Request, now time.Time, p Policy) (VerifiedProof, error) {
	if raw == "" {
		return VerifiedProof{}, refuse(Present, "the request needs a DPoP proof")
	}
	jws, err := jose.ParseJWS(raw)
	if err != nil {
		return VerifiedProof{}, refuseJWS(err)
	}
	if jws.Header.Typ != "dpop+jwt" {
		return VerifiedProof{}, refuse(Typ, "typ is not dpop+jwt")
	}
	key := &jws.Header.Key
	if !jws.Header.HasKey {
		return VerifiedProof{}, refuse(Typ, "the header has no jwk")
	}
	c, err := parseClaims(jws.Payload)
	if err != nil {
		return VerifiedProof{}, err
	}
	if err := key.VerifyJWS(&jws); err != nil {
		return VerifiedProof{}, refuse(Signature, err.Error())
	}
	if string(c.htm) != req.Method { // methods are case-sensitive, RFC9110/9.1
		return VerifiedProof{}, refuse(Match, "htm is not the method of the request")
	}
	if !sameURL(c.htu, req.URL) {
		return VerifiedProof{}, refuse(Match, "htu is not the URL of the request")
	}
	if p.NonceRequired && !accepts(p.Nonces, c.nonce) {
		return VerifiedProof{}, problem.New(problem.Unauthenticated, problem.UseDPoPNonce, Nonce, "the proof needs the nonce of the DPoP-Nonce header")
	}
	maxAge, maxFuture := p.window()
	issuedAt := time.Unix(c.iat, 0).UTC()
	if now.Sub(issuedAt) > maxAge || issuedAt.Sub(now) > maxFuture {
		return VerifiedProof{}, refuse(Window, "iat is outside the acceptance window")
	}
	if req.TokenHash != "" && subtle.ConstantTimeCompare(c.ath, []byte(req.TokenHash)) != 1 {
		return VerifiedProof{}, refuse(TokenMatch, "ath is not the hash of the token")
	}
	if req.KeyThumbprint != "" && !key.HasThumbprint(req.KeyThumbprint) {
		return VerifiedProof{}, refuse(KeyMatch, "the token is bound to another key")
	}
	// Both strings share one allocation.
	jkt := key.AppendThumbprint(make([]byte, 0, 64+maxJTI))
	names := string(append(jkt, c.jti...))
	return VerifiedProof{
		jkt:         names[:len(jkt)],
		jti:         names[len(jkt):],
		issuedAt:    issuedAt,
		replayUntil: issuedAt.Add(maxAge + maxFuture),
	}, nil
}

func (p Policy) window() (time.Duration, time.Duration) {
	maxAge, maxFuture := p.MaxAge, p.MaxFuture
	if maxAge == 0 {
		maxAge = DefaultMaxAge
	}
	if maxFuture == 0 {
		maxFuture = DefaultMaxFuture
	}
	return maxAge, maxFuture
}

type claims struct {
	jti, htm, htu, ath, nonce []byte
	iat                       int64
}

func parseClaims(payload []byte) (claims, error) {
	object, err := jsonx.ParseObject(payload)
	if err != nil {
		return claims{}, refuse(WellFormed, "the payload is not a sound JSON object")
	}
	var c claims
	dated := false
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		switch string(name) {
		case "jti":
			c.jti = v.Bytes()
		case "htm":
			c.htm = v.Bytes()
		case "htu":
			c.htu = v.Bytes()
		case "ath":
			c.ath = v.Bytes()
		case "nonce":
			c.nonce = v.Bytes()
		case "iat":
			c.iat, dated = v.NumericDate()
		}
	}
	// A claim of another type than its own reads as empty.
	switch {
	case len(c.htm) == 0:
		return claims{}, refuse(Claims, "the proof needs htm")
	case len(c.htu) == 0:
		return claims{}, refuse(Claims, "the proof needs htu")
	case !dated:
		return claims{}, refuse(Claims, "the proof needs iat, a number of seconds since 1970")
	case len(c.jti) == 0:
		return claims{}, refuse(Claims, "the proof needs jti")
	case utf8.RuneCount(c.jti) > maxJTI:
		return claims{}, refuse(JTI, "jti has more than 256 characters")
	}
	return c, nil
}

func accepts(nonces []string, nonce []byte) bool {
	found := 0
	for _, n := range nonces {
		found |= subtle.ConstantTimeCompare([]byte(n), nonce)
	}
	return found == 1 && len(nonce) > 0
}

func refuse(id clause.ID, detail string) error {
	return problem.New(problem.Unauthenticated, problem.InvalidDPoPProof, id, "%s", detail)
}

func refuseJWS(err error) error {
	id := WellFormed
	switch {
	case errors.Is(err, jose.ErrAlg):
		id = Algorithm
	case errors.Is(err, jose.ErrPrivateKey):
		id = PublicKey
	case errors.Is(err, jose.ErrMalformedKey), errors.Is(err, jose.ErrUnsupportedKey), errors.Is(err, jose.ErrWeakKey):
		id = Typ
	}
	return refuse(id, err.Error())
}
