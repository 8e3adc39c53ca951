package jose

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// Sizes of RSA keys, in bits. The upper bound keeps one verification cheap.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// thumbprintSize is the length of a SHA-256 hash in base64url.
const thumbprintSize = 43

// A Key is a public key from a JWK. Exactly one of its three keys is set.
type Key struct {
	kid        string
	alg        Alg // the JWK's own restriction, "" for none
	thumbprint [thumbprintSize]byte

	ec  *ecdsa.PublicKey
	ed  ed25519.PublicKey
	rsa *rsa.PublicKey
}

// KID returns the kid member, "" when absent.
func (k *Key) KID() string { return k.kid }

// Thumbprint returns the SHA-256 thumbprint of RFC 7638 in base64url: the jkt of DPoP.
func (k *Key) Thumbprint() string { return string(k.thumbprint[:]) }

// HasThumbprint reports whether jkt is the key's thumbprint.
func (k *Key) HasThumbprint(jkt string) bool { return string(k.thumbprint[:]) == jkt }

// AppendThumbprint appends what Thumbprint returns to dst.
func (k *Key) AppendThumbprint(dst []byte) []byte { return append(dst, k.thumbprint[:]...) }

// ParseKey parses one public JWK. It fails with ErrPrivateKey for any private or
// symmetric member, whatever the key's type; with ErrUnsupportedKey for a kind of
// key or a use that signatures of the allow-list don't have; with ErrWeakKey for a
// point off its curve or of low order and for RSA outside 2048 to 8192 bits; and
// with ErrMalformedKey otherwise.
func ParseKey(raw []byte) (Key, error) {
	if len(raw) > MaxJWT {
		return Key{}, ErrTooLarge
	}
	if err := jsonx.Check(raw, jsonx.MaxDepth); err != nil {
		return Key{}, ErrMalformedKey
	}
	return parseKeyValue(jsonx.NewChecked(raw), nil)
}

type jwkMembers struct{ kty, crv, x, y, n, e, kid, alg, use, keyOps jsonx.Value }

func readJWK(v jsonx.Value) (jwkMembers, error) {
	object, ok := v.Object()
	if !ok {
		return jwkMembers{}, ErrMalformedKey
	}
	var m jwkMembers
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		switch string(name) {
		case "kty":
			m.kty = v
		case "crv":
			m.crv = v
		case "x":
			m.x = v
		case "y":
			m.y = v
		case "n":
			m.n = v
		case "e":
			m.e = v
		case "kid":
			m.kid = v
		case "alg":
			m.alg = v
		case "use":
			m.use = v
		case "key_ops":
			m.keyOps = v
		case "d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv":
			return jwkMembers{}, ErrPrivateKey
		}
	}
	return m, nil
}

// parseKeyValue uses scratch, empty and with room for scratchSize bytes or nil.
func parseKeyValue(v jsonx.Value, scratch []byte) (Key, error) {
	m, err := readJWK(v)
	if err != nil {
		return Key{}, err
	}
	var k Key
	if !m.kid.IsZero() {
		if m.kid.Kind() != jsonx.String {
			return Key{}, ErrMalformedKey
		}
		k.kid = m.kid.Text()
	}
	if !m.use.IsZero() && string(m.use.Bytes()) != "sig" {
		return Key{}, ErrUnsupportedKey
	}
	if !m.keyOps.IsZero() && !allowsVerify(m.keyOps) {
		return Key{}, ErrUnsupportedKey
	}
	if !m.alg.IsZero() {
		if k.alg, err = ParseAlg(m.alg.Bytes()); err != nil {
			return Key{}, ErrUnsupportedKey
		}
	}
	switch string(m.kty.Bytes()) {
	case "EC":
		err = k.readEC(m, scratch)
	case "OKP":
		err = k.readOKP(m)
	case "RSA":
		err = k.readRSA(m)
	case "oct":
		err = ErrPrivateKey
	case "":
		err = ErrMalformedKey
	default:
		err = ErrUnsupportedKey
	}
	if err != nil {
		return Key{}, err
	}
	if k.alg != "" && !k.Fits(k.alg) {
		return Key{}, ErrMalformedKey
	}
	return k, nil
}

