package rpc

import (
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// below returns what follows prefix, which ends in a slash, in a resource name of
// scope's Company. Any other Company's name is not found, like one that never was.
func below(scope tenancy.Scope, name, prefix string) (string, error) {
	return resource.ChildID(scope, name, strings.TrimSuffix(prefix, "/"))
}

func checkParent(scope tenancy.Scope, parent string) error {
	if parent != scope.Name() {
		return notFound()
	}
	return nil
}

func notFound() error { return resource.NotFound() }
