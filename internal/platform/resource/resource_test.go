package resource_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func scope(t *testing.T) tenancy.Scope {
	t.Helper()
	s, err := tenancy.For("cmp_01234567890123456789012345")
	require.NoError(t, err)
	return s
}

func TestChild_OnlyNamesOfTheScope(t *testing.T) {
	s := scope(t)
	id, err := resource.ChildID(s, s.Name()+"/domains/dom_1", "domains")
	require.NoError(t, err)
	require.Equal(t, "dom_1", id)
	got, err := resource.Child(s, s.Name()+"/backend", "backend")
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = resource.Child(s, s.Name()+"/backend/secrets/x", "backend/secrets")
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, got)
	for _, name := range []string{"", "companies/cmp_x/domains/d", s.Name(), s.Name() + "/domains", s.Name() + "/domains/", s.Name() + "/domainsx/d", s.Name() + "/domains/d/e", s.Name() + "x/domains/d", s.Name() + "/domains/d\x00", s.Name() + "/domains/d e", s.Name() + "/domains/ü"} {
		_, err := resource.ChildID(s, name, "domains")
		require.True(t, problem.Is(err, problem.NotFoundReason), "%q: %v", name, err)
	}
}

func TestAfter_RefusesTokensOfOtherListsAndOldOnes(t *testing.T) {
	tok := resource.Token(now, []string{"a", "b"}, "parent", "filter")
	got, err := resource.After(now.Add(time.Hour), tok, 2, "parent", "filter")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, got)
	for name, c := range map[string]func() ([]string, error){
		"filter": func() ([]string, error) { return resource.After(now, tok, 2, "parent", "other") },
		"shift":  func() ([]string, error) { return resource.After(now, tok, 2, "parentf", "ilter") },
		"keys":   func() ([]string, error) { return resource.After(now, tok, 1, "parent", "filter") },
		"control": func() ([]string, error) {
			return resource.After(now, resource.Token(now, []string{"a", "b\x00"}, "parent", "filter"), 2, "parent", "filter")
		},
		"garbage": func() ([]string, error) { return resource.After(now, "%%%", 2, "parent", "filter") },
		"old":     func() ([]string, error) { return resource.After(now.Add(25*time.Hour), tok, 2, "parent", "filter") },
	} {
		_, err := c()
		require.True(t, problem.Is(err, problem.InvalidRequest), name)
	}
	got, err = resource.After(now, "", 2)
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestMask_NamesWhatCannotBeChanged(t *testing.T) {
	m, err := resource.Mask(&fieldmaskpb.FieldMask{Paths: []string{"a"}}, []string{"a", "b"}, nil)
	require.NoError(t, err)
	require.True(t, m("a"))
	require.False(t, m("b"))
	_, err = resource.Mask(&fieldmaskpb.FieldMask{Paths: []string{"uid"}}, []string{"a", "b"}, nil)
	require.ErrorContains(t, err, "uid can't be changed")
}

func TestCheckETag_OnlyThePresentVersion(t *testing.T) {
	require.NoError(t, resource.CheckETag("", 7))
	require.NoError(t, resource.CheckETag(resource.ETag(7), 7))
	require.True(t, problem.Is(resource.CheckETag(resource.ETag(6), 7), problem.EtagMismatch))
}
