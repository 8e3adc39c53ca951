package app

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// userCodeLetters is RFC 8628 section 6.1: no vowels, so that no words come about, and
// nothing that is read as a digit, for there are none.
const userCodeLetters = "BCDFGHJKLMNPQRSTVWXZ"

const (
	userCodeLength  = 8
	userCodePurpose = "user code"
	// maxTyped bounds what is looked at of a typed code.
	maxTyped = 64
)

// newUserCode returns 8 letters, each as likely as the others: about 34 bits.
func newUserCode() string {
	const fair = 256 - 256%len(userCodeLetters)
	code := make([]byte, 0, userCodeLength)
	for len(code) < userCodeLength {
		var b [2 * userCodeLength]byte
		rand.Read(b[:]) // never fails
		for _, n := range b {
			if int(n) < fair && len(code) < userCodeLength {
				code = append(code, userCodeLetters[int(n)%len(userCodeLetters)])
			}
		}
	}
	return string(code)
}

func showUserCode(code string) string {
	return code[:userCodeLength/2] + "-" + code[userCodeLength/2:]
}

// parseUserCode reads a code in any case, with any spaces and punctuation of ASCII. A
// letter or digit that no code has, and anything beyond ASCII, makes it none.
func parseUserCode(typed string) (string, bool) {
	if len(typed) > maxTyped {
		return "", false
	}
	code := make([]byte, 0, userCodeLength)
	for i := range len(typed) {
		c := typed[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		switch {
		case c >= 0x80 || '0' <= c && c <= '9':
			return "", false
		case c < 'A' || c > 'Z': // a separator
		case strings.IndexByte(userCodeLetters, c) < 0 || len(code) == userCodeLength:
			return "", false
		default:
			code = append(code, c)
		}
	}
	return string(code), len(code) == userCodeLength
}

// userCodeHashes returns what is stored of a user code: first by the current root key,
// then by the others. A plain hash of so few bits could be searched through.
func (a *App) userCodeHashes(scope tenancy.Scope, code string) []string {
	all := a.Keys.DeriveAll(scope.CompanyID(), userCodePurpose)
	out := make([]string, 0, len(all))
	for _, key := range all {
		out = append(out, keyed(key, code))
	}
	return out
}

func keyed(key [32]byte, text string) string {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
