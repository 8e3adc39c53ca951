package conversation

import (
	"net/url"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const maxQuery = 4096 // bytes of a query string

// ReadQuery is what the query of a read, or of a POST that wants the reply in its
// response, asks for.
type ReadQuery struct {
	Cursor  string        // "" for the beginning; not yet checked against the conversation
	Wait    time.Duration // 0 to MaxWait
	HasWait bool          // wait was given, be it 0
}

// ParseReadQuery reads the query of GET {endpoint}/{id}/events (7.5). wait is a
// whole number of seconds and is cut to MaxWait; an empty cursor counts as none.
// A repeated wait or cursor is refused, and so is anything that looks like a
// credential, wherever it stands. Other parameters are ignored.
func ParseReadQuery(rawQuery string) (ReadQuery, error) {
	if len(rawQuery) > maxQuery {
		return ReadQuery{}, invalid(clauseMalformed, "query", "has more than %d bytes", maxQuery)
	}
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return ReadQuery{}, invalid(clauseMalformed, "query", "is malformed").WithCause(err)
	}
	for name, all := range values {
		if isCredential(name, all) {
			return ReadQuery{}, problem.New(problem.Invalid, problem.InvalidRequest, clauseTokenInURL,
				"a token or assertion doesn't belong in a URL; this one must be considered leaked")
		}
	}
	var q ReadQuery
	if all := values["cursor"]; len(all) > 1 {
		return ReadQuery{}, invalid(clauseMalformed, "cursor", "is there more than once")
	} else if len(all) == 1 {
		q.Cursor = all[0]
	}
	all, given := values["wait"]
	if !given {
		return q, nil
	}
	if len(all) > 1 {
		return ReadQuery{}, invalid(clauseWait, "wait", "is there more than once")
	}
	q.HasWait = true
	if q.Wait, err = parseWait(all[0]); err != nil {
		return ReadQuery{}, err
	}
	return q, nil
}

// ParsePostQuery reads the query of a POST (7.3): as ParseReadQuery, but a cursor
// without wait is ignored.
func ParsePostQuery(rawQuery string) (ReadQuery, error) {
	q, err := ParseReadQuery(rawQuery)
	if err != nil || !q.HasWait {
		return ReadQuery{}, err
	}
	return q, nil
}

// parseWait counts up only to the cap, so that no number of digits overflows.
func parseWait(raw string) (time.Duration, error) {
	if raw == "" {
		return 0, invalid(clauseWait, "wait", "is no whole number of seconds")
	}
	var d time.Duration
	for i := range len(raw) {
		c := raw[i]
		if c < '0' || c > '9' {
			return 0, invalid(clauseWait, "wait", "is no whole number of seconds")
		}
		d = min(10*d+time.Duration(c-'0')*time.Second, MaxWait)
	}
	return d, nil
}

// isCredential reports a parameter by which a client would put a secret into logs
// and histories: one with the name of a credential, or with a JWT as its value.
func isCredential(name string, values []string) bool {
	switch strings.ToLower(name) {
	case "access_token", "refresh_token", "id_token", "session_token", "account_token", "token", "bearer",
		"authorization", "dpop", "assertion", "client_assertion", "client_secret":
		return true
	}
	for _, v := range values {
		if strings.HasPrefix(v, "eyJ") && strings.Count(v, ".") >= 2 {
			return true
		}
	}
	return false
}
