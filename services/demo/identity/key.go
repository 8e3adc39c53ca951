package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// signingKey signs ID Tokens by RS256, which every OpenID Connect client has to know.
type signingKey struct {
	id  string // RFC 7638 thumbprint
	key *rsa.PrivateKey
}

var _ op.SigningKey = signingKey{}

func (k signingKey) ID() string                                  { return k.id }
func (k signingKey) Key() any                                    { return k.key }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

// publicKey is the half that is published.
type publicKey struct{ of signingKey }

func (k publicKey) ID() string                         { return k.of.id }
func (k publicKey) Key() any                           { return &k.of.key.PublicKey }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }

// freshKey makes a key in PEM form.
func freshKey() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

func parseKey(text string) (signingKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return signingKey{}, errors.New("signing key: not in PEM form")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return signingKey{}, fmt.Errorf("signing key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return signingKey{}, errors.New("signing key: not an RSA key")
	}
	thumbprint, err := (&jose.JSONWebKey{Key: &key.PublicKey}).Thumbprint(crypto.SHA256)
	if err != nil {
		return signingKey{}, fmt.Errorf("signing key: %w", err)
	}
	return signingKey{id: base64.RawURLEncoding.EncodeToString(thumbprint), key: key}, nil
}
