package conversation

import (
	"fmt"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// NotFound is the one answer for a conversation that doesn't exist and for one
// that isn't the caller's; id says in the log which rule hid it.
func NotFound(id clause.ID) *problem.Error {
	return problem.New(problem.NotFound, problem.ConversationNotFound, id, "there is no such conversation")
}

func invalid(id clause.ID, path, format string, args ...any) *problem.Error {
	detail := fmt.Sprintf(format, args...)
	return problem.New(problem.Invalid, problem.InvalidRequest, id, "%s %s", path, detail).WithField(path, detail)
}

func tooLarge(path, format string, args ...any) *problem.Error {
	detail := fmt.Sprintf(format, args...)
	return problem.New(problem.TooLarge, problem.RequestTooLarge, clauseSize, "%s %s", path, detail).WithField(path, detail)
}

func closed(id clause.ID) *problem.Error {
	return problem.New(problem.Conflict, problem.ConversationClosed, id, "the conversation is closed")
}
