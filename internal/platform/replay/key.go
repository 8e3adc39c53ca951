package replay

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// Kinds of once-only values, so that equal values of two kinds never collide.
const (
	KindDPoP             = "dpop"
	KindClientAssertion  = "client_assertion"
	KindSessionAssertion = "session_assertion"
	KindBrowserAssertion = "browser_assertion"
)

// key is the SHA-256 of the parts, each with its length in front: no choice of
// characters makes two different quadruples one key, and no foreign character
// reaches a NATS subject.
func key(companyID, kind, owner, value string) string {
	h := sha256.New()
	for _, part := range [...]string{companyID, kind, owner, value} {
		writePart(h, part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func writePart(h hash.Hash, part string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(part)))
	h.Write(n[:])
	h.Write([]byte(part))
}
