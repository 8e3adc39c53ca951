package jose

// invalid is what decodeDigit returns for bytes outside the alphabet.
const invalid = 0xFF

// decodeDigit returns the six bits of a character of RFC 4648 §5, or invalid.
func decodeDigit(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c - 'A'
	case c >= 'a' && c <= 'z':
		return c - 'a' + 26
	case c >= '0' && c <= '9':
		return c - '0' + 52
	case c == '-':
		return 62
	case c == '_':
		return 63
	}
	return invalid
}

// appendBase64URL decodes s onto dst. Unlike encoding/base64 it refuses line breaks,
// and like its strict mode padding and stray trailing bits, so that one value has one
// spelling.
func appendBase64URL(dst, s []byte) ([]byte, bool) {
	var bits uint32
	have := 0
	for i := range len(s) {
		d := decodeDigit(s[i])
		if d == invalid {
			return dst, false
		}
		bits = bits<<6 | uint32(d)
		if have += 6; have >= 8 {
			have -= 8
			dst = append(dst, byte(bits>>have))
		}
	}
	return dst, len(s)%4 != 1 && bits&(1<<have-1) == 0
}
