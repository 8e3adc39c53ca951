package sessions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// watched is an open watch of a Company's Sessions.
type watched struct {
	frames chan *adminv1.WatchSessionsResponse
	errs   chan error
}

func (r *rig) watch(t testing.TB, c *fixture.Company) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(c.Ctx(t.Context()))
	stream, err := r.access.WatchSessions(ctx, &adminv1.WatchSessionsRequest{Parent: c.Scope.Name()})
	require.NoError(t, err)
	w := &watched{make(chan *adminv1.WatchSessionsResponse, 1024), make(chan error, 1)}
	t.Cleanup(stop)
	go func() {
		for {
			f, err := stream.Recv()
			if err != nil {
				w.errs <- err
				return
			}
			w.frames <- f
		}
	}()
	require.NotNil(t, w.next(t).GetSynced())
	return w
}

func (w *watched) next(t testing.TB) *adminv1.WatchSessionsResponse {
	t.Helper()
	select {
	case f := <-w.frames:
		return f
	case err := <-w.errs:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing was told")
	}
	return nil
}

// told returns what is told next that is no heartbeat: a Session's name, or "all".
func (w *watched) told(t testing.TB) string {
	t.Helper()
	for {
		switch f := w.next(t).GetFrame().(type) {
		case *adminv1.WatchSessionsResponse_Session:
			return f.Session
		case *adminv1.WatchSessionsResponse_All:
			return "all"
		}
	}
}

// quiet fails if something is told before the heartbeat that follows another one, which
// comes after everything that has happened.
func (w *watched) quiet(t testing.TB) {
	t.Helper()
	for range 2 {
		require.NotNil(t, w.next(t).GetHeartbeat())
	}
}

// withWatches runs fn with a service that looks for changes, with doorbells and without.
func withWatches(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	for name, silent := range map[string]bool{"told by the bus": false, "without the bus": true} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				p := newPlatform(t, d)
				if silent {
					p.Bus = (*bus.Bus)(nil)
				}
				r := onPlatform(t, p, nil)
				require.NoError(t, r.service.Start(t.Context()))
				t.Cleanup(func() { require.NoError(t, r.service.Stop(context.Background())) })
				fn(t, r)
			})
		})
	}
}

func TestWatchSessions_TellsWhateverChangesWhatATokenIsWorth(t *testing.T) {
	withWatches(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		opened := r.open(t, nil)
		one := r.sessionName(opened.GetSessionId())
		other := r.NewCompany(t)
		w, elsewhere := r.watch(t, r.company), r.watch(t, other)
		w.quiet(t)

		in := r.signSessionIn(t, opened.GetSessionId(), func(q *sessionsv1.IssueCodeRequest) { q.Scope = "poppy:read" })
		require.Equal(t, one, w.told(t), "signed in")
		r.revoke(t, clientID, in.GetAccessToken())
		require.Equal(t, one, w.told(t), "a token revoked")
		r.revoke(t, clientID, in.GetRefreshToken())
		require.Equal(t, one, w.told(t), "signed out")
		_, err := r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: one})
		require.NoError(t, err)
		require.Equal(t, one, w.told(t), "ended")
		_, err = r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: one})
		require.NoError(t, err)
		w.quiet(t)

		rule, err := r.admission.CreateAdmissionRule(ctx, &adminv1.CreateAdmissionRuleRequest{
			Parent: parent, AdmissionRule: &adminv1.AdmissionRule{ClientId: clientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK},
		})
		require.NoError(t, err)
		require.Equal(t, "all", w.told(t), "blocked")
		_, err = r.admission.DeleteAdmissionRule(ctx, &adminv1.DeleteAdmissionRuleRequest{Name: rule.GetName()})
		require.NoError(t, err)
		require.Equal(t, "all", w.told(t), "a rule is gone")
		_, err = r.admission.UpdateAdmission(ctx, &adminv1.UpdateAdmissionRequest{Admission: &adminv1.Admission{
			Name: parent + "/admission", Mode: adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST,
		}})
		require.NoError(t, err)
		require.Equal(t, "all", w.told(t), "admission")
		_, err = r.agents.RevokeAgent(ctx, &adminv1.RevokeAgentRequest{Parent: parent, ClientId: clientID})
		require.NoError(t, err)
		require.Equal(t, "all", w.told(t), "an agent revoked")
		w.quiet(t)

		r.company.Snapshot.Apis[0].Rules[0].SignIn = true
		r.Changed(r.company)
		require.Equal(t, "all", w.told(t), "a rule of an API")
		w.quiet(t)
		// By then every process has the new settings, and what one of the others said before is forgotten, too.
		r.Clock.Advance(directory.MaxAge)
		require.Equal(t, "all", w.told(t))
		elsewhere.quiet(t)
		for len(elsewhere.frames) > 0 {
			require.Empty(t, elsewhere.next(t).GetSession())
		}
	})
}

