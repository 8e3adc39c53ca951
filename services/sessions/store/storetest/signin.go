package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// newSignIn is a sign-in of sn to account.
func newSignIn(sn store.Session, account string, created, expires time.Time) store.SignedIn {
	g := store.Grant{
		ID: ids.New(ids.Grant), ClientID: sn.ClientID, AgentName: "Signed in", UserID: sn.UserID, Account: account, AccountLabel: account + "@example.com",
		Scope: "poppy:read", SignIn: directory.Device, CreatedAt: created, ExpiresAt: expires, LastUsedAt: created,
	}
	token := newToken(sn, created.Add(time.Hour))
	token.CreatedAt, token.SignedIn, token.Scope, token.GrantID = created, true, g.Scope, g.ID
	return store.SignedIn{Grant: g, AccountToken: ids.New("h"), Token: token}
}

// signIn opens a Session and signs it in.
func (x suite) signIn(t *testing.T, account string, created, expires time.Time) store.SignedIn {
	t.Helper()
	sn := newSession(created)
	x.issue(t, sn)
	in := newSignIn(sn, account, created, expires)
	require.NoError(t, x.s.SignIn(t.Context(), x.one, in))
	return in
}

func (x suite) grant(t *testing.T, id string) store.Grant {
	t.Helper()
	g, err := x.s.Grant(t.Context(), x.one, id)
	require.NoError(t, err)
	return g
}

func signIns(t *testing.T, x suite) {
	in := x.signIn(t, "mia", at(time.Minute), at(24*time.Hour))
	c, err := x.s.Credential(t.Context(), x.one, in.Token.Hash)
	require.NoError(t, err)
	require.Equal(t, in.Token, *c.Token)
	require.Equal(t, in.Grant, *c.Grant)
	require.Equal(t, "mia", c.Session.Account)
	require.Equal(t, in.Grant.ID, c.Session.GrantID)
	require.Equal(t, "Signed in", c.Session.AgentName)
	require.Equal(t, at(time.Minute), c.Session.LastUsedAt)
	v, err := x.s.Session(t.Context(), x.one, in.Token.SessionID)
	require.NoError(t, err)
	require.Equal(t, store.SessionView{Session: *c.Session, Grant: &in.Grant}, v)

	o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, AccountToken: in.AccountToken})
	require.NoError(t, err)
	require.Equal(t, in.Grant, *o.Grant)
	require.Equal(t, store.AccountToken{Hash: in.AccountToken, GrantID: in.Grant.ID, CreatedAt: at(time.Minute)}, *o.AccountToken)
	o, err = x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, AccountToken: "unknown"})
	require.NoError(t, err)
	require.Nil(t, o.Grant)
	require.Nil(t, o.AccountToken)

	// A sign-in that fails leaves nothing behind.
	bens := newSignIn(*c.Session, "ben", at(time.Minute), time.Time{})
	require.ErrorIs(t, x.s.SignIn(t.Context(), x.one, bens), store.ErrAccount)
	_, _, err = x.s.End(t.Context(), x.one, c.Session.ID, at(time.Hour))
	require.NoError(t, err)
	again := newSignIn(*c.Session, "mia", at(time.Minute), time.Time{})
	require.ErrorIs(t, x.s.SignIn(t.Context(), x.one, again), store.ErrEnded)
	for _, failed := range []store.SignedIn{bens, again} {
		_, err = x.s.Grant(t.Context(), x.one, failed.Grant.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		o, err = x.s.Opening(t.Context(), x.one, store.Asked{AccountToken: failed.AccountToken})
		require.NoError(t, err)
		require.Nil(t, o.AccountToken)
	}
}

func codes(t *testing.T, x suite) {
	sn := newSession(at(0))
	x.issue(t, sn)
	code := store.Code{
		Hash: ids.New("h"), ClientID: agentA, AgentName: "Agent", RedirectURI: "https://agent.example/callback", Challenge: "challenge", Scope: "poppy:read",
		Account: "mia", AccountLabel: "mia@example.com", CreatedAt: at(0), ExpiresAt: at(time.Minute),
	}
	require.NoError(t, x.s.SaveCode(t.Context(), x.one, code))
	find := func() *store.Code {
		o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, SessionID: sn.ID, Code: code.Hash})
		require.NoError(t, err)
		require.Equal(t, sn.ID, o.Session.ID)
		return o.Code
	}
	require.Equal(t, code, *find())
	require.ErrorIs(t, x.s.RedeemCode(t.Context(), x.other, code.Hash, newSignIn(sn, "mia", at(0), time.Time{})), store.ErrConsumed)
	gone := newSession(at(0))
	require.ErrorIs(t, x.s.RedeemCode(t.Context(), x.one, code.Hash, newSignIn(gone, "mia", at(0), time.Time{})), store.ErrEnded)
	require.Equal(t, code, *find()) // refused, and so not consumed
	in := newSignIn(sn, "mia", at(time.Second), time.Time{})
	require.NoError(t, x.s.RedeemCode(t.Context(), x.one, code.Hash, in))
	code.Consumed, code.GrantID = at(time.Second), in.Grant.ID
	require.Equal(t, code, *find())
	second := newSignIn(sn, "mia", at(time.Second), time.Time{})
	require.ErrorIs(t, x.s.RedeemCode(t.Context(), x.one, code.Hash, second), store.ErrConsumed)
	_, err := x.s.Grant(t.Context(), x.one, second.Grant.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, in.Grant, x.grant(t, in.Grant.ID))
}

