package rpc

import (
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// below returns what follows prefix, which ends in a slash, in a resource name of
// scope's Company. Any other Company's name is not found, like one that never was.
func below(scope tenancy.Scope, name, prefix string) (string, error) {
	return resource.ChildID(scope, name, strings.TrimSuffix(prefix, "/"))
}

// placeOf reads a page token of a list that is sorted by creation; bound describes the list.
func placeOf(now time.Time, token string, bound ...string) (store.Place, error) {
	parts, err := resource.After(now, token, 2, bound...)
	if err != nil || parts == nil {
		return store.Place{}, err
	}
	micros, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return store.Place{}, resource.Invalid("page_token", "not a page token of this list")
	}
	return store.Place{CreatedAt: time.UnixMicro(micros).UTC(), ID: parts[1]}, nil
}

// tokenOf is the page token that placeOf reads.
func tokenOf(now time.Time, p store.Place, bound ...string) string {
	return resource.Token(now, []string{strconv.FormatInt(p.CreatedAt.UnixMicro(), 10), p.ID}, bound...)
}

func checkParent(scope tenancy.Scope, parent string) error {
	if parent != scope.Name() {
		return notFound()
	}
	return nil
}

func notFound() error { return resource.NotFound() }
