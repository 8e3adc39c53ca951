// Package tenancy says for which Company something is done. A Scope is made only
// where a Company was established: from the host of a public request, from a
// verified key, or by an internal caller that had one. Stores take it as an
// argument; there is no default and no way to leave it out.
package tenancy

import (
	"context"
	"log/slog"
	"regexp"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Scope is one Company. The zero Scope is none and is refused everywhere.
type Scope struct{ companyID string }

var companyID = regexp.MustCompile(`^cmp_[a-z0-9]{26}$`)

// For makes the scope of the Company with the given id; an id of any other form is not found.
func For(id string) (Scope, error) {
	if !companyID.MatchString(id) {
		return Scope{}, problem.New(problem.NotFound, problem.NotFoundReason, "", "no such company")
	}
	return Scope{id}, nil
}

// CompanyID returns the Company's id; empty for the zero Scope.
func (s Scope) CompanyID() string { return s.companyID }

// Name returns the Company's resource name.
func (s Scope) Name() string { return "companies/" + s.companyID }

// IsZero reports whether s is no Company.
func (s Scope) IsZero() bool { return s.companyID == "" }

// LogValue shows the Company's id.
func (s Scope) LogValue() slog.Value { return slog.StringValue(s.companyID) }

type key struct{}

// Into returns ctx carrying s across an RPC boundary; stores don't look there.
func Into(ctx context.Context, s Scope) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the scope an internal call came with. Without one it fails: no caller is ever tenant-less by accident.
func From(ctx context.Context) (Scope, error) {
	s, ok := ctx.Value(key{}).(Scope)
	if !ok || s.IsZero() {
		return Scope{}, problem.New(problem.Internal, problem.ServerError, "", "call without a company")
	}
	return s, nil
}
