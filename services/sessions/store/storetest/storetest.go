// Package storetest is what every store of the service of Sessions has to do. The
// suite runs on each kind of database.
package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Store is what the suite is run on.
type Store interface {
	store.Tokens
	store.Admissions
	store.Sessions
	store.Pruning
	store.Grants
	store.Codes
	store.Devices
	store.Connections
	store.Browsers
	store.SignInPruning
	store.Changes
}

const (
	agentA = "https://agent.example/agent.json"
	agentB = "https://other.example/agent.json"
)

// Run runs the suite on s. company makes a Company without rows.
func Run(t *testing.T, s Store, company func() tenancy.Scope) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, suite){
		"a session and its token are found": sessionAndToken,
		"renewal":                           renewal,
		"revocation":                        revocation,
		"last use":                          lastUse,
		"admission":                         admission,
		"rules":                             rules,
		"pages of sessions":                 pages,
		"other companies see nothing":       isolation,
		"sign-ins":                          signIns,
		"codes":                             codes,
		"devices":                           devices,
		"renewals by account token":         renewals,
		"ends of grants":                    endings,
		"connections":                       connections,
		"a revoked agent":                   revokedAgent,
		"cookies of browsers":               browserCookies,
	} {
		t.Run(name, func(t *testing.T) { test(t, suite{s, company(), company()}) })
	}
	// These look at all Companies: nothing of the others is older than theirs.
	t.Run("pruning", func(t *testing.T) { pruning(t, suite{s, company(), company()}) })
	t.Run("changes", func(t *testing.T) { changes(t, suite{s, company(), company()}) })
	t.Run("pruned sign-ins", func(t *testing.T) { prunedSignIns(t, suite{s, company(), company()}) })
}

type suite struct {
	s          Store
	one, other tenancy.Scope
}

func at(offset time.Duration) time.Time {
	return time.Date(2026, 10, 2, 17, 0, 0, 123456000, time.UTC).Add(offset)
}

func newSession(created time.Time) store.Session {
	return store.Session{ID: ids.New(ids.Session), ClientID: agentA, AgentName: "Agent", UserID: "usr_1", Extensions: []string{"a.example/x", "operations"}, CreatedAt: created, LastUsedAt: created}
}

func newToken(s store.Session, expires time.Time) store.Token {
	return store.Token{Hash: ids.New("h"), SessionID: s.ID, JKT: "thumb", Resource: "https://r.example/", CreatedAt: s.CreatedAt, ExpiresAt: expires}
}

func signedOut(at time.Time) store.Ending { return store.Ending{At: at, Reason: store.SignedOut} }

func (x suite) issue(t *testing.T, sn store.Session) store.Token {
	t.Helper()
	token := newToken(sn, sn.CreatedAt.Add(time.Hour))
	require.NoError(t, x.s.Issue(t.Context(), x.one, sn, true, token))
	return token
}

func sessionAndToken(t *testing.T, x suite) {
	sn := newSession(at(0))
	token := x.issue(t, sn)

	c, err := x.s.Credential(t.Context(), x.one, token.Hash)
	require.NoError(t, err)
	require.Equal(t, token, *c.Token)
	require.Equal(t, sn, *c.Session)
	require.Equal(t, store.ModeOpen, c.Admission.Mode)

	o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, SessionID: sn.ID})
	require.NoError(t, err)
	require.Equal(t, sn, *o.Session)

	o, err = x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, SessionID: "ses_unknown"})
	require.NoError(t, err)
	require.Nil(t, o.Session)
	c, err = x.s.Credential(t.Context(), x.one, "unknown")
	require.NoError(t, err)
	require.Nil(t, c.Token)
}

