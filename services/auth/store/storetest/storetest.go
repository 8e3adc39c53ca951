// Package storetest is what every store of the service of authorization has to do. The
// suite runs on each kind of database.
package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Store is what the suite is run on.
type Store interface {
	store.SignIns
	store.Attempts
	store.Clients
}

// Run runs the suite on s. one and other are two Companies without rows.
func Run(t *testing.T, s Store, one, other tenancy.Scope) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, suite){
		"a sign-in is found":                    found,
		"a sign-in is saved once for a version": saved,
		"tries of a code are counted":           codeAttempts,
		"parallel tries of a code":              parallelCodes,
		"attempts are counted in windows":       attempts,
		"all keys are counted or none":          allOrNone,
		"parallel attempts":                     parallelAttempts,
		"other companies see nothing":           isolation,
		"registered clients":                    clients,
	} {
		t.Run(name, func(t *testing.T) { test(t, suite{s, one, other}) })
	}
	t.Run("pruning", func(t *testing.T) { pruning(t, suite{s, one, other}) })
}

type suite struct {
	s          Store
	one, other tenancy.Scope
}

func at(offset time.Duration) time.Time {
	return time.Date(2026, 10, 2, 17, 0, 0, 123456000, time.UTC).Add(offset)
}

func newSignIn() store.SignIn {
	return store.SignIn{
		ID: ids.New(ids.SignIn), Kind: directory.Direct, Stage: store.StageLogin,
		ClientID: "https://agent.example/agent.json", AgentName: "Agent", AgentLogoURI: "https://agent.example/logo.png",
		Scope: "poppy:read poppy:write", UILocale: "de",
		RedirectURI: "https://agent.example/cb", State: "state", CodeChallenge: "challenge",
		BrowserHash: "browser", UpstreamHash: ids.New("up"), Sealed: []byte{1, 2, 3},
		CreatedAt: at(0), ExpiresAt: at(15 * time.Minute), Version: 1,
	}
}

func (x suite) create(t *testing.T, s store.SignIn) store.SignIn {
	t.Helper()
	require.NoError(t, x.s.Create(t.Context(), x.one, s))
	return s
}

func (x suite) atCode(t *testing.T) store.SignIn {
	t.Helper()
	s := newSignIn()
	s.Stage = store.StageCode
	return x.create(t, s)
}

