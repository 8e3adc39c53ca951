package rpc

import (
	"encoding/base64"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	defaultPage = 50
	maxPage     = 200
)

// pageSize brings a page_size into its bounds.
func pageSize(asked int32) int {
	if asked <= 0 {
		return defaultPage
	}
	return min(int(asked), maxPage)
}

// pageToken names the last item of a page. It is bound to the list and its parent;
// what it names is looked up within the caller's Company in any case.
func pageToken(list, parent string, place ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(append([]string{list, parent}, place...), "\n")))
}

// parsePageToken returns the n parts of the place, nil for the empty token.
func parsePageToken(token, list, parent string, n int) ([]string, error) {
	if token == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	parts := strings.Split(string(raw), "\n")
	if err != nil || len(parts) != n+2 || parts[0] != list || parts[1] != parent || !isID(parts[len(parts)-1]) {
		return nil, badPageToken()
	}
	return parts[2:], nil
}

func badPageToken() error {
	const detail = "is not a token of this list"
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "page_token %s", detail).WithField("page_token", detail)
}

// below returns what follows prefix in a resource name of scope's Company. Any
// other Company's name is not found, like one that never was.
func below(scope tenancy.Scope, name, prefix string) (string, error) {
	rest, ok := strings.CutPrefix(name, scope.Name()+"/"+prefix)
	if !ok || !isID(rest) {
		return "", notFound()
	}
	return rest, nil
}

// isID reports whether s may be an id of ours. Nothing else reaches a query.
func isID(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

func checkParent(scope tenancy.Scope, parent string) error {
	if parent != scope.Name() {
		return notFound()
	}
	return nil
}

func notFound() error { return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found") }
