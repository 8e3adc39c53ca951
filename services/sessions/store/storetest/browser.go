package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

func browserCookies(t *testing.T, x suite) {
	cookie := func(sn store.Session, created time.Time) store.BrowserCookie {
		return store.BrowserCookie{Hash: ids.New("b"), SessionID: sn.ID, CreatedAt: created, ExpiresAt: created.Add(time.Hour)}
	}
	save := func(c store.BrowserCookie) {
		require.NoError(t, x.s.SaveBrowserCookie(t.Context(), x.one, c))
	}
	visits := func(hashes ...string) []store.Visit {
		got, err := x.s.Visits(t.Context(), x.one, hashes)
		require.NoError(t, err)
		return got
	}
	in := x.signIn(t, "cookie-mia", at(0), time.Time{})
	sn, err := x.s.Session(t.Context(), x.one, in.Token.SessionID)
	require.NoError(t, err)
	_, err = x.s.PutRule(t.Context(), x.one, store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: sn.ClientID, Effect: store.EffectAllow, CreatedAt: at(0)})
	require.NoError(t, err)
	first := cookie(sn.Session, at(time.Minute))
	save(first)
	got := visits(first.Hash, "unknown")
	require.Len(t, got, 1)
	require.Equal(t, first, got[0].Cookie)
	require.Equal(t, at(time.Minute), got[0].Session.LastUsedAt, "joining is use")
	require.Equal(t, in.Grant, *got[0].Session.Grant)
	require.Equal(t, store.EffectAllow, got[0].Rule.Effect)
	require.Equal(t, store.ModeOpen, got[0].Admission.Mode)

	second := cookie(sn.Session, at(2*time.Minute))
	save(second)
	require.Empty(t, visits(first.Hash))
	other := newSession(at(0))
	x.issue(t, other)
	theirs := cookie(other, at(time.Minute))
	save(theirs)
	both := visits(theirs.Hash, second.Hash)
	require.Equal(t, []string{second.Hash, theirs.Hash}, []string{both[0].Cookie.Hash, both[1].Cookie.Hash}, "the latest first")

	foreign, err := x.s.Visits(t.Context(), x.other, []string{second.Hash})
	require.NoError(t, err)
	require.Empty(t, foreign)
	require.ErrorIs(t, x.s.SaveBrowserCookie(t.Context(), x.other, cookie(sn.Session, at(3*time.Minute))), store.ErrEnded)
	_, ended, err := x.s.End(t.Context(), x.one, other.ID, at(3*time.Minute))
	require.NoError(t, err)
	require.True(t, ended)
	require.ErrorIs(t, x.s.SaveBrowserCookie(t.Context(), x.one, cookie(other, at(4*time.Minute))), store.ErrEnded)
	require.Equal(t, at(3*time.Minute), visits(theirs.Hash)[0].Session.EndedAt)
}
