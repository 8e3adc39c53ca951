package jose

import (
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// MaxJWT caps a compact JWS, in bytes, before anything of it is read.
const MaxJWT = 16 << 10

// Header is the protected header of a JWS, as far as the protocol uses it.
type Header struct {
	Alg Alg
	Typ string // "" when absent
	KID string // "" when absent

	// Key is the public key of the jwk parameter, if HasKey.
	Key    Key
	HasKey bool
}

// A JWS is a parsed compact JWS. Nothing in it has been verified.
type JWS struct {
	Header  Header
	Payload []byte // decoded; whether it is JSON is the caller's question

	signingInput []byte // both parts before the second dot
	signature    []byte
	scratch      []byte // empty, with room for scratchSize bytes
}

// scratchSize is room for one uncompressed point or one ASN.1 signature over P-384,
// the bigger of which is the signature. It spares the hot path two allocations.
const scratchSize = 2 + 2*(3+48)

// SigningInput returns the signed bytes: both parts before the second dot.
func (j *JWS) SigningInput() []byte { return j.signingInput }

// ParseJWS parses a compact JWS of at most MaxJWT bytes. It fails with ErrTooLarge,
// ErrMalformed, ErrAlg or ErrCritical, and for a jwk parameter with the errors of ParseKey.
func ParseJWS(raw string) (JWS, error) {
	if len(raw) > MaxJWT {
		return JWS{}, ErrTooLarge
	}
	first := strings.IndexByte(raw, '.')
	if first < 0 {
		return JWS{}, ErrMalformed
	}
	last := strings.LastIndexByte(raw, '.')
	if first == last || strings.IndexByte(raw[first+1:last], '.') >= 0 {
		return JWS{}, ErrMalformed
	}
	// One buffer holds a copy of the token, its decoded parts and the scratch room.
	buf := make([]byte, 0, 2*len(raw)+scratchSize)
	buf = append(buf, raw...)
	var ends [3]int
	for i, part := range [3][]byte{buf[:first], buf[first+1 : last], buf[last+1:]} {
		var ok bool
		if buf, ok = appendBase64URL(buf, part); !ok {
			return JWS{}, ErrMalformed
		}
		ends[i] = len(buf)
	}
	scratch := buf[len(buf):]
	header, err := parseHeader(buf[len(raw):ends[0]], scratch)
	if err != nil {
		return JWS{}, err
	}
	return JWS{
		Header:       header,
		Payload:      buf[ends[0]:ends[1]:ends[1]],
		signingInput: buf[:last],
		signature:    buf[ends[1]:ends[2]],
		scratch:      scratch,
	}, nil
}

func parseHeader(raw, scratch []byte) (Header, error) {
	object, err := jsonx.ParseObject(raw)
	if err != nil {
		return Header{}, ErrMalformed
	}
	var h Header
	var jwk jsonx.Value
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		switch string(name) {
		case "alg":
			if h.Alg, err = ParseAlg(v.Bytes()); err != nil {
				return Header{}, err
			}
		case "typ":
			if v.Kind() != jsonx.String {
				return Header{}, ErrMalformed
			}
			h.Typ = internTyp(v.Bytes())
		case "kid":
			if v.Kind() != jsonx.String {
				return Header{}, ErrMalformed
			}
			h.KID = v.Text()
		case "jwk":
			jwk = v
		case "crit":
			return Header{}, ErrCritical // RFC7515/4.1.11: no extension is understood here
		}
	}
	if h.Alg == "" {
		return Header{}, ErrAlg
	}
	if !jwk.IsZero() {
		if h.Key, err = parseKeyValue(jwk, scratch); err != nil {
			return Header{}, err
		}
		h.HasKey = true
	}
	return h, nil
}

// internTyp saves the allocation for the media types that tokens usually have.
func internTyp(b []byte) string {
	switch string(b) {
	case "dpop+jwt":
		return "dpop+jwt"
	case "JWT":
		return "JWT"
	}
	return string(b)
}