func TestWatchSessions_IsOfTheCallersCompanyAlone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		stream, err := r.access.WatchSessions(r.company.Ctx(t.Context()), &adminv1.WatchSessionsRequest{Parent: r.NewCompany(t).Scope.Name()})
		require.NoError(t, err)
		_, err = stream.Recv()
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.access.GetAccessTable(r.company.Ctx(t.Context()), &adminv1.GetAccessTableRequest{Name: r.NewCompany(t).Scope.Name() + "/accessTable"})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestGetAccessTable_IsWhatRequestsAreJudgedBy(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		r.company.Snapshot.Apis = append(r.company.Snapshot.Apis, &directoryv1.Api{Url: "https://example.com/documentation"})
		r.company.Snapshot.RequestsPerMinute = 77
		r.Changed(r.company)
		got, err := r.access.GetAccessTable(r.company.Ctx(t.Context()), &adminv1.GetAccessTableRequest{Name: r.company.Scope.Name() + "/accessTable"})
		require.NoError(t, err)
		require.Equal(t, []any{r.company.Issuer.String(), int32(77), false}, []any{got.GetIssuer(), got.GetRequestsPerMinute(), got.GetNonceRequired()})
		require.Len(t, got.GetApis(), 3, "no request can be for the fourth")
		orders := got.GetApis()[0]
		require.Equal(t, []string{"https://api.example.com"}, orders.GetBaseUrls())
		require.Equal(t, []string{"poppy:read", "poppy:write"}, orders.GetRules()[1].GetScopes())
		require.True(t, got.GetApis()[2].GetMcp())

		r.company.Snapshot.Active = false
		r.Changed(r.company)
		_, err = r.access.GetAccessTable(r.company.Ctx(t.Context()), &adminv1.GetAccessTableRequest{Name: r.company.Scope.Name() + "/accessTable"})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestIntrospectToken_SaysForHowLongItHolds(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SessionIdleLifetime = nil
		r.Changed(r.company)
		token := r.open(t, nil).GetAccessToken()
		keep := func() time.Duration {
			got, err := r.access.IntrospectToken(r.company.Ctx(t.Context()), &adminv1.IntrospectTokenRequest{Parent: r.company.Scope.Name(), Token: token})
			require.NoError(t, err)
			require.True(t, got.GetActive())
			return got.GetKeepFor().AsDuration()
		}
		require.Equal(t, 30*time.Second, keep())
		_, err := r.admission.CreateAdmissionRule(r.company.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
			Parent: r.company.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{
				ClientId: clientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW, ExpireTime: timestamppb.New(r.Clock.Now().Add(7 * time.Second)),
			},
		})
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, keep(), "an admission that ends")
		r.Clock.Advance(8 * time.Second)
		require.Equal(t, 30*time.Second, keep())
		got, err := r.access.IntrospectToken(r.company.Ctx(t.Context()), &adminv1.IntrospectTokenRequest{Parent: r.company.Scope.Name(), Token: token})
		require.NoError(t, err)
		r.Clock.Advance(got.GetSession().GetExpireTime().AsTime().Sub(r.Clock.Now()) - 3*time.Second)
		require.Equal(t, 3*time.Second, keep(), "the token's own end")
	})
}
