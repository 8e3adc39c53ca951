package jsonx

import "strconv"

// Fault classes what makes a document unacceptable.
type Fault uint8

// The faults.
const (
	Malformed     Fault = iota + 1 // not JSON by the grammar of RFC 8259
	DuplicateKey                   // an object names a member twice, at whatever depth
	InvalidUTF8                    // bytes that are not UTF-8
	LoneSurrogate                  // a \u escape that is half of a pair
	NUL                            // U+0000, raw or escaped
	TooDeep                        // nested beyond the limit
	NotObject                      // a sound document that is not an object
	NumberRange                    // a number that no IEEE 754 double can hold
)

func (f Fault) String() string {
	switch f {
	case Malformed:
		return "malformed JSON"
	case DuplicateKey:
		return "repeated member name"
	case InvalidUTF8:
		return "invalid UTF-8"
	case LoneSurrogate:
		return "unpaired surrogate"
	case NUL:
		return "NUL character"
	case TooDeep:
		return "nested too deeply"
	case NotObject:
		return "not an object"
	case NumberRange:
		return "number out of range"
	}
	return "unknown fault"
}

// Error says what is wrong with a document and where. Its text never holds any of
// the document, so it may be shown to anybody.
type Error struct {
	Fault  Fault
	Offset int // in bytes from the start of the document
}

// Error gives the fault and its offset.
func (e *Error) Error() string {
	return e.Fault.String() + " at byte " + strconv.Itoa(e.Offset)
}
