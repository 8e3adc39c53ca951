package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// NonceWindow is how long a nonce is the current one. It is accepted for one
// window more, so a nonce lives between one and two windows after it was given.
const NonceWindow = 3 * time.Minute

// Nonces makes the nonces that a Company asks for in DPoP proofs (RFC 9449 section
// 8). They are computed from the time, so every process accepts those of the
// others and nothing is stored.
type Nonces struct{ ring *Ring }

// NewNonces derives from ring.
func NewNonces(ring *Ring) *Nonces { return &Nonces{ring} }

// Current returns the nonce to hand out at now: 22 characters of 128 bits.
func (n *Nonces) Current(companyID string, now time.Time) string {
	return n.at(n.ring.current, companyID, window(now))
}

// Accepted returns what a proof may carry at now: the current window's nonce
// first, then the one before, then those of the ring's other versions, which
// processes that have not learnt of a rotation yet hand out.
func (n *Nonces) Accepted(companyID string, now time.Time) []string {
	w := window(now)
	versions := n.ring.versions()
	out := make([]string, 0, 2*len(versions))
	for _, v := range versions {
		out = append(out, n.at(v, companyID, w), n.at(v, companyID, w-1))
	}
	return out
}

func window(now time.Time) int64 { return now.Unix() / int64(NonceWindow/time.Second) }

func (n *Nonces) at(version byte, companyID string, window int64) string {
	key, _ := n.ring.derive(version, "derive", companyID, "dpop-nonce") // versions come from the ring itself
	mac := hmac.New(sha256.New, key[:])
	var w [8]byte
	binary.BigEndian.PutUint64(w[:], uint64(window))
	mac.Write(w[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}