func renewal(t *testing.T, x suite) {
	sn := newSession(at(0))
	first := x.issue(t, sn)

	sn.LastUsedAt, sn.AgentName = at(time.Hour), "Renamed"
	second := newToken(sn, at(2*time.Hour))
	require.NoError(t, x.s.Issue(t.Context(), x.one, sn, false, second))
	for _, token := range []store.Token{first, second} { // old tokens stay (decision 29)
		c, err := x.s.Credential(t.Context(), x.one, token.Hash)
		require.NoError(t, err)
		require.Equal(t, sn, *c.Session)
		require.Zero(t, c.Token.RevokedAt)
	}

	_, ended, err := x.s.End(t.Context(), x.one, sn.ID, at(time.Hour))
	require.NoError(t, err)
	require.True(t, ended)
	require.ErrorIs(t, x.s.Issue(t.Context(), x.one, sn, false, newToken(sn, at(3*time.Hour))), store.ErrEnded)
	again, ended, err := x.s.End(t.Context(), x.one, sn.ID, at(2*time.Hour))
	require.NoError(t, err)
	require.False(t, ended)
	require.Equal(t, at(time.Hour), again.EndedAt)
	_, _, err = x.s.End(t.Context(), x.one, "ses_unknown", at(0))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func revocation(t *testing.T, x suite) {
	sn := newSession(at(0))
	token := x.issue(t, sn)
	for _, c := range []struct {
		hash, client string
		want         []string
	}{
		{token.Hash, agentB, nil}, {"unknown", agentA, nil}, {token.Hash, agentA, []string{sn.ID}}, {token.Hash, agentA, nil},
	} {
		got, err := x.s.Revoke(t.Context(), x.one, c.hash, c.client, signedOut(at(time.Minute)))
		require.NoError(t, err)
		require.Equal(t, store.Ended{Sessions: c.want}, got)
	}
	c, err := x.s.Credential(t.Context(), x.one, token.Hash)
	require.NoError(t, err)
	require.Equal(t, at(time.Minute), c.Token.RevokedAt)
}

func lastUse(t *testing.T, x suite) {
	sn := newSession(at(0))
	x.issue(t, sn)
	require.NoError(t, x.s.Touch(t.Context(), x.one, sn.ID, at(time.Minute)))
	require.NoError(t, x.s.Touch(t.Context(), x.one, sn.ID, at(time.Second))) // an older use changes nothing
	got, err := x.s.Session(t.Context(), x.one, sn.ID)
	require.NoError(t, err)
	require.Equal(t, at(time.Minute), got.LastUsedAt)
	_, _, err = x.s.End(t.Context(), x.one, sn.ID, at(2*time.Minute))
	require.NoError(t, err)
	require.NoError(t, x.s.Touch(t.Context(), x.one, sn.ID, at(3*time.Minute)))
	got, err = x.s.Session(t.Context(), x.one, sn.ID)
	require.NoError(t, err)
	require.Equal(t, at(time.Minute), got.LastUsedAt)
}

func admission(t *testing.T, x suite) {
	a, err := x.s.Admission(t.Context(), x.one)
	require.NoError(t, err)
	require.Equal(t, store.Admission{Mode: store.ModeOpen}, a)
	a.Mode, a.RequireNonce, a.UpdatedAt = store.ModeAllowlist, true, at(0)
	saved, err := x.s.SaveAdmission(t.Context(), x.one, a)
	require.NoError(t, err)
	require.Equal(t, int64(1), saved.Version)
	_, err = x.s.SaveAdmission(t.Context(), x.one, a)
	require.ErrorIs(t, err, store.ErrStale)
	saved.Mode, saved.UpdatedAt = store.ModeOpen, at(time.Hour)
	again, err := x.s.SaveAdmission(t.Context(), x.one, saved)
	require.NoError(t, err)
	_, err = x.s.SaveAdmission(t.Context(), x.one, saved)
	require.ErrorIs(t, err, store.ErrStale)
	got, err := x.s.Admission(t.Context(), x.one)
	require.NoError(t, err)
	require.Equal(t, again, got)
	require.Equal(t, store.Admission{Mode: store.ModeOpen, RequireNonce: true, UpdatedAt: at(time.Hour), Version: 2}, got)
}

func rules(t *testing.T, x suite) {
	first, err := x.s.PutRule(t.Context(), x.one, store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: agentA, Effect: store.EffectAllow, CreatedAt: at(0)})
	require.NoError(t, err)
	second, err := x.s.PutRule(t.Context(), x.one, store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: agentB, Effect: store.EffectBlock, CreatedAt: at(0)})
	require.NoError(t, err)
	replaced, err := x.s.PutRule(t.Context(), x.one, store.Rule{
		ID: ids.New(ids.AdmissionRule), ClientID: agentA, Effect: store.EffectBlock, Reason: "spam", ExpiresAt: at(time.Hour), CreatedAt: at(time.Minute),
	})
	require.NoError(t, err)
	require.Equal(t, store.Rule{ID: first.ID, ClientID: agentA, Effect: store.EffectBlock, Reason: "spam", ExpiresAt: at(time.Hour), CreatedAt: at(0)}, replaced)

	all, err := x.s.Rules(t.Context(), x.one, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.Rule{replaced, second}, all)
	rest, err := x.s.Rules(t.Context(), x.one, first.ID, 10)
	require.NoError(t, err)
	require.Equal(t, []store.Rule{second}, rest)

	o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA})
	require.NoError(t, err)
	require.Equal(t, replaced, *o.Rule)
	require.NoError(t, x.s.DeleteRule(t.Context(), x.one, first.ID, at(0)))
	require.ErrorIs(t, x.s.DeleteRule(t.Context(), x.one, first.ID, at(0)), store.ErrNotFound)
	o, err = x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA})
	require.NoError(t, err)
	require.Nil(t, o.Rule)
	require.NoError(t, x.s.DeleteRule(t.Context(), x.one, second.ID, at(0)))
}

