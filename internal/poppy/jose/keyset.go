package jose

import (
	"errors"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// Limits of a key set: its size in bytes, its number of keys, and how many keys are
// tried for one token.
const (
	MaxKeySet    = 64 << 10
	maxKeys      = 100
	maxCandidate = 10
)

// A KeySet holds the usable public keys of a JWK set. The zero KeySet has none.
type KeySet struct{ keys []Key }

// ParseKeySet parses a JWK set. Keys of unknown type, for encryption, too weak or
// malformed are left out, as RFC 7517 §5 asks. A private or symmetric key refuses the
// whole set with ErrPrivateKey: whoever publishes one has lost control of its keys.
func ParseKeySet(raw []byte) (KeySet, error) {
	if len(raw) > MaxKeySet {
		return KeySet{}, ErrTooLarge
	}
	object, err := jsonx.ParseObject(raw)
	if err != nil {
		return KeySet{}, ErrMalformedSet
	}
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		if string(name) == "keys" {
			return readKeys(v)
		}
	}
	return KeySet{}, ErrMalformedSet
}

func readKeys(v jsonx.Value) (KeySet, error) {
	list, ok := v.Array()
	if !ok {
		return KeySet{}, ErrMalformedSet
	}
	var set KeySet
	count := 0
	for v, ok := list.Next(); ok; v, ok = list.Next() {
		if count++; count > maxKeys {
			return KeySet{}, ErrTooLarge
		}
		key, err := parseKeyValue(v, nil)
		switch {
		case err == nil:
			set.keys = append(set.keys, key)
		case errors.Is(err, ErrPrivateKey):
			return KeySet{}, ErrPrivateKey
		}
	}
	return set, nil
}

// Len returns the number of usable keys.
func (s KeySet) Len() int { return len(s.keys) }

// Verify checks the signature of j and returns the key that made it. A token with a
// kid is checked with the keys of that kid alone (several only where a set repeats a
// kid); one without with every key that fits its algorithm, at most ten.
//
// It fails with ErrUnknownKID when the set has no such kid, which a newer copy of the
// set may have; with ErrNoKey when no key fits the algorithm; and with ErrSignature.
func (s KeySet) Verify(j *JWS) (*Key, error) {
	kid, known, tried := j.Header.KID, false, 0
	for i := range s.keys {
		k := &s.keys[i]
		if kid != "" {
			if k.kid != kid {
				continue
			}
			known = true
		}
		if !k.Fits(j.Header.Alg) {
			continue
		}
		if tried++; tried > maxCandidate {
			break
		}
		if k.VerifyJWS(j) == nil {
			return k, nil
		}
	}
	switch {
	case kid != "" && !known:
		return nil, ErrUnknownKID
	case tried == 0:
		return nil, ErrNoKey
	}
	return nil, ErrSignature
}
