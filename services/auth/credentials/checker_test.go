package credentials_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/credentials"
	"github.com/poppyfield/poppyfield/services/auth/store"
	"github.com/poppyfield/poppyfield/services/auth/store/entstore"
)

// company answers the checks with what a test puts there, and notes what it was asked.
type company struct {
	verdict connect.Verdict
	err     error
	fields  []discovery.MediatedField
	states  []string
	ids     []string
}

func (c *company) Check(_ context.Context, _ *directory.Company, id string, _ connect.Subject, _ map[string]string) (connect.Verdict, error) {
	c.ids = append(c.ids, id)
	return c.verdict, c.err
}

func (c *company) CheckCode(_ context.Context, _ *directory.Company, id string, _ connect.Subject, state, _ string) (connect.Verdict, error) {
	c.ids, c.states = append(c.ids, id), append(c.states, state)
	return c.verdict, c.err
}

func (c *company) Fields(*directory.Company) []discovery.MediatedField { return c.fields }

type rig struct {
	*credentials.Checker
	store   *entstore.Store
	company *directory.Company
	says    *company
	clock   *clock.Manual
	ring    *keys.Ring
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		root := make([]byte, keys.RootSize)
		_, _ = rand.Read(root) // never fails
		ring, err := keys.NewRing(1, map[byte][]byte{1: root})
		require.NoError(t, err)
		now := clock.NewManual(time.Date(2026, 10, 2, 12, 0, 0, 0, time.UTC))
		says := &company{fields: []discovery.MediatedField{{Name: "email"}, {Name: "password", Secret: true}}}
		kept := entstore.New(d)
		fn(t, &rig{
			Checker: &credentials.Checker{Attempts: kept, SignIns: kept, Connect: says, Keys: ring, Now: now.Now},
			store:   kept, company: &directory.Company{Scope: dbtest.Company(t, d)}, says: says, clock: now, ring: ring,
		})
	})
}

// page is a sign-in on the pages that has kept something of its own.
func (r *rig) page(t *testing.T) store.SignIn {
	t.Helper()
	s := store.SignIn{
		ID: ids.New(ids.SignIn), Kind: directory.Device, Stage: store.StageLogin, ClientID: "https://agent.example/agent.json", Scope: "poppy:read",
		CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(15 * time.Minute),
	}
	var err error
	s.Sealed, err = r.ring.Seal(r.company.Scope.CompanyID(), "sign-in", s.ID, []byte(`{"user_code":"WDJB-MJHT"}`))
	require.NoError(t, err)
	require.NoError(t, r.store.Create(t.Context(), r.company.Scope, s))
	s, err = r.store.Find(t.Context(), r.company.Scope, s.ID)
	require.NoError(t, err)
	return s
}

func (r *rig) start(t *testing.T, s store.SignIn, email string) (store.SignIn, connect.Verdict, error) {
	t.Helper()
	return r.Start(t.Context(), r.company, s, "192.0.2.1", map[string]string{"email": email, "password": "p"})
}

func TestChecker_CodeThatCameTooLateIsNotPassedOn(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#8")
	each(t, func(t *testing.T, r *rig) {
		r.says.verdict = connect.Verdict{Outcome: connect.CodeRequired, State: "first", Lifetime: time.Minute}
		s, _, err := r.start(t, r.page(t), "mia@example.com")
		require.NoError(t, err)
		_, err = r.store.Save(t.Context(), r.company.Scope, s)
		require.NoError(t, err)
		r.clock.Advance(time.Minute)
		_, _, err = r.Code(t.Context(), r.company, s.ID, "1")
		require.ErrorIs(t, err, credentials.ErrCodeExpired)
		require.Empty(t, r.says.states, "nobody was asked")
	})
}