func found(t *testing.T, x suite) {
	s := x.create(t, newSignIn())
	got, err := x.s.Find(t.Context(), x.one, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)
	got, err = x.s.FindUpstream(t.Context(), x.one, s.UpstreamHash)
	require.NoError(t, err)
	require.Equal(t, s, got)

	// Nothing awaited: many such sign-ins may be at once, and none is found by it.
	mediated := store.SignIn{
		ID: ids.New(ids.SignIn), Kind: directory.Mediated, Stage: store.StageCode, ClientID: s.ClientID, Scope: "poppy:read",
		SessionID: "ses_1", UserID: "usr_1", CodeSentTo: "text", CreatedAt: at(0), ExpiresAt: at(time.Minute), Version: 1,
	}
	x.create(t, mediated)
	second := mediated
	second.ID = ids.New(ids.SignIn)
	x.create(t, second)
	got, err = x.s.Find(t.Context(), x.one, mediated.ID)
	require.NoError(t, err)
	require.Equal(t, mediated, got)
	for _, hash := range []string{"", "unknown"} {
		_, err = x.s.FindUpstream(t.Context(), x.one, hash)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	_, err = x.s.Find(t.Context(), x.one, "sgn_unknown")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func saved(t *testing.T, x suite) {
	s := x.create(t, newSignIn())
	next := s
	next.Stage, next.Account, next.AccountLabel = store.StageConsent, "acc-1", "mia@example.com"
	next.UpstreamHash, next.Sealed, next.CodeSentTo, next.ExpiresAt = "", nil, "Text", at(time.Hour)
	got, err := x.s.Save(t.Context(), x.one, next)
	require.NoError(t, err)
	next.Version = 2
	require.Equal(t, next, got)
	stored, err := x.s.Find(t.Context(), x.one, s.ID)
	require.NoError(t, err)
	require.Equal(t, next, stored)

	_, err = x.s.Save(t.Context(), x.one, s)
	require.ErrorIs(t, err, store.ErrStale)
	missing := newSignIn()
	_, err = x.s.Save(t.Context(), x.one, missing)
	require.ErrorIs(t, err, store.ErrStale)

	const parallel = 12
	var won atomic.Int64
	together(parallel, func(int) {
		if _, err := x.s.Save(t.Context(), x.one, stored); err == nil {
			won.Add(1)
		}
	})
	require.EqualValues(t, 1, won.Load())
}

func codeAttempts(t *testing.T, x suite) {
	const limit = 3
	s := x.atCode(t)
	for i := range limit {
		got, err := x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit)
		require.NoError(t, err)
		require.Equal(t, i+1, got.CodeAttempts)
		require.Equal(t, s.Version, got.Version) // so that a try that was right can be saved though others came after it
	}
	_, err := x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit)
	require.ErrorIs(t, err, store.ErrStale)

	// A sign-in that was read before the tries and stays with its code gives none back.
	again, err := x.s.Save(t.Context(), x.one, s)
	require.NoError(t, err)
	_, err = x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit)
	require.ErrorIs(t, err, store.ErrStale)

	// Signing in anew brings another code.
	again.Stage = store.StageLogin
	again, err = x.s.Save(t.Context(), x.one, again)
	require.NoError(t, err)
	require.Zero(t, again.CodeAttempts)
	_, err = x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit)
	require.ErrorIs(t, err, store.ErrStale)
	again.Stage = store.StageCode
	_, err = x.s.Save(t.Context(), x.one, again)
	require.NoError(t, err)
	got, err := x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit)
	require.NoError(t, err)
	require.Equal(t, 1, got.CodeAttempts)

	_, err = x.s.TakeCodeAttempt(t.Context(), x.one, "sgn_unknown", limit)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func parallelCodes(t *testing.T, x suite) {
	const limit = 5
	s := x.atCode(t)
	var through atomic.Int64
	together(20, func(int) {
		if _, err := x.s.TakeCodeAttempt(t.Context(), x.one, s.ID, limit); err == nil {
			through.Add(1)
		}
	})
	require.EqualValues(t, limit, through.Load())
	got, err := x.s.Find(t.Context(), x.one, s.ID)
	require.NoError(t, err)
	require.Equal(t, limit, got.CodeAttempts)
}

func newKey(kind string, limit int) store.Key {
	return store.Key{Kind: kind, Value: ids.New("v"), Limit: limit, Window: 10 * time.Minute}
}

func (x suite) take(t *testing.T, now time.Time, keys ...store.Key) time.Duration {
	t.Helper()
	wait, err := x.s.Take(t.Context(), x.one, now, keys...)
	require.NoError(t, err)
	return wait
}

func attempts(t *testing.T, x suite) {
	key := newKey("address", 2)
	require.Zero(t, x.take(t, at(0), key))
	require.Zero(t, x.take(t, at(time.Minute), key))
	require.Equal(t, 8*time.Minute, x.take(t, at(2*time.Minute), key))
	require.Equal(t, 8*time.Minute, x.take(t, at(2*time.Minute), key)) // a refused try costs nothing

	require.NoError(t, x.s.Return(t.Context(), x.one, at(3*time.Minute), key))
	require.Zero(t, x.take(t, at(3*time.Minute), key))
	require.NotZero(t, x.take(t, at(3*time.Minute), key))

	// The window ends; what is given back afterwards was counted in the old one.
	require.Zero(t, x.take(t, at(10*time.Minute), key))
	require.Zero(t, x.take(t, at(10*time.Minute), key))
	require.Equal(t, 10*time.Minute, x.take(t, at(10*time.Minute), key))
	require.NoError(t, x.s.Return(t.Context(), x.one, at(20*time.Minute), key))
	require.NotZero(t, x.take(t, at(19*time.Minute), key))

	// Nothing was counted, so nothing comes back.
	fresh := newKey("address", 1)
	require.NoError(t, x.s.Return(t.Context(), x.one, at(0), fresh))
	require.Zero(t, x.take(t, at(0), fresh))
	require.NoError(t, x.s.Return(t.Context(), x.one, at(0), fresh))
	require.NoError(t, x.s.Return(t.Context(), x.one, at(0), fresh))
	require.Zero(t, x.take(t, at(0), fresh))
	require.NotZero(t, x.take(t, at(0), fresh))

	// The same value under another kind is another key.
	other := fresh
	other.Kind = "account"
	require.Zero(t, x.take(t, at(0), other))
	require.NotZero(t, x.take(t, at(0), newKey("closed", 0)))
}

