// Package ids makes the identifiers of this product: a prefix that tells the kind
// and a UUIDv7 in base 32, so that ids sort by creation and are never reused.
package ids

import (
	"crypto/rand"

	"github.com/google/uuid"
)

// Prefixes of our ids.
const (
	Company       = "cmp"
	Domain        = "dom"
	Backend       = "bke"
	WebhookSecret = "whs"
	Admission     = "adm"
	AdmissionRule = "rul"
	Session       = "ses"
	Conversation  = "cnv"
	Message       = "msg"
	Delivery      = "dlv"
	APIKey        = "key"
	OperatorKey   = "opk"
	Request       = "req"
	Grant         = "grt"
	SignIn        = "sgn"
	Connection    = "sic"
	Design        = "pgd"
	Inbox         = "ibx"
	Presence      = "prs"
	Note          = "nte"
	Event         = "evt"
	Telling       = "wdl"
	Endpoint      = "wep"
	Attempt       = "att"
	MCPClient     = "mcl"
	Usage         = "usg"
	Quota         = "quo"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's base 32

// New returns a fresh id of the kind that prefix names.
func New(prefix string) string {
	return prefix + "_" + encode(UUID())
}

// UUID returns a fresh UUIDv7, for rows that nobody names.
func UUID() uuid.UUID {
	u, err := uuid.NewV7()
	if err != nil { // never: it fails only when crypto/rand does, which ends the process itself
		u = Random16()
	}
	return u
}

// Random16 returns 16 random bytes.
func Random16() [16]byte {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return b
}

func encode(u uuid.UUID) string {
	var out [26]byte
	// 128 bits are 26 digits of 5 bits, the first of which has 3.
	var acc uint
	bits, n := 2, 0 // two leading zero bits
	for _, b := range u {
		acc = acc<<8 | uint(b)
		bits += 8
		for bits >= 5 {
			bits -= 5
			out[n] = alphabet[(acc>>bits)&31]
			n++
		}
	}
	return string(out[:])
}
