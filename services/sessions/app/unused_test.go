package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// threeUnused is a store in which three Companies have Sessions that idled out.
type threeUnused struct {
	Store
	scopes []tenancy.Scope
	ended  []tenancy.Scope
}

func (s *threeUnused) Unused(context.Context, time.Time) ([]tenancy.Scope, error) {
	return s.scopes, nil
}

func (s *threeUnused) EndIdle(_ context.Context, scope tenancy.Scope, _, _ time.Time, _ int) (int, error) {
	s.ended = append(s.ended, scope)
	if scope == s.scopes[1] {
		return 0, errors.New("the row is damaged")
	}
	return 0, nil
}

type companies struct{ unknown tenancy.Scope }

func (c companies) Get(_ context.Context, scope tenancy.Scope) (*directory.Company, error) {
	if scope == c.unknown {
		return nil, errors.New("not known")
	}
	return &directory.Company{SessionIdleLifetime: time.Hour}, nil
}

func TestEndIdle_ACompanyThatFailsHoldsNoneBack(t *testing.T) {
	s := &threeUnused{}
	for _, id := range []string{"cmp_0", "cmp_1", "cmp_2"} {
		scope, err := tenancy.For(id + "1234567890123456789012345")
		require.NoError(t, err)
		s.scopes = append(s.scopes, scope)
	}
	a := &App{Deps: Deps{Store: s, Companies: companies{s.scopes[0]}, Listening: func(tenancy.Scope) bool { return true }}}
	err := a.endIdle(t.Context(), time.Now())
	require.ErrorContains(t, err, s.scopes[0].Name()+": not known")
	require.ErrorContains(t, err, s.scopes[1].Name()+": the row is damaged")
	require.Equal(t, s.scopes[1:], s.ended)
}
