package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

func endings(t *testing.T, x suite) {
	ended := func(which store.Selection, how store.Ending) store.Ended {
		got, err := x.s.EndGrants(t.Context(), x.one, which, how)
		require.NoError(t, err)
		return got
	}
	in, same, bens := x.signIn(t, "end-mia", at(0), time.Time{}), x.signIn(t, "end-mia", at(0), at(time.Hour)), x.signIn(t, "end-ben", at(0), time.Time{})
	// The Session of in is signed in anew: its token of in remains one.
	sn, err := x.s.Session(t.Context(), x.one, in.Token.SessionID)
	require.NoError(t, err)
	anew := newSignIn(sn.Session, "end-mia", at(0), time.Time{})
	require.NoError(t, x.s.SignIn(t.Context(), x.one, anew))

	require.Zero(t, ended(store.Selection{}, signedOut(at(time.Minute)))) // nobody ends everything by accident
	require.Zero(t, ended(store.Selection{ID: in.Grant.ID, Account: "end-ben"}, signedOut(at(time.Minute))))
	require.Zero(t, ended(store.Selection{Account: "end-mia", ClientID: agentB}, signedOut(at(time.Minute))))
	foreign, err := x.s.EndGrants(t.Context(), x.other, store.Selection{ID: in.Grant.ID}, signedOut(at(time.Minute)))
	require.NoError(t, err)
	require.Zero(t, foreign)
	require.Equal(t, store.Ended{Grants: 1, Sessions: []string{in.Token.SessionID}},
		ended(store.Selection{ID: in.Grant.ID}, store.Ending{At: at(time.Minute), Reason: store.CodeReused, EndSessions: true}))
	require.Zero(t, ended(store.Selection{ID: in.Grant.ID}, signedOut(at(2*time.Minute))))
	g := x.grant(t, in.Grant.ID)
	require.Equal(t, at(time.Minute), g.EndedAt)
	require.Equal(t, store.CodeReused, g.EndReason)
	v, err := x.s.Session(t.Context(), x.one, in.Token.SessionID)
	require.NoError(t, err)
	require.Zero(t, v.EndedAt) // another Grant has signed it in since

	// One has expired and is over already.
	got := ended(store.Selection{Account: "end-mia", ClientID: agentA}, store.Ending{At: at(time.Hour), Reason: store.Disconnected, EndSessions: true})
	require.Equal(t, store.Ended{Grants: 1, Sessions: []string{in.Token.SessionID}}, got)
	require.Zero(t, x.grant(t, same.Grant.ID).EndedAt)
	v, err = x.s.Session(t.Context(), x.one, in.Token.SessionID)
	require.NoError(t, err)
	require.Equal(t, at(time.Hour), v.EndedAt)
	require.Equal(t, bens.Grant, x.grant(t, bens.Grant.ID))

	// By its Account Token.
	how := signedOut(at(2 * time.Hour))
	for _, c := range []struct {
		hash, client string
		want         store.Ended
	}{
		{bens.AccountToken, agentB, store.Ended{}},
		{same.AccountToken, agentA, store.Ended{}},
		{bens.AccountToken, agentA, store.Ended{Grants: 1, Sessions: []string{bens.Token.SessionID}}},
		{bens.AccountToken, agentA, store.Ended{}},
	} {
		got, err := x.s.Revoke(t.Context(), x.one, c.hash, c.client, how)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func connections(t *testing.T, x suite) {
	var made []store.Grant
	for i := range 5 {
		made = append(made, x.signIn(t, []string{"list-mia", "list-ben"}[i%2], at(365*24*time.Hour+time.Duration(i/2)*time.Millisecond), time.Time{}).Grant)
	}
	slices.SortFunc(made, func(a, b store.Grant) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		if a.ID > b.ID {
			return -1
		}
		return 1
	})
	var got []store.Grant
	place := store.Place{}
	for len(got) < len(made) {
		page, err := x.s.Grants(t.Context(), x.one, store.GrantFilter{ClientID: agentA}, place, 2)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		got = append(got, page...)
		last := page[len(page)-1]
		place = store.Place{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	require.Equal(t, made, got)
	list := func(f store.GrantFilter) int {
		page, err := x.s.Grants(t.Context(), x.one, f, store.Place{}, 100)
		require.NoError(t, err)
		return len(page)
	}
	require.Equal(t, 3, list(store.GrantFilter{Account: "list-mia"}))
	require.Zero(t, list(store.GrantFilter{Account: "list-mia", ClientID: agentB}))
	_, err := x.s.EndGrants(t.Context(), x.one, store.Selection{ID: made[0].ID}, signedOut(at(366*24*time.Hour)))
	require.NoError(t, err)
	require.Equal(t, 2, list(store.GrantFilter{Account: "list-mia", InForceAt: at(366 * 24 * time.Hour)}))
	require.Equal(t, 3, list(store.GrantFilter{Account: "list-mia"}))
	_, err = x.s.Grant(t.Context(), x.other, made[0].ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	page, err := x.s.Grants(t.Context(), x.other, store.GrantFilter{Account: "list-mia"}, store.Place{}, 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

func revokedAgent(t *testing.T, x suite) {
	const client = "https://revoked.example/agent.json"
	sn, plain := newSession(at(0)), newSession(at(0))
	sn.ClientID, plain.ClientID = client, client
	x.issue(t, sn)
	x.issue(t, plain)
	in := newSignIn(sn, "mia", at(0), time.Time{})
	require.NoError(t, x.s.SignIn(t.Context(), x.one, in))
	other := x.signIn(t, "revoke-other", at(0), time.Time{})
	rule := store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: client, Effect: store.EffectBlock, Reason: "why", CreatedAt: at(0)}
	how := store.Ending{At: at(time.Minute), Reason: store.AgentRevoked}

	none, err := x.s.RevokeAgent(t.Context(), x.other, rule, how)
	require.NoError(t, err)
	require.Zero(t, none.Grants)
	require.Empty(t, none.Sessions)
	rule.ID = ids.New(ids.AdmissionRule)
	got, err := x.s.RevokeAgent(t.Context(), x.one, rule, how)
	require.NoError(t, err)
	require.Equal(t, 1, got.Grants)
	require.ElementsMatch(t, []string{sn.ID, plain.ID}, got.Sessions)
	require.Equal(t, store.AgentRevoked, x.grant(t, in.Grant.ID).EndReason)
	for _, id := range got.Sessions {
		v, err := x.s.Session(t.Context(), x.one, id)
		require.NoError(t, err)
		require.Equal(t, at(time.Minute), v.EndedAt)
	}
	o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: client})
	require.NoError(t, err)
	require.Equal(t, rule, *o.Rule)
	require.Equal(t, other.Grant, x.grant(t, other.Grant.ID))
}