func pages(t *testing.T, x suite) {
	var made []store.Session
	for i := range 5 {
		sn := newSession(at(365*24*time.Hour + time.Duration(i/2)*time.Millisecond)) // two at the same moment
		x.issue(t, sn)
		made = append(made, sn)
	}
	var got []store.SessionView
	place := store.Place{}
	for len(got) < len(made) {
		page, err := x.s.Sessions(t.Context(), x.one, place, 2)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		got = append(got, page...)
		last := page[len(page)-1]
		place = store.Place{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	for i, sn := range made {
		require.Equal(t, store.SessionView{Session: sn}, got[len(made)-1-i])
	}
}

// isolation is MT-06: what is one Company's is unknown at another.
func isolation(t *testing.T, x suite) {
	sn := newSession(at(0))
	token := x.issue(t, sn)
	rule, err := x.s.PutRule(t.Context(), x.one, store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: agentA, Effect: store.EffectBlock, CreatedAt: at(0)})
	require.NoError(t, err)

	c, err := x.s.Credential(t.Context(), x.other, token.Hash)
	require.NoError(t, err)
	require.Nil(t, c.Token)
	o, err := x.s.Opening(t.Context(), x.other, store.Asked{ClientID: agentA, SessionID: sn.ID})
	require.NoError(t, err)
	require.Nil(t, o.Session)
	require.Nil(t, o.Rule)
	require.ErrorIs(t, x.s.Issue(t.Context(), x.other, sn, false, newToken(sn, at(time.Hour))), store.ErrEnded)
	revoked, err := x.s.Revoke(t.Context(), x.other, token.Hash, agentA, signedOut(at(0)))
	require.NoError(t, err)
	require.Empty(t, revoked)
	require.NoError(t, x.s.Touch(t.Context(), x.other, sn.ID, at(time.Hour)))
	_, err = x.s.Session(t.Context(), x.other, sn.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = x.s.End(t.Context(), x.other, sn.ID, at(0))
	require.ErrorIs(t, err, store.ErrNotFound)
	list, err := x.s.Sessions(t.Context(), x.other, store.Place{}, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	require.ErrorIs(t, x.s.DeleteRule(t.Context(), x.other, rule.ID, at(0)), store.ErrNotFound)
	listed, err := x.s.Rules(t.Context(), x.other, "", 10)
	require.NoError(t, err)
	require.Empty(t, listed)
	n, err := x.s.PruneSessions(t.Context(), x.other, at(1000*time.Hour), at(1000*time.Hour), 10)
	require.NoError(t, err)
	require.Zero(t, n)

	c, err = x.s.Credential(t.Context(), x.one, token.Hash)
	require.NoError(t, err)
	require.Equal(t, sn, *c.Session)
	require.Zero(t, c.Token.RevokedAt)
	require.NoError(t, x.s.DeleteRule(t.Context(), x.one, rule.ID, at(0)))
}

func pruning(t *testing.T, x suite) {
	const day = 24 * time.Hour
	idle, ended, live := newSession(at(-90*day)), newSession(at(-90*day)), newSession(at(-90*day))
	ended.LastUsedAt, live.LastUsedAt = at(-40*day), at(-40*day)
	stale, fresh := x.issue(t, idle), x.issue(t, live)
	x.issue(t, ended)
	_, _, err := x.s.End(t.Context(), x.one, ended.ID, at(-39*day))
	require.NoError(t, err)

	scopes, err := x.s.Unused(t.Context(), at(-30*day))
	require.NoError(t, err)
	require.Equal(t, []tenancy.Scope{x.one}, scopes)
	n, err := x.s.PruneTokens(t.Context(), stale.ExpiresAt.Add(-time.Second), 10)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = x.s.PruneSessions(t.Context(), x.one, at(-30*day), at(-60*day), 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, gone := range []string{idle.ID, ended.ID} {
		_, err = x.s.Session(t.Context(), x.one, gone)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	c, err := x.s.Credential(t.Context(), x.one, stale.Hash)
	require.NoError(t, err)
	require.Nil(t, c.Token)
	c, err = x.s.Credential(t.Context(), x.one, fresh.Hash)
	require.NoError(t, err)
	require.Equal(t, live.ID, c.Session.ID)
	n, err = x.s.PruneTokens(t.Context(), fresh.ExpiresAt.Add(time.Second), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	c, err = x.s.Credential(t.Context(), x.one, fresh.Hash)
	require.NoError(t, err)
	require.Nil(t, c.Token)
}
