package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The prefixes of serialised keys.
const (
	secretPrefix  = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
)

const (
	minSecret = 24 // bytes
	maxSecret = 64 // bytes
	maxKey    = 128
)

// Secret is a symmetric signing secret (v1). Printing one shows no key.
type Secret struct{ key []byte }

// NewSecret makes a Secret of 24 to 64 random bytes.
func NewSecret(key []byte) (Secret, error) {
	if len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, badKey("a webhook secret has %d to %d bytes", minSecret, maxSecret)
	}
	return Secret{key: slices.Clone(key)}, nil
}

// ParseSecret reads "whsec_" and base64.
func ParseSecret(raw string) (Secret, error) {
	key, err := decodeKey(secretPrefix, raw)
	if err != nil {
		return Secret{}, err
	}
	return NewSecret(key)
}

// Reveal returns the serialised secret, to be shown to its Company once.
func (s Secret) Reveal() string { return secretPrefix + base64.StdEncoding.EncodeToString(s.key) }

// String returns a placeholder.
func (s Secret) String() string { return secretPrefix + "[redacted]" }

// GoString returns a placeholder.
func (s Secret) GoString() string { return s.String() }

func (s Secret) sign(content []byte) (version string, signature []byte) {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(content)
	return "v1", mac.Sum(nil)
}

func (s Secret) usable() bool { return len(s.key) > 0 }

func (s Secret) version() string { return "v1" }

func (s Secret) verify(content, signature []byte) bool {
	_, want := s.sign(content)
	return subtle.ConstantTimeCompare(want, signature) == 1
}

// PrivateKey is an ed25519 signing key (v1a). Printing one shows no key.
type PrivateKey struct{ key ed25519.PrivateKey }

// NewPrivateKey makes a PrivateKey of a random seed of 32 bytes.
func NewPrivateKey(seed []byte) (PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return PrivateKey{}, badKey("an ed25519 seed has %d bytes", ed25519.SeedSize)
	}
	return PrivateKey{key: ed25519.NewKeyFromSeed(seed)}, nil
}

// ParsePrivateKey reads "whsk_" and base64 of the seed, alone or followed by the
// public key; in the second form the two have to fit.
func ParsePrivateKey(raw string) (PrivateKey, error) {
	key, err := decodeKey(privatePrefix, raw)
	if err != nil {
		return PrivateKey{}, err
	}
	if len(key) != ed25519.SeedSize && len(key) != ed25519.PrivateKeySize {
		return PrivateKey{}, badKey("a webhook private key has %d or %d bytes", ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	p, err := NewPrivateKey(key[:ed25519.SeedSize])
	if err != nil {
		return PrivateKey{}, err
	}
	if len(key) == ed25519.PrivateKeySize && !p.key.Equal(ed25519.PrivateKey(key)) {
		return PrivateKey{}, badKey("the two halves of the webhook private key don't fit")
	}
	return p, nil
}

// Public returns the key that verifies what p signs; of the zero PrivateKey, the zero PublicKey.
func (p PrivateKey) Public() PublicKey {
	if !p.usable() {
		return PublicKey{}
	}
	return PublicKey{key: ed25519.PublicKey(slices.Clone(p.key[ed25519.SeedSize:]))}
}

// Reveal returns the serialised key, for storage under encryption.
func (p PrivateKey) Reveal() string { return privatePrefix + base64.StdEncoding.EncodeToString(p.key) }

// String returns a placeholder.
func (p PrivateKey) String() string { return privatePrefix + "[redacted]" }

// GoString returns a placeholder.
func (p PrivateKey) GoString() string { return p.String() }

func (p PrivateKey) sign(content []byte) (version string, signature []byte) {
	return "v1a", ed25519.Sign(p.key, content)
}

func (p PrivateKey) usable() bool { return len(p.key) == ed25519.PrivateKeySize }

// PublicKey verifies v1a signatures; it is published in the issuer's webhook-keys.json.
type PublicKey struct{ key ed25519.PublicKey }

// ParsePublicKey reads "whpk_" and base64 of 32 bytes.
func ParsePublicKey(raw string) (PublicKey, error) {
	key, err := decodeKey(publicPrefix, raw)
	if err != nil {
		return PublicKey{}, err
	}
	if len(key) != ed25519.PublicKeySize {
		return PublicKey{}, badKey("a webhook public key has %d bytes", ed25519.PublicKeySize)
	}
	return PublicKey{key: key}, nil
}

// String returns the serialised key.
func (p PublicKey) String() string { return publicPrefix + base64.StdEncoding.EncodeToString(p.key) }

func (p PublicKey) usable() bool { return len(p.key) == ed25519.PublicKeySize }

func (p PublicKey) version() string { return "v1a" }

func (p PublicKey) verify(content, signature []byte) bool {
	return ed25519.Verify(p.key, content, signature)
}

func decodeKey(prefix, raw string) ([]byte, error) {
	text, ok := strings.CutPrefix(raw, prefix)
	// Line breaks are skipped by the decoder, and would make a second spelling.
	if !ok || len(text) > maxKey || strings.ContainsAny(text, "\r\n") {
		return nil, badKey("the key doesn't start with %s, or is too long", prefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		// The cause would quote a byte of the key.
		return nil, badKey("what follows %s is no base64", prefix)
	}
	return key, nil
}

func badKey(format string, args ...any) error {
	return problem.New(problem.Invalid, InvalidKey, clauseKeys, format, args...)
}
