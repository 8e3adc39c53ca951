package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/fixture"
)

// A seal signs the bytes of a JWT.
type seal func(input []byte) []byte

// forge makes a JWT of whatever header and claims, signed with whatever.
func forge(t testing.TB, header, claims any, sign seal) string {
	t.Helper()
	encode := func(v any) string {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	input := encode(header) + "." + encode(claims)
	return input + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(input)))
}

func unsigned([]byte) []byte { return nil }

func hmacWith(secret []byte) seal {
	return func(input []byte) []byte {
		m := hmac.New(sha256.New, secret)
		m.Write(input)
		return m.Sum(nil)
	}
}

// ecKey is a P-256 key of which a test has the private part.
type ecKey struct{ *ecdsa.PrivateKey }

func newECKey(t testing.TB) ecKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return ecKey{k}
}

func (k ecKey) sign(input []byte) []byte {
	sum := sha256.Sum256(input)
	r, s, err := ecdsa.Sign(rand.Reader, k.PrivateKey, sum[:])
	if err != nil {
		return nil
	}
	return append(fixed(r, 32), fixed(s, 32)...)
}

// jwk is the public key, or with private the whole one, as a JWK.
func (k ecKey) jwk(private bool) object {
	raw, err := k.PublicKey.Bytes()
	if err != nil {
		return nil
	}
	out := object{"kty": "EC", "crv": "P-256", "x": b64(raw[1:33]), "y": b64(raw[33:])}
	if private {
		d, err := k.Bytes()
		if err != nil {
			return nil
		}
		out["d"] = b64(d)
	}
	return out
}

// rsaKey signs with RS256, however short it is.
type rsaKey struct{ *rsa.PrivateKey }

func newRSAKey(t testing.TB, bits int) rsaKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return rsaKey{k}
}

func (k rsaKey) pkcs1(input []byte) []byte {
	sum := sha256.Sum256(input)
	out, err := rsa.SignPKCS1v15(rand.Reader, k.PrivateKey, crypto.SHA256, sum[:])
	if err != nil {
		return nil
	}
	return out
}

func (k rsaKey) jwk() object {
	return object{"kty": "RSA", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func fixed(n *big.Int, size int) []byte { return n.FillBytes(make([]byte, size)) }

// proofClaims are right claims of a proof for the token endpoint.
func (co *company) proofClaims() object {
	return object{"jti": fixture.RandomID(), "htm": "POST", "htu": co.tokenEndpoint(), "iat": now().Unix()}
}

// assertionClaims are right claims of an assertion about subject.
func (co *company) assertionClaims(a *fixture.Agent, subject string) object {
	return object{
		"iss": a.ClientID, "sub": subject, "aud": co.tokenEndpoint(), "jti": fixture.RandomID(),
		"iat": now().Unix(), "exp": now().Unix() + 60,
	}
}
