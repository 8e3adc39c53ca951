package jsonx

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

func skipSpace(src []byte, pos int) int {
	for pos < len(src) {
		switch src[pos] {
		case ' ', '\t', '\n', '\r':
			pos++
		default:
			return pos
		}
	}
	return pos
}

func isHigh(r rune) bool { return r >= 0xD800 && r < 0xDC00 }
func isLow(r rune) bool  { return r >= 0xDC00 && r < 0xE000 }

// hex4 reads the four digits of a \u escape.
func hex4(src []byte, pos int) (rune, bool) {
	if pos+4 > len(src) {
		return 0, false
	}
	var r rune
	for _, b := range src[pos : pos+4] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// unquote decodes a checked string literal. Without escapes the result shares the
// literal's memory.
func unquote(lit []byte) []byte {
	body := lit[1 : len(lit)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); {
		if body[i] != '\\' {
			out = append(out, body[i])
			i++
			continue
		}
		switch e := body[i+1]; e {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(body, i+2)
			i += 4
			if isHigh(r) {
				low, _ := hex4(body, i+4)
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default: // quote, backslash, slash
			out = append(out, e)
		}
		i += 2
	}
	return out
}

// AppendString appends s to dst as a string literal in the form of RFC 8785 §3.2.2.2:
// only the quote, the backslash and control characters are escaped. s must be UTF-8.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b >= ' ':
			dst = append(dst, b)
		case b == '\b':
			dst = append(dst, `\b`...)
		case b == '\t':
			dst = append(dst, `\t`...)
		case b == '\n':
			dst = append(dst, `\n`...)
		case b == '\f':
			dst = append(dst, `\f`...)
		case b == '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, digits[b>>4], digits[b&15])
		}
	}
	return append(dst, '"')
}
