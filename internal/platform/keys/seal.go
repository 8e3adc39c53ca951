package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// ErrSealed is the error for whatever does not open: of another Company, purpose or
// id, sealed with a root key that is not in the ring, cut or changed.
var ErrSealed = errors.New("keys: sealed value does not open")

const nonceSize = 12

// Seal encrypts plaintext for the Company with AES-256-GCM. purpose says what kind
// of secret it is and id which one; both are bound to it and needed to open it. The
// result is the root key's version, a random nonce and the ciphertext: 29 bytes
// longer than plaintext.
func (r *Ring) Seal(companyID, purpose, id string, plaintext []byte) ([]byte, error) {
	aead, err := r.aead(r.current, companyID, purpose)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1+nonceSize, 1+nonceSize+len(plaintext)+aead.Overhead())
	out[0] = r.current
	rand.Read(out[1:]) // never fails
	return aead.Seal(out, out[1:], plaintext, join(companyID, purpose, id)), nil
}

// Open decrypts what Seal made with the same arguments; ErrSealed for anything else.
func (r *Ring) Open(companyID, purpose, id string, sealed []byte) ([]byte, error) {
	if len(sealed) < 1+nonceSize {
		return nil, ErrSealed
	}
	aead, err := r.aead(sealed[0], companyID, purpose)
	if err != nil {
		return nil, err
	}
	plaintext, err := aead.Open(nil, sealed[1:1+nonceSize], sealed[1+nonceSize:], join(companyID, purpose, id))
	if err != nil {
		return nil, ErrSealed
	}
	return plaintext, nil
}

func (r *Ring) aead(version byte, companyID, purpose string) (cipher.AEAD, error) {
	key, ok := r.derive(version, "seal", companyID, purpose)
	if !ok {
		return nil, fmt.Errorf("%w: no root key of version %d", ErrSealed, version)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return aead, nil
}
