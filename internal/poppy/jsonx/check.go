package jsonx

import (
	"bytes"
	"unicode/utf8"
)

// MaxDepth is the nesting that protocol documents are allowed: arrays and objects
// inside one another, the outermost counted.
const MaxDepth = 32

// linearKeys is how many names of one object are compared one by one before a set
// takes over. A small object needs no allocation; a big one no quadratic time.
const linearKeys = 24

// Check reports whether raw is one JSON document that nests at most maxDepth deep
// and has no repeated member name, NUL, unpaired surrogate or invalid UTF-8
// anywhere. The error is an *Error.
func Check(raw []byte, maxDepth int) error {
	c := checker{src: raw}
	c.space()
	if err := c.value(maxDepth); err != nil {
		return err
	}
	c.space()
	if c.pos != len(raw) {
		return c.unexpected()
	}
	return nil
}

type checker struct {
	src []byte
	pos int

	// The name literals of the objects being read, innermost last. The first few need
	// no allocation, which is all that protocol objects have.
	count int
	inner [linearKeys]span
	outer []span // from the linearKeys-th on
}

// span is a stretch of the document, from its opening to its closing quote.
type span struct{ start, end int }

func (c *checker) pushName(s span) {
	if c.count < linearKeys {
		c.inner[c.count] = s
	} else {
		c.outer = append(c.outer[:c.count-linearKeys], s)
	}
	c.count++
}

func (c *checker) nameAt(i int) []byte {
	var s span
	if i < linearKeys {
		s = c.inner[i]
	} else {
		s = c.outer[i-linearKeys]
	}
	return unquote(c.src[s.start:s.end])
}

func (c *checker) fail(f Fault, at int) error { return &Error{Fault: f, Offset: at} }

// unexpected names the fault of the byte at pos, which fits no rule of the grammar.
func (c *checker) unexpected() error {
	if c.pos < len(c.src) {
		switch b := c.src[c.pos]; {
		case b == 0:
			return c.fail(NUL, c.pos)
		case b >= utf8.RuneSelf:
			if r, n := utf8.DecodeRune(c.src[c.pos:]); r == utf8.RuneError && n <= 1 {
				return c.fail(InvalidUTF8, c.pos)
			}
		}
	}
	return c.fail(Malformed, c.pos)
}

func (c *checker) space() { c.pos = skipSpace(c.src, c.pos) }

func (c *checker) value(depth int) error {
	if c.pos >= len(c.src) {
		return c.unexpected()
	}
	switch b := c.src[c.pos]; {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		return c.text()
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	case b == 't':
		return c.word("true")
	case b == 'f':
		return c.word("false")
	case b == 'n':
		return c.word("null")
	}
	return c.unexpected()
}

func (c *checker) word(w string) error {
	for i := range len(w) {
		if c.pos >= len(c.src) || c.src[c.pos] != w[i] {
			return c.unexpected()
		}
		c.pos++
	}
	return nil
}

func (c *checker) object(depth int) error {
	if depth <= 0 {
		return c.fail(TooDeep, c.pos)
	}
	names := objectNames{base: c.count}
	c.pos++
	c.space()
	if c.pos < len(c.src) && c.src[c.pos] == '}' {
		c.pos++
		return nil
	}
	for {
		at := c.pos
		if at >= len(c.src) || c.src[at] != '"' {
			return c.unexpected()
		}
		if err := c.text(); err != nil {
			return err
		}
		if !names.add(c, span{at, c.pos}) {
			return c.fail(DuplicateKey, at)
		}
		c.space()
		if c.pos >= len(c.src) || c.src[c.pos] != ':' {
			return c.unexpected()
		}
		c.pos++
		c.space()
		if err := c.value(depth - 1); err != nil {
			return err
		}
		c.space()
		done, err := c.separator('}')
		if err != nil {
			return err
		}
		if done {
			c.count = names.base
			return nil
		}
	}
}

