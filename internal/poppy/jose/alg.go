package jose

import "errors"

// Alg is a signature algorithm by its JOSE name. Names are compared byte for byte:
// "none" in any spelling, the HMAC family and names with stray space never match.
type Alg string

// The allow-list (RFC 7518 §3.1, RFC 8037 §3.1).
const (
	ES256 Alg = "ES256"
	ES384 Alg = "ES384"
	EdDSA Alg = "EdDSA" // Ed25519 only
	PS256 Alg = "PS256"
	RS256 Alg = "RS256" // moduli of 2048 bits or more
)

// Algs lists the allow-list in the order in which metadata advertises it.
func Algs() []string {
	return []string{string(ES256), string(ES384), string(EdDSA), string(PS256), string(RS256)}
}

// ParseAlg returns the algorithm that name is, or ErrAlg.
func ParseAlg(name []byte) (Alg, error) {
	switch string(name) {
	case string(ES256):
		return ES256, nil
	case string(ES384):
		return ES384, nil
	case string(EdDSA):
		return EdDSA, nil
	case string(PS256):
		return PS256, nil
	case string(RS256):
		return RS256, nil
	}
	return "", ErrAlg
}

// Reasons why a token, key or key set is refused. Their texts hold nothing of the
// input and may be shown to anybody.
var (
	ErrTooLarge       = errors.New("larger than allowed")
	ErrMalformed      = errors.New("not a compact JWS with a JSON object as its header")
	ErrCritical       = errors.New("crit header is not supported")
	ErrAlg            = errors.New("algorithm is not one of ES256, ES384, EdDSA, PS256, RS256")
	ErrMalformedKey   = errors.New("malformed JWK")
	ErrUnsupportedKey = errors.New("unsupported kind of key")
	ErrPrivateKey     = errors.New("key holds private or symmetric members")
	ErrWeakKey        = errors.New("key is too weak or not a point of its curve")
	ErrMalformedSet   = errors.New("malformed JWK set")
	ErrUnknownKID     = errors.New("no key of the set has the token's kid")
	ErrNoKey          = errors.New("no key of the set fits the token's algorithm")
	ErrKeyMismatch    = errors.New("key does not fit the algorithm")
	ErrSignature      = errors.New("signature does not verify")
)
