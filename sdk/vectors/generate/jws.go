package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"math/big"
	"strings"
)

// key signs deterministically, which a product never does.
type key struct {
	jwk  string // public, in the order of RFC 7638
	d    string // the private value
	sign func(input []byte) ([]byte, error)
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// thumbprint is that of RFC 7638.
func (k key) thumbprint() string {
	sum := sha256.Sum256([]byte(k.jwk))
	return b64(sum[:])
}

// p256 makes a key from a fixed text.
func p256(seed string) (key, error) {
	sum := sha256.Sum256([]byte(seed))
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:])
	if err != nil {
		return key{}, err
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		return key{}, err
	}
	return key{
		jwk: `{"crv":"P-256","kty":"EC","x":"` + b64(point[1:33]) + `","y":"` + b64(point[33:]) + `"}`,
		d:   b64(sum[:]),
		sign: func(input []byte) ([]byte, error) {
			digest := sha256.Sum256(input)
			der, err := private.Sign(nil, digest[:], crypto.SHA256) // no randomness: RFC 6979
			if err != nil {
				return nil, err
			}
			var rs struct{ R, S *big.Int }
			if _, err := asn1.Unmarshal(der, &rs); err != nil {
				return nil, err
			}
			return append(rs.R.FillBytes(make([]byte, 32)), rs.S.FillBytes(make([]byte, 32))...), nil
		},
	}, nil
}

func edwards(seed string) key {
	sum := sha256.Sum256([]byte(seed))
	private := ed25519.NewKeyFromSeed(sum[:])
	return key{
		jwk:  `{"crv":"Ed25519","kty":"OKP","x":"` + b64(private[32:]) + `"}`,
		d:    b64(sum[:]),
		sign: func(input []byte) ([]byte, error) { return ed25519.Sign(private, input), nil },
	}
}

// jws signs a header and a payload as they are, be they wrong.
func (k key) jws(header, payload string) (string, error) {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	signature, err := k.sign([]byte(input))
	return input + "." + b64(signature), err
}

// withPrivate is the public JWK with the private value in it.
func (k key) withPrivate() string { return strings.TrimSuffix(k.jwk, "}") + `,"d":"` + k.d + `"}` }
