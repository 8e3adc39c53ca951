package discovery

import (
	"fmt"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// violations collects broken rules, so that whoever publishes sees all of them
// at once. The first one gives the error its clause.
type violations struct {
	first  clause.ID
	fields []problem.Field
}

func (v *violations) add(id clause.ID, path, format string, args ...any) {
	if len(v.fields) == 0 {
		v.first = id
	}
	v.fields = append(v.fields, problem.Field{Path: path, Detail: fmt.Sprintf(format, args...)})
}

// err returns the collected rules as one error, nil where there are none.
func (v *violations) err(reason problem.Reason) error {
	if len(v.fields) == 0 {
		return nil
	}
	f := v.fields[0]
	e := problem.New(problem.Invalid, reason, v.first, "%s: %s", f.Path, f.Detail)
	if n := len(v.fields) - 1; n > 0 {
		e.Detail = fmt.Sprintf("%s (and %d more)", e.Detail, n)
	}
	e.Fields = v.fields
	return e
}
