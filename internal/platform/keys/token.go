package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// RandomToken returns prefix, "_" and 256 random bits as 43 characters of base64url.
func RandomToken(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return prefix + "_" + base64.RawURLEncoding.EncodeToString(b[:])
}

// HashToken returns what is stored of a Company's token: 43 characters of SHA-256.
// The Company is part of it, so a token can only be found where it was issued. A
// slow hash would add nothing to 256 random bits.
func HashToken(companyID, token string) string {
	sum := sha256.Sum256(join("token", companyID, token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
