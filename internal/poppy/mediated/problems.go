package mediated

import (
	"fmt"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// OwnSignIn is the rule that a sign-in is the Session's that began it.
const OwnSignIn clause.ID = "poppy-0.1/4.7#20"

// NotFound is the one answer for a sign-in that doesn't exist, is over, or is another Session's.
func NotFound() *problem.Error {
	return problem.New(problem.NotFound, problem.SignInNotFound, OwnSignIn, "there is no such sign-in")
}

func invalid(id clause.ID, path, format string, args ...any) *problem.Error {
	detail := fmt.Sprintf(format, args...)
	return problem.New(problem.Invalid, problem.InvalidRequest, id, "%s %s", path, detail).WithField(path, detail)
}
