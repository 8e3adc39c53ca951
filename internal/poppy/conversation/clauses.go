package conversation

import "github.com/poppyfield/poppyfield/internal/poppy/clause"

const (
	// IDs have 1 to 256 characters of the URL-safe base64 alphabet.
	clauseID clause.ID = "poppy-0.1/7.2#16"
	// A request from another client, User or account is rejected.
	clauseOwner clause.ID = "poppy-0.1/7.2#15"
	// Another account, User, client or tenant can't tell the conversation from none.
	clauseForeign clause.ID = "poppy-0.1/7.13#d21"
	// The same User's signed-out token gets sign_in_required once the account was used.
	clauseSignedOut clause.ID = "poppy-0.1/7.11#d21"
	// The body is {"message": object}.
	clauseBody clause.ID = "poppy-0.1/7.3#1"
	// A message has at least one of text, data and context.
	clauseContent clause.ID = "poppy-0.1/7.4#1"
	// sender is agent or human.
	clauseSender clause.ID = "poppy-0.1/7.4#4"
	// text is a string.
	clauseText clause.ID = "poppy-0.1/7.4#5"
	// data is a JSON object.
	clauseData clause.ID = "poppy-0.1/7.4#6"
	// context is a JSON object.
	clauseContext clause.ID = "poppy-0.1/7.4#7"
	// The three defined fields of context have their types.
	clauseContextFields clause.ID = "poppy-0.1/7.4#d46"
	// Sizes are the Company's choice.
	clauseSize clause.ID = "poppy-0.1/7.4#10"
	// A malformed body is invalid_request.
	clauseMalformed clause.ID = "poppy-0.1/7.13#14"
	// A foreign, future or malformed cursor is invalid_cursor, a pruned one cursor_expired.
	clauseCursor clause.ID = "poppy-0.1/7.13#d19"
	// wait is a number of seconds, once.
	clauseWait clause.ID = "poppy-0.1/7.5#d18"
	// A token in a URL is refused.
	clauseTokenInURL clause.ID = "poppy-0.1/4.3#d26"
	// A closed conversation refuses messages.
	clauseClosed clause.ID = "poppy-0.1/7.12#6"
	// Nothing reopens a closed conversation.
	clauseLate clause.ID = "poppy-0.1/7.12#d24"
	// A parent with an open Direct Conversation takes no messages, handoffs or second one.
	clauseDirect clause.ID = "poppy-0.1/7.13#7"
	// A Direct Conversation is no parent.
	clauseNested clause.ID = "poppy-0.1/7.10#d22"
	// A close is a POST of an empty JSON object.
	clauseClose clause.ID = "poppy-0.1/7.12#1"
)

const (
	// An authorization event names one of two errors, and the scopes where they are what is missing.
	clauseAuthorization clause.ID = "poppy-0.1/7.11#5"
	// user_requested has a short reason.
	clauseReason clause.ID = "poppy-0.1/7.10#13"
)
