package conversation

import (
	"crypto/aes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// CursorKey is the random secret of one conversation under which its event ids
// are made. It is never shown.
type CursorKey [16]byte

const eventPrefix = "evt_"

// EventID returns the id, and cursor, of the event with sequence number seq, which
// counts from 1. It is one AES block over the conversation and the number, so
// that ids are stable, need no storage, and say nothing about their order; whoever
// lacks the key can't make one (7.5).
func EventID(key CursorKey, conversationID string, seq int64) string {
	var block [aes.BlockSize]byte
	digest := sha256.Sum256([]byte(conversationID))
	copy(block[:8], digest[:8])
	binary.BigEndian.PutUint64(block[8:], uint64(seq))
	newBlock(key).Encrypt(block[:], block[:])
	return eventPrefix + base64.RawURLEncoding.EncodeToString(block[:])
}

// ParseCursor returns the sequence number that a cursor stands for. Anything that
// EventID doesn't make for this conversation is invalid_cursor.
func ParseCursor(key CursorKey, conversationID, raw string) (int64, error) {
	text, ok := strings.CutPrefix(raw, eventPrefix)
	if !ok || len(text) != base64.RawURLEncoding.EncodedLen(aes.BlockSize) {
		return 0, invalidCursor()
	}
	// Strict: a second spelling of the same block would be a second id of one event.
	block, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(block) != aes.BlockSize {
		return 0, invalidCursor()
	}
	newBlock(key).Decrypt(block, block)
	digest := sha256.Sum256([]byte(conversationID))
	seq := binary.BigEndian.Uint64(block[8:])
	if subtle.ConstantTimeCompare(block[:8], digest[:8]) != 1 || seq == 0 || seq > math.MaxInt64 {
		return 0, invalidCursor()
	}
	return int64(seq), nil
}

// CheckCursor judges a cursor against what is kept: oldestKept is the lowest
// sequence number still there, last the highest. A cursor right before oldestKept
// misses nothing and is fine.
func CheckCursor(seq, oldestKept, last int64) error {
	switch {
	case seq < 1 || seq > last:
		return invalidCursor()
	case seq < oldestKept-1:
		return problem.New(problem.Gone, problem.CursorExpired, "poppy-0.1/7.5#29",
			"the events after this cursor are no longer kept; read from the beginning")
	}
	return nil
}

func invalidCursor() error {
	return problem.New(problem.Invalid, problem.InvalidCursor, clauseCursor, "the cursor is not one of this conversation")
}

type blockCipher interface {
	Encrypt(dst, src []byte)
	Decrypt(dst, src []byte)
}

func newBlock(key CursorKey) blockCipher {
	c, err := aes.NewCipher(key[:])
	if err != nil {
		// Sixteen bytes are always a valid AES key.
		return noCipher{}
	}
	return c
}

// noCipher makes ids that ParseCursor refuses.
type noCipher struct{}

func (noCipher) Encrypt(dst, _ []byte) { clear(dst) }
func (noCipher) Decrypt(dst, _ []byte) { clear(dst) }