func (c *checker) array(depth int) error {
	if depth <= 0 {
		return c.fail(TooDeep, c.pos)
	}
	c.pos++
	c.space()
	if c.pos < len(c.src) && c.src[c.pos] == ']' {
		c.pos++
		return nil
	}
	for {
		if err := c.value(depth - 1); err != nil {
			return err
		}
		c.space()
		done, err := c.separator(']')
		if err != nil || done {
			return err
		}
	}
}

// separator consumes a comma and the space after it, or the closing bracket.
func (c *checker) separator(closing byte) (bool, error) {
	if c.pos >= len(c.src) {
		return false, c.unexpected()
	}
	switch c.src[c.pos] {
	case closing:
		c.pos++
		return true, nil
	case ',':
		c.pos++
		c.space()
		return false, nil
	}
	return false, c.unexpected()
}

// objectNames is the set of names that one object has used so far.
type objectNames struct {
	base int // where this object's names begin among the checker's
	set  map[string]struct{}
}

// add reports whether the name that lit spells is new.
func (n *objectNames) add(c *checker, lit span) bool {
	name := unquote(c.src[lit.start:lit.end])
	if n.set != nil {
		if _, seen := n.set[string(name)]; seen {
			return false
		}
		n.set[string(name)] = struct{}{}
		return true
	}
	for i := n.base; i < c.count; i++ {
		if bytes.Equal(c.nameAt(i), name) {
			return false
		}
	}
	c.pushName(lit)
	if c.count-n.base == linearKeys {
		n.set = make(map[string]struct{}, 2*linearKeys)
		for i := n.base; i < c.count; i++ {
			n.set[string(c.nameAt(i))] = struct{}{}
		}
	}
	return true
}

func (c *checker) number() error {
	if c.src[c.pos] == '-' {
		c.pos++
	}
	if c.pos < len(c.src) && c.src[c.pos] == '0' {
		c.pos++
	} else if !c.digits() {
		return c.unexpected()
	}
	if c.pos < len(c.src) && c.src[c.pos] == '.' {
		c.pos++
		if !c.digits() {
			return c.unexpected()
		}
	}
	if c.pos < len(c.src) && (c.src[c.pos] == 'e' || c.src[c.pos] == 'E') {
		c.pos++
		if c.pos < len(c.src) && (c.src[c.pos] == '+' || c.src[c.pos] == '-') {
			c.pos++
		}
		if !c.digits() {
			return c.unexpected()
		}
	}
	return nil
}

func (c *checker) digits() bool {
	start := c.pos
	for c.pos < len(c.src) && c.src[c.pos] >= '0' && c.src[c.pos] <= '9' {
		c.pos++
	}
	return c.pos > start
}

// text checks a string literal, from its opening to its closing quote.
func (c *checker) text() error {
	c.pos++
	for c.pos < len(c.src) {
		switch b := c.src[c.pos]; {
		case b == '"':
			c.pos++
			return nil
		case b == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		case b < ' ':
			return c.unexpected()
		case b < utf8.RuneSelf:
			c.pos++
		default:
			r, n := utf8.DecodeRune(c.src[c.pos:])
			if r == utf8.RuneError && n <= 1 {
				return c.fail(InvalidUTF8, c.pos)
			}
			c.pos += n
		}
	}
	return c.unexpected()
}

func (c *checker) escape() error {
	at := c.pos
	c.pos++
	if c.pos >= len(c.src) {
		return c.unexpected()
	}
	switch c.src[c.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.pos++
		return nil
	case 'u':
	default:
		return c.unexpected()
	}
	r, ok := hex4(c.src, c.pos+1)
	if !ok {
		return c.fail(Malformed, at)
	}
	c.pos += 5
	switch {
	case r == 0:
		return c.fail(NUL, at)
	case isLow(r):
		return c.fail(LoneSurrogate, at)
	case isHigh(r):
		if c.pos+1 >= len(c.src) || c.src[c.pos] != '\\' || c.src[c.pos+1] != 'u' {
			return c.fail(LoneSurrogate, at)
		}
		low, ok := hex4(c.src, c.pos+2)
		if !ok {
			return c.fail(Malformed, c.pos)
		}
		if !isLow(low) {
			return c.fail(LoneSurrogate, at)
		}
		c.pos += 6
	}
	return nil
}