func newDevice(created time.Time) store.Device {
	return store.Device{
		Hash: ids.New("h"), UserCodeHash: ids.New("u"), ClientID: agentA, AgentName: "Agent", Scope: "poppy:read", State: store.DevicePending,
		Interval: 5 * time.Second, CreatedAt: created, ExpiresAt: created.Add(10 * time.Minute),
	}
}

func devices(t *testing.T, x suite) {
	sn := newSession(at(0))
	x.issue(t, sn)
	d := newDevice(at(0))
	require.NoError(t, x.s.SaveDevice(t.Context(), x.one, d))
	taken := newDevice(at(0))
	taken.UserCodeHash = d.UserCodeHash
	require.ErrorIs(t, x.s.SaveDevice(t.Context(), x.one, taken), store.ErrTaken)
	require.NoError(t, x.s.SaveDevice(t.Context(), x.other, taken))

	hashes := []string{"previous", d.UserCodeHash}
	got, err := x.s.PendingDevice(t.Context(), x.one, hashes, at(0))
	require.NoError(t, err)
	require.Equal(t, d, got)
	_, err = x.s.PendingDevice(t.Context(), x.one, hashes, d.ExpiresAt)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = x.s.PendingDevice(t.Context(), x.one, []string{"unknown"}, at(0))
	require.ErrorIs(t, err, store.ErrNotFound)

	change := func(fn func(*store.Device) error) error { return x.s.ChangeDevice(t.Context(), x.one, d.Hash, fn) }
	find := func() store.Device {
		o, err := x.s.Opening(t.Context(), x.one, store.Asked{ClientID: agentA, Device: d.Hash})
		require.NoError(t, err)
		return *o.Device
	}
	require.NoError(t, change(func(d *store.Device) error {
		d.PolledAt, d.Interval = at(time.Second), 10*time.Second
		return nil
	}))
	d.PolledAt, d.Interval = at(time.Second), 10*time.Second
	require.Equal(t, d, find())
	refusal := errors.New("no")
	require.ErrorIs(t, change(func(d *store.Device) error {
		d.State = store.DeviceDenied
		return refusal
	}), refusal)
	require.ErrorIs(t, x.s.RedeemDevice(t.Context(), x.one, d.Hash, newSignIn(sn, "mia", at(0), time.Time{})), store.ErrConsumed) // not approved
	require.NoError(t, change(func(d *store.Device) error {
		d.State, d.ApprovedScope, d.Account, d.AccountLabel = store.DeviceApproved, "poppy:read", "mia", "Mia"
		return nil
	}))
	d.State, d.ApprovedScope, d.Account, d.AccountLabel = store.DeviceApproved, "poppy:read", "mia", "Mia"
	require.Equal(t, d, find())
	_, err = x.s.PendingDevice(t.Context(), x.one, hashes, at(0))
	require.ErrorIs(t, err, store.ErrNotFound)
	require.ErrorIs(t, x.s.ChangeDevice(t.Context(), x.other, d.Hash, func(*store.Device) error { return nil }), store.ErrNotFound)
	require.ErrorIs(t, x.s.ChangeDevice(t.Context(), x.one, "unknown", func(*store.Device) error { return nil }), store.ErrNotFound)

	require.ErrorIs(t, x.s.RedeemDevice(t.Context(), x.one, d.Hash, newSignIn(newSession(at(0)), "mia", at(0), time.Time{})), store.ErrEnded)
	in := newSignIn(sn, "mia", at(time.Second), time.Time{})
	require.NoError(t, x.s.RedeemDevice(t.Context(), x.one, d.Hash, in))
	d.State, d.GrantID = store.DeviceConsumed, in.Grant.ID
	require.Equal(t, d, find())
	require.ErrorIs(t, x.s.RedeemDevice(t.Context(), x.one, d.Hash, newSignIn(sn, "mia", at(0), time.Time{})), store.ErrConsumed)
}

