package jsonx

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Canonical returns the canonical form of RFC 8785 of a document that passes Check
// with MaxDepth: no space, members sorted by the UTF-16 code units of their names,
// numbers as ECMAScript prints them, so 1.0 and 1 give the same bytes. A number
// beyond the range of a double is refused as NumberRange.
func Canonical(raw []byte) ([]byte, error) {
	if err := Check(raw, MaxDepth); err != nil {
		return nil, err
	}
	v := NewChecked(raw)
	return appendCanonical(make([]byte, 0, len(v.raw)), v, raw)
}

type member struct {
	name  []byte
	value Value
}

func appendCanonical(dst []byte, v Value, doc []byte) ([]byte, error) {
	switch v.Kind() {
	case ObjectKind:
		return appendObject(dst, v, doc)
	case ArrayKind:
		dst = append(dst, '[')
		elements, _ := v.Array()
		for first := true; ; first = false {
			e, ok := elements.Next()
			if !ok {
				return append(dst, ']'), nil
			}
			if !first {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendCanonical(dst, e, doc); err != nil {
				return nil, err
			}
		}
	case String:
		return AppendString(dst, v.Text()), nil
	case Number:
		f, err := strconv.ParseFloat(string(v.raw), 64)
		if err != nil || math.IsInf(f, 0) {
			return nil, &Error{Fault: NumberRange, Offset: cap(doc) - cap(v.raw)}
		}
		return appendNumber(dst, f), nil
	case Missing, Null, Bool:
	}
	return append(dst, v.raw...), nil
}

func appendObject(dst []byte, v Value, doc []byte) ([]byte, error) {
	var members []member
	object, _ := v.Object()
	for name, value, ok := object.Next(); ok; name, value, ok = object.Next() {
		members = append(members, member{name, value})
	}
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, string(m.name)), ':')
		var err error
		if dst, err = appendCanonical(dst, m.value, doc); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// compareUTF16 orders UTF-8 text by its UTF-16 code units. That differs from byte
// order only where a character beyond U+FFFF meets one from U+E000 to U+FFFF: the
// former's surrogates sort first.
func compareUTF16(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		ra, na := utf8.DecodeRune(a)
		rb, nb := utf8.DecodeRune(b)
		if ra != rb {
			if (ra > 0xFFFF) != (rb > 0xFFFF) {
				ra, rb = leadUnit(ra), leadUnit(rb)
			}
			return int(ra) - int(rb)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

func leadUnit(r rune) rune {
	if r > 0xFFFF {
		return 0xD800 + (r-0x10000)>>10
	}
	return r
}

// appendNumber prints f as Number.prototype.toString of ECMAScript does (RFC 8785 §3.2.2.3).
func appendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // minus zero too
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads exponents to two digits, ECMAScript does not.
	if n := len(dst); n >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