func allowsVerify(ops jsonx.Value) bool {
	list, _ := ops.Array()
	for op, ok := list.Next(); ok; op, ok = list.Next() {
		if string(op.Bytes()) == "verify" {
			return true
		}
	}
	return false
}

func (k *Key) readEC(m jwkMembers, scratch []byte) error {
	var curve elliptic.Curve
	var size int
	switch string(m.crv.Bytes()) {
	case "P-256":
		curve, size = elliptic.P256(), 32
	case "P-384":
		curve, size = elliptic.P384(), 48
	case "":
		return ErrMalformedKey
	default:
		return ErrUnsupportedKey
	}
	x, y := m.x.Bytes(), m.y.Bytes()
	point := scratch
	point = append(point, 4) // uncompressed
	point, okX := appendBase64URL(point, x)
	if !okX || len(point) != 1+size {
		return ErrMalformedKey // RFC7518/6.2.1.2: a coordinate has the full size of its field
	}
	point, okY := appendBase64URL(point, y)
	if !okY || len(point) != 1+2*size {
		return ErrMalformedKey
	}
	var err error
	if k.ec, err = ecdsa.ParseUncompressedPublicKey(curve, point); err != nil {
		return ErrWeakKey
	}
	k.thumbprint = thumbprint(`{"crv":"`, m.crv.Bytes(), `","kty":"EC","x":"`, x, `","y":"`, y)
	return nil
}

func (k *Key) readOKP(m jwkMembers) error {
	switch string(m.crv.Bytes()) {
	case "Ed25519":
	case "":
		return ErrMalformedKey
	default:
		return ErrUnsupportedKey
	}
	key, ok := appendBase64URL(make([]byte, 0, ed25519.PublicKeySize), m.x.Bytes())
	if !ok || len(key) != ed25519.PublicKeySize {
		return ErrMalformedKey
	}
	if isLowOrder(key) {
		return ErrWeakKey
	}
	// Whether the bytes are a point of the curve is checked by every verification.
	k.ed = key
	k.thumbprint = thumbprint(`{"crv":"Ed25519","kty":"OKP","x":"`, m.x.Bytes(), "", nil, "", nil)
	return nil
}

func (k *Key) readRSA(m jwkMembers) error {
	n, okN := appendBase64URL(nil, m.n.Bytes())
	e, okE := appendBase64URL(nil, m.e.Bytes())
	// RFC7518/2: a Base64urlUInt has no leading zero octets. Were they allowed, one key
	// would have many thumbprints.
	if !okN || !okE || len(n) == 0 || len(e) == 0 || n[0] == 0 || e[0] == 0 {
		return ErrMalformedKey
	}
	modulus := new(big.Int).SetBytes(n)
	if bits := modulus.BitLen(); bits < minRSABits || bits > maxRSABits || modulus.Bit(0) == 0 {
		return ErrWeakKey
	}
	if len(e) > 4 {
		return ErrWeakKey
	}
	exponent := 0
	for _, b := range e {
		exponent = exponent<<8 | int(b)
	}
	if exponent < 3 || exponent > 1<<31-1 || exponent&1 == 0 {
		return ErrWeakKey
	}
	k.rsa = &rsa.PublicKey{N: modulus, E: exponent}
	k.thumbprint = thumbprint(`{"e":"`, m.e.Bytes(), `","kty":"RSA","n":"`, m.n.Bytes(), "", nil)
	return nil
}

// thumbprint hashes the members that RFC 7638 §3.2 requires, in its order. Their
// values are base64url text or curve names, so none needs escaping.
func thumbprint(a string, av []byte, b string, bv []byte, c string, cv []byte) [thumbprintSize]byte {
	var room [256]byte
	text := append(append(room[:0], a...), av...)
	text = append(append(text, b...), bv...)
	text = append(append(text, c...), cv...)
	sum := sha256.Sum256(append(text, `"}`...))
	var out [thumbprintSize]byte
	base64.RawURLEncoding.Encode(out[:], sum[:])
	return out
}