func renewals(t *testing.T, x suite) {
	in := x.signIn(t, "mia", at(0), at(24*time.Hour))
	renew := func(sn store.Session, create bool, after time.Duration) store.Renewal {
		sn.Account, sn.GrantID, sn.LastUsedAt = "mia", in.Grant.ID, at(after)
		token := newToken(sn, at(after+time.Hour))
		token.CreatedAt, token.SignedIn, token.GrantID = at(after), true, in.Grant.ID
		return store.Renewal{Session: sn, Create: create, Token: token}
	}
	fresh := newSession(at(0))
	r := renew(fresh, true, 59*time.Second)
	require.NoError(t, x.s.Renew(t.Context(), x.one, r))
	c, err := x.s.Credential(t.Context(), x.one, r.Token.Hash)
	require.NoError(t, err)
	require.Equal(t, r.Session, *c.Session)
	require.Equal(t, r.Token, *c.Token)
	require.Equal(t, at(0), x.grant(t, in.Grant.ID).LastUsedAt) // to the minute
	require.NoError(t, x.s.Renew(t.Context(), x.one, renew(fresh, false, time.Minute)))
	require.Equal(t, at(time.Minute), x.grant(t, in.Grant.ID).LastUsedAt)

	// The first to replace a token says when; the successor is there once.
	find := func() store.AccountToken {
		o, err := x.s.Opening(t.Context(), x.one, store.Asked{AccountToken: in.AccountToken, Successors: []string{"unknown", "next"}})
		require.NoError(t, err)
		return *o.AccountToken
	}
	require.Empty(t, find().Successor)
	for i := range 3 {
		r := renew(fresh, false, time.Duration(2+i)*time.Minute)
		r.Replaced, r.Successor = in.AccountToken, "next"
		require.NoError(t, x.s.Renew(t.Context(), x.one, r))
		require.Equal(t, at(2*time.Minute), find().ReplacedAt)
		require.Equal(t, "next", find().Successor)
	}
	o, err := x.s.Opening(t.Context(), x.one, store.Asked{AccountToken: "next"})
	require.NoError(t, err)
	require.Equal(t, in.Grant.ID, o.Grant.ID)
	require.Zero(t, o.AccountToken.ReplacedAt)

	bens := x.signIn(t, "ben", at(0), time.Time{})
	other, err := x.s.Session(t.Context(), x.one, bens.Token.SessionID)
	require.NoError(t, err)
	require.ErrorIs(t, x.s.Renew(t.Context(), x.one, renew(other.Session, false, time.Hour)), store.ErrAccount)
	require.ErrorIs(t, x.s.Renew(t.Context(), x.one, renew(newSession(at(0)), false, time.Hour)), store.ErrEnded)
	require.ErrorIs(t, x.s.Renew(t.Context(), x.other, renew(newSession(at(0)), true, time.Hour)), store.ErrOver)
	require.ErrorIs(t, x.s.Renew(t.Context(), x.one, renew(fresh, false, 24*time.Hour)), store.ErrOver)
	_, err = x.s.EndGrants(t.Context(), x.one, store.Selection{ID: in.Grant.ID}, signedOut(at(time.Hour)))
	require.NoError(t, err)
	late := renew(newSession(at(0)), true, 2*time.Hour)
	require.ErrorIs(t, x.s.Renew(t.Context(), x.one, late), store.ErrOver)
	_, err = x.s.Session(t.Context(), x.one, late.Session.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func prunedSignIns(t *testing.T, x suite) {
	const day = 24 * time.Hour
	far := at(-1000 * day)
	code, device := store.Code{
		Hash: ids.New("h"), ClientID: agentA, RedirectURI: "r", Challenge: "c", Scope: "s", Account: "a", CreatedAt: far, ExpiresAt: far.Add(time.Minute),
	}, newDevice(far)
	require.NoError(t, x.s.SaveCode(t.Context(), x.one, code))
	require.NoError(t, x.s.SaveDevice(t.Context(), x.one, device))
	expired, ended, live := x.signIn(t, "a", far, far.Add(day)), x.signIn(t, "b", far, time.Time{}), x.signIn(t, "c", far, time.Time{})
	_, err := x.s.EndGrants(t.Context(), x.one, store.Selection{ID: ended.Grant.ID}, signedOut(far.Add(day)))
	require.NoError(t, err)
	for _, c := range []struct {
		before  time.Time
		code    int
		device  int
		grants  int
		remains bool
	}{
		{before: far.Add(time.Minute), remains: true},
		{before: far.Add(time.Minute + time.Microsecond), code: 1, remains: true},
		{before: far.Add(10*time.Minute + time.Microsecond), device: 1, remains: true},
		{before: far.Add(day), remains: true},
		{before: far.Add(day + time.Microsecond), grants: 2},
	} {
		n, err := x.s.PruneCodes(t.Context(), c.before, 10)
		require.NoError(t, err)
		require.Equal(t, c.code, n)
		n, err = x.s.PruneDevices(t.Context(), c.before, 10)
		require.NoError(t, err)
		require.Equal(t, c.device, n)
		n, err = x.s.PruneGrants(t.Context(), c.before, 10)
		require.NoError(t, err)
		require.Equal(t, c.grants, n)
		for _, in := range []store.SignedIn{expired, ended} {
			_, err = x.s.Grant(t.Context(), x.one, in.Grant.ID)
			require.Equal(t, c.remains, err == nil)
			o, err := x.s.Opening(t.Context(), x.one, store.Asked{AccountToken: in.AccountToken})
			require.NoError(t, err)
			require.Equal(t, c.remains, o.AccountToken != nil)
		}
	}
	require.Equal(t, live.Grant, x.grant(t, live.Grant.ID))
}
