package jsonx

import (
	"errors"
	"math"
	"strconv"
)

// Kind is the JSON type of a Value.
type Kind uint8

// The kinds. The zero Value has kind Missing.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	String
	ArrayKind
	ObjectKind
)

// A Value is one value of a checked document. It shares the document's memory.
type Value struct{ raw []byte }

// Kind returns the value's JSON type.
func (v Value) Kind() Kind {
	if len(v.raw) == 0 {
		return Missing
	}
	switch v.raw[0] {
	case 'n':
		return Null
	case 't', 'f':
		return Bool
	case '"':
		return String
	case '[':
		return ArrayKind
	case '{':
		return ObjectKind
	}
	return Number
}

// IsZero reports whether v is the zero Value, which no document holds.
func (v Value) IsZero() bool { return len(v.raw) == 0 }

// Raw returns the value as the document spells it, without the space around it.
func (v Value) Raw() []byte { return v.raw }

// Bytes returns the decoded text of a string, and nil for every other kind. The
// result may share the document's memory.
func (v Value) Bytes() []byte {
	if v.Kind() != String {
		return nil
	}
	return unquote(v.raw)
}

// Text returns the decoded text of a string, and "" for every other kind.
func (v Value) Text() string { return string(v.Bytes()) }

// Bool returns the boolean; ok is false when v is of another kind.
func (v Value) Bool() (bool, bool) {
	return v.Kind() == Bool && v.raw[0] == 't', v.Kind() == Bool
}

// Int64 returns a number that is written as an integer in range; ok is false for
// everything else, fractions and exponents included.
func (v Value) Int64() (int64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	digits, negative := v.raw, false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var n int64
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-int64(d-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(d-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// maxDate is the last second of the year 9999, beyond which time.Time has no RFC 3339 form.
const maxDate = 253402300799

// NumericDate returns a date in the sense of RFC 7519 §2 in whole seconds since
// 1970, a fraction being cut off. ok is false unless v is a number from 0 to the
// end of the year 9999.
func (v Value) NumericDate() (int64, bool) {
	if n, ok := v.Int64(); ok {
		return n, n >= 0 && n <= maxDate
	}
	if v.Kind() != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(f >= 0 && f <= maxDate) {
		return 0, false
	}
	return int64(f), true
}

// Object returns the members of an object; ok is false when v is of another kind.
func (v Value) Object() (Object, bool) {
	if v.Kind() != ObjectKind {
		return Object{}, false
	}
	return Object{raw: v.raw, pos: 1}, true
}

// Array returns the elements of an array; ok is false when v is of another kind.
func (v Value) Array() (Array, bool) {
	if v.Kind() != ArrayKind {
		return Array{}, false
	}
	return Array{raw: v.raw, pos: 1}, true
}

// NewChecked returns the value of a document that has passed Check; for any other
// document what it returns is meaningless.
func NewChecked(raw []byte) Value {
	start := skipSpace(raw, 0)
	return Value{raw: raw[start:valueEnd(raw, start)]}
}

// ParseObject checks raw as Check does, with MaxDepth, and returns its members. A
// document that is not an object is refused as NotObject. The caller caps the size.
func ParseObject(raw []byte) (Object, error) {
	if err := Check(raw, MaxDepth); err != nil {
		return Object{}, err
	}
	at := skipSpace(raw, 0)
	if raw[at] != '{' {
		return Object{}, &Error{Fault: NotObject, Offset: at}
	}
	return Object{raw: raw, pos: at + 1}, nil
}

// An Object steps through the members of an object of a checked document.
type Object struct {
	raw []byte
	pos int
}

// Next returns the next member in document order, its name decoded; ok is false after the last.
func (o *Object) Next() ([]byte, Value, bool) {
	pos := skipSeparators(o.raw, o.pos)
	if pos >= len(o.raw) || o.raw[pos] != '"' {
		return nil, Value{}, false
	}
	end := valueEnd(o.raw, pos)
	name := unquote(o.raw[pos:end])
	pos = skipSpace(o.raw, end)
	pos = skipSpace(o.raw, pos+1) // the colon
	end = valueEnd(o.raw, pos)
	o.pos = end
	return name, Value{raw: o.raw[pos:end]}, true
}

// An Array steps through the elements of an array of a checked document.
type Array struct {
	raw []byte
	pos int
}

// Next returns the next element; ok is false after the last.
func (a *Array) Next() (Value, bool) {
	pos := skipSeparators(a.raw, a.pos)
	if pos >= len(a.raw) || a.raw[pos] == ']' {
		return Value{}, false
	}
	end := valueEnd(a.raw, pos)
	a.pos = end
	return Value{raw: a.raw[pos:end]}, true
}

func skipSeparators(src []byte, pos int) int {
	pos = skipSpace(src, pos)
	if pos < len(src) && src[pos] == ',' {
		pos = skipSpace(src, pos+1)
	}
	return pos
}

// valueEnd returns where the value that starts at pos ends. It relies on the
// document having been checked.
func valueEnd(src []byte, pos int) int {
	if pos >= len(src) {
		return len(src)
	}
	depth := 0
	for pos < len(src) {
		switch src[pos] {
		case '"':
			pos++
			for pos < len(src) && src[pos] != '"' {
				if src[pos] == '\\' {
					pos++
				}
				pos++
			}
			pos++
		case '{', '[':
			depth++
			pos++
			continue
		case '}', ']':
			depth--
			pos++
		case ' ', '\t', '\n', '\r', ',', ':':
			pos++
			continue
		default:
			for pos < len(src) && !endsScalar(src[pos]) {
				pos++
			}
		}
		if depth == 0 {
			return min(pos, len(src))
		}
	}
	return len(src)
}

func endsScalar(b byte) bool {
	switch b {
	case ',', '}', ']', ':', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}
