package oauth

import (
	"unicode"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// UserIDClaim is the rule that sub holds the User ID.
const UserIDClaim clause.ID = "poppy-0.1/4.2#15"

const maxUserID = 256

// CheckUserID refuses a User ID that is not 1 to 256 printable characters. The
// protocol calls it opaque; this much is needed to store and compare it everywhere
// alike. It fails with INVALID_GRANT.
func CheckUserID(s string) error {
	n := 0
	for _, r := range s {
		if n++; n > maxUserID || r == utf8.RuneError || !unicode.IsPrint(r) {
			n = 0
			break
		}
	}
	if n == 0 {
		return problem.New(problem.Invalid, problem.InvalidGrant, UserIDClaim, "sub is not a User ID of 1 to 256 printable characters")
	}
	return nil
}
