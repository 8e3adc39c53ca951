package jose

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"math/big"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// ErrSigner is the refusal of a private key that no algorithm of the allow-list uses.
var ErrSigner = errors.New("private key is not ECDSA P-256 or P-384, Ed25519 or RSA of 2048 to 8192 bits")

// A Signer makes compact JWSs with one private key: the Personal Agent's side.
type Signer struct {
	key    crypto.Signer
	alg    Alg
	public Key
	jwk    string // required members of the public JWK, in the order of RFC 7638
}

// SignHeader is what a caller chooses of a protected header.
type SignHeader struct {
	Typ, KID string // left out when ""
	EmbedKey bool   // put the public key into jwk, as DPoP proofs do
}

// NewSigner makes a Signer for key; RSA keys sign RS256.
func NewSigner(key crypto.Signer) (*Signer, error) {
	s := &Signer{key: key}
	b64 := base64.RawURLEncoding.EncodeToString
	switch pub := key.Public().(type) {
	case *ecdsa.PublicKey:
		crv := "P-256"
		s.alg = ES256
		switch pub.Curve {
		case elliptic.P256():
		case elliptic.P384():
			s.alg, crv = ES384, "P-384"
		default:
			return nil, ErrSigner
		}
		point, err := pub.Bytes()
		if err != nil {
			return nil, ErrSigner
		}
		size := len(point) / 2
		s.jwk = `"crv":"` + crv + `","kty":"EC","x":"` + b64(point[1:1+size]) + `","y":"` + b64(point[1+size:]) + `"`
	case ed25519.PublicKey:
		s.alg = EdDSA
		s.jwk = `"crv":"Ed25519","kty":"OKP","x":"` + b64(pub) + `"`
	case *rsa.PublicKey:
		s.alg = RS256
		s.jwk = `"e":"` + b64(big.NewInt(int64(pub.E)).Bytes()) + `","kty":"RSA","n":"` + b64(pub.N.Bytes()) + `"`
	default:
		return nil, ErrSigner
	}
	public, err := ParseKey([]byte("{" + s.jwk + "}"))
	if err != nil {
		return nil, ErrSigner
	}
	s.public = public
	return s, nil
}

// GenerateSigner makes a Signer with a fresh ES256 key.
func GenerateSigner() (*Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return NewSigner(key)
}

// WithPSS returns a Signer that uses PS256; only one of an RSA key may do so.
func (s *Signer) WithPSS() (*Signer, error) {
	if s.alg != RS256 && s.alg != PS256 {
		return nil, ErrKeyMismatch
	}
	c := *s
	c.alg = PS256
	return &c, nil
}

// Alg returns the algorithm of every token the Signer makes.
func (s *Signer) Alg() Alg { return s.alg }

// Thumbprint returns the RFC 7638 thumbprint of the public key.
func (s *Signer) Thumbprint() string { return s.public.Thumbprint() }

// PublicJWK returns the public key as a JWK for publication, with alg, use and, unless "", kid.
func (s *Signer) PublicJWK(kid string) []byte {
	jwk := []byte(`{"alg":"` + string(s.alg) + `",` + s.jwk + `,"use":"sig"`)
	if kid != "" {
		jwk = jsonx.AppendString(append(jwk, `,"kid":`...), kid)
	}
	return append(jwk, '}')
}

// PublicKeySet joins JWKs into a JWK set.
func PublicKeySet(jwks ...[]byte) []byte {
	set := []byte(`{"keys":[`)
	for i, jwk := range jwks {
		if i > 0 {
			set = append(set, ',')
		}
		set = append(set, jwk...)
	}
	return append(set, `]}`...)
}

// Sign makes the compact JWS of payload.
func (s *Signer) Sign(h SignHeader, payload []byte) (string, error) {
	header := []byte(`{"alg":"` + string(s.alg) + `"`)
	if h.Typ != "" {
		header = jsonx.AppendString(append(header, `,"typ":`...), h.Typ)
	}
	if h.KID != "" {
		header = jsonx.AppendString(append(header, `,"kid":`...), h.KID)
	}
	if h.EmbedKey {
		header = append(header, `,"jwk":{`+s.jwk+`}`...)
	}
	header = append(header, '}')
	input := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sig, err := s.signature([]byte(input))
	if err != nil {
		return "", err
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

func (s *Signer) signature(input []byte) ([]byte, error) {
	switch s.alg {
	case ES256:
		sum := sha256.Sum256(input)
		return s.signECDSA(sum[:], crypto.SHA256, 32)
	case ES384:
		sum := sha512.Sum384(input)
		return s.signECDSA(sum[:], crypto.SHA384, 48)
	case EdDSA:
		return s.key.Sign(rand.Reader, input, crypto.Hash(0))
	case PS256:
		sum := sha256.Sum256(input)
		return s.key.Sign(rand.Reader, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	case RS256:
		sum := sha256.Sum256(input)
		return s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	return nil, ErrSigner
}

// signECDSA turns the library's ASN.1 signature into the fixed-size form of RFC 7518 §3.4.
func (s *Signer) signECDSA(digest []byte, hash crypto.Hash, size int) ([]byte, error) {
	der, err := s.key.Sign(rand.Reader, digest, hash)
	if err != nil {
		return nil, err
	}
	var parts struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &parts); err != nil {
		return nil, err
	}
	sig := make([]byte, 2*size)
	parts.R.FillBytes(sig[:size])
	parts.S.FillBytes(sig[size:])
	return sig, nil
}