func TestChecker_CodeOnThePages(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#8")
	each(t, func(t *testing.T, r *rig) {
		r.says.verdict = connect.Verdict{Outcome: connect.CodeRequired, SentTo: "a text", State: "first", Lifetime: time.Minute}
		before := r.page(t)
		s, v, err := r.start(t, before, "mia@example.com")
		require.NoError(t, err)
		require.Equal(t, connect.CodeRequired, v.Outcome)
		require.Equal(t, store.StageCode, s.Stage)
		require.Equal(t, "a text", s.CodeSentTo)
		require.Equal(t, before.ExpiresAt, s.ExpiresAt, "the page has a time of its own")
		_, err = r.store.Save(t.Context(), r.company.Scope, s)
		require.NoError(t, err)

		// What the Company says with its refusal is for the next try.
		r.says.verdict = connect.Verdict{Outcome: connect.CodeRequired, SentTo: "another text", State: "second"}
		s, v, err = r.Code(t.Context(), r.company, s.ID, "1")
		require.NoError(t, err)
		require.Equal(t, connect.CodeRequired, v.Outcome)
		require.Equal(t, "another text", s.CodeSentTo)
		r.says.verdict = connect.Verdict{Outcome: connect.Complete, Account: connect.Account{ID: "acc-1"}}
		s, v, err = r.Code(t.Context(), r.company, s.ID, "2")
		require.NoError(t, err)
		require.Equal(t, "acc-1", v.Account.ID)
		require.Equal(t, []string{"first", "second"}, r.says.states)
		require.Equal(t, store.StageCode, s.Stage, "where it goes on is the page's decision")

		// What the page keeps is still there.
		plain, err := r.ring.Open(r.company.Scope.CompanyID(), "sign-in", s.ID, s.Sealed)
		require.NoError(t, err)
		var kept map[string]string
		require.NoError(t, json.Unmarshal(plain, &kept))
		require.Equal(t, "WDJB-MJHT", kept["user_code"])
		require.Equal(t, "second", kept["code_state"])
		require.NotContains(t, string(plain), "mia@example.com")
		for i, id := range r.says.ids {
			require.True(t, strings.HasPrefix(id, s.ID+"_"))
			require.NotContains(t, r.says.ids[:i], id)
		}
	})
}

func TestChecker_FailedCodeEndsTheSignIn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.says.verdict = connect.Verdict{Outcome: connect.CodeRequired}
		s, _, err := r.start(t, r.page(t), "mia@example.com")
		require.NoError(t, err)
		_, err = r.store.Save(t.Context(), r.company.Scope, s)
		require.NoError(t, err)
		r.says.verdict = connect.Verdict{Outcome: connect.Failed}
		for range 2 {
			_, v, err := r.Code(t.Context(), r.company, s.ID, "1")
			require.NoError(t, err)
			require.Equal(t, connect.Failed, v.Outcome)
		}
		require.Len(t, r.says.states, 1)
		got, err := r.store.Find(t.Context(), r.company.Scope, s.ID)
		require.NoError(t, err)
		require.Equal(t, store.StageDone, got.Stage)
		require.Empty(t, got.Sealed)
		_, _, err = r.Code(t.Context(), r.company, "sgn_unknown", "1")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestChecker_Unavailable(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.says.err = connect.ErrUnavailable
		before := r.page(t)
		s, _, err := r.start(t, before, "mia@example.com")
		require.ErrorIs(t, err, connect.ErrUnavailable)
		require.Equal(t, before, s)
	})
}

// On the pages there is no User of an agent: the account and the address count.
func TestChecker_LimitsOnThePages(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#23")
	each(t, func(t *testing.T, r *rig) {
		r.says.verdict = connect.Verdict{Outcome: connect.Failed}
		s := r.page(t)
		for range 10 {
			_, v, err := r.start(t, s, "mia@example.com")
			require.NoError(t, err)
			require.Equal(t, connect.Failed, v.Outcome)
		}
		_, _, err := r.start(t, s, " MIA@example.com")
		require.Equal(t, problem.RateLimitedReason, problem.As(err).Reason)
		require.Positive(t, problem.As(err).RetryAfter)
		for range 20 {
			_, _, err := r.start(t, s, ids.New("user"))
			require.NoError(t, err)
		}
		_, _, err = r.start(t, s, "nia@example.com")
		require.Equal(t, problem.RateLimitedReason, problem.As(err).Reason)
		r.clock.Advance(15*time.Minute + time.Second)
		_, _, err = r.start(t, s, "mia@example.com")
		require.NoError(t, err)

		// Where everything is secret there is no account to tell.
		r.clock.Advance(time.Hour)
		r.says.fields = []discovery.MediatedField{{Name: "password", Secret: true}}
		for range 30 {
			_, _, err := r.start(t, s, "")
			require.NoError(t, err)
		}
		_, _, err = r.start(t, s, "")
		require.Equal(t, problem.RateLimitedReason, problem.As(err).Reason)
	})
}

// What most backends take for one name is one name here.
func TestChecker_SpellingsOfOneNameShareALimit(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#23")
	each(t, func(t *testing.T, r *rig) {
		r.says.verdict = connect.Verdict{Outcome: connect.Failed}
		spellings := []string{
			"+1 555 0142", "15550142", "+1-555-0142", "+1.555.0142", "(1) 555 0142", "1\u200b5550142", "1\u00ad555 0142", "１５５５０１４２", "1/555/0142", "1 5550142 ",
		}
		for _, name := range spellings {
			_, _, err := r.start(t, r.page(t), name)
			require.NoError(t, err, name)
		}
		_, _, err := r.start(t, r.page(t), "1_5550142")
		require.True(t, problem.Is(err, problem.RateLimitedReason), "%v", err)
		_, _, err = r.start(t, r.page(t), "15550143")
		require.NoError(t, err)
	})
}