func allOrNone(t *testing.T, x suite) {
	wide, narrow := newKey("company", 3), newKey("address", 1)
	require.Zero(t, x.take(t, at(0), wide, narrow))
	for range 5 {
		require.Equal(t, 9*time.Minute, x.take(t, at(time.Minute), narrow, wide))
	}
	require.Zero(t, x.take(t, at(time.Minute), wide))
	require.Zero(t, x.take(t, at(time.Minute), wide))
	require.NotZero(t, x.take(t, at(time.Minute), wide))
}

func parallelAttempts(t *testing.T, x suite) {
	const limit = 10
	shared, a, b := newKey("company", limit), newKey("address", 100), newKey("address", 100)
	var through, refused, broken atomic.Int64
	together(40, func(i int) {
		// Both orders, so that units which lock in the order given would wait for each other.
		keys := []store.Key{shared, a, b}
		if i%2 == 1 {
			keys = []store.Key{b, a, shared}
		}
		wait, err := x.s.Take(t.Context(), x.one, at(0), keys...)
		switch {
		case err != nil:
			broken.Add(1)
		case wait > 0:
			refused.Add(1)
		default:
			through.Add(1)
		}
	})
	require.Zero(t, broken.Load())
	require.EqualValues(t, limit, through.Load())
	require.EqualValues(t, 30, refused.Load())
	// The others were counted only together with the shared one.
	for _, key := range []store.Key{a, b} {
		key.Limit = limit + 1
		require.Zero(t, x.take(t, at(0), key))
		require.NotZero(t, x.take(t, at(0), key))
	}
}

// isolation is MT-06: what is one Company's is unknown at another.
func isolation(t *testing.T, x suite) {
	s := x.atCode(t)
	_, err := x.s.Find(t.Context(), x.other, s.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = x.s.FindUpstream(t.Context(), x.other, s.UpstreamHash)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = x.s.Save(t.Context(), x.other, s)
	require.ErrorIs(t, err, store.ErrStale)
	_, err = x.s.TakeCodeAttempt(t.Context(), x.other, s.ID, 5)
	require.ErrorIs(t, err, store.ErrNotFound)
	got, err := x.s.Find(t.Context(), x.one, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)

	// Two Companies' logins may come back with the same text.
	twin := newSignIn()
	twin.UpstreamHash = s.UpstreamHash
	require.NoError(t, x.s.Create(t.Context(), x.other, twin))
	got, err = x.s.FindUpstream(t.Context(), x.other, s.UpstreamHash)
	require.NoError(t, err)
	require.Equal(t, twin, got)

	key := newKey("address", 1)
	require.Zero(t, x.take(t, at(0), key))
	require.NotZero(t, x.take(t, at(0), key))
	wait, err := x.s.Take(t.Context(), x.other, at(0), key)
	require.NoError(t, err)
	require.Zero(t, wait)
	require.NoError(t, x.s.Return(t.Context(), x.other, at(0), key))
	require.NotZero(t, x.take(t, at(0), key))
}

func pruning(t *testing.T, x suite) {
	old, live := newSignIn(), newSignIn()
	old.ExpiresAt, live.ExpiresAt = at(-50*time.Hour), at(50*time.Hour)
	x.create(t, old)
	x.create(t, live)
	n, err := x.s.Prune(t.Context(), at(-50*time.Hour), 10)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = x.s.Prune(t.Context(), at(-49*time.Hour), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = x.s.Find(t.Context(), x.one, old.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = x.s.Find(t.Context(), x.one, live.ID)
	require.NoError(t, err)

	key := newKey("address", 1)
	require.Zero(t, x.take(t, at(-50*time.Hour), key))
	n, err = x.s.PruneAttempts(t.Context(), at(-49*time.Hour), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, x.take(t, at(-50*time.Hour), key)) // its count is gone
}

// together runs fn n times at once and waits for all.
func together(n int, fn func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			fn(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}
