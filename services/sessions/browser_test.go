package sessions_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// eachJoinable is each with a Company that takes browsers into its Sessions.
func eachJoinable(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	eachOffering(t, func(t *testing.T, r *rig) {
		r.joinable(r.company)
		fn(t, r)
	})
}

func (r *rig) joinable(c *fixture.Company) {
	c.Snapshot.BrowserSession = &directoryv1.BrowserSession{Endpoint: "https://example.com/join", CookieName: "sb"}
	r.Changed(c)
}

func (r *rig) join(t testing.TB, session string, change func(*sessionsv1.JoinBrowserRequest)) (*sessionsv1.JoinBrowserResponse, error) {
	t.Helper()
	q := &sessionsv1.JoinBrowserRequest{ClientId: clientID, UserId: userID, SessionId: session, Once: r.once(replay.KindBrowserAssertion)}
	if change != nil {
		change(q)
	}
	return r.api.JoinBrowser(r.company.Ctx(t.Context()), q)
}

func (r *rig) joined(t testing.TB, session string) *sessionsv1.JoinBrowserResponse {
	t.Helper()
	got, err := r.join(t, session, nil)
	require.NoError(t, err)
	return got
}

// visit is whose visit one with the cookie is; nil for nobody's.
func (r *rig) visit(t testing.TB, cookie string) *adminv1.AgentSession {
	t.Helper()
	got, err := r.access.CheckBrowserSession(r.company.Ctx(t.Context()), &adminv1.CheckBrowserSessionRequest{
		Parent: r.company.Scope.Name(), Visitor: &adminv1.CheckBrowserSessionRequest_Cookie{Cookie: cookie},
	})
	require.NoError(t, err)
	require.Equal(t, got.GetFound(), got.GetSession() != nil)
	return got.GetSession()
}

func TestCheckBrowserSession_FollowsTheSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#35", "poppy-0.1/5#36", "poppy-0.1/5#39")
	clausetest.Refuses(t, "poppy-0.1/5#35", "poppy-0.1/5#36", "poppy-0.1/5#39")
	eachJoinable(t, func(t *testing.T, r *rig) {
		id := r.open(t, nil).GetSessionId()
		cookie := r.joined(t, id).GetCookie()
		require.NotContains(t, r.Logged.String(), cookie)
		got := r.visit(t, cookie)
		require.Equal(t, []any{r.sessionName(id), clientID, "Agent", userID, false, ""},
			[]any{got.GetSession(), got.GetClientId(), got.GetAgentName(), got.GetUser(), got.GetSignedIn(), got.GetAccount()})
		require.Equal(t, r.Clock.Now().Add(24*time.Hour), got.GetExpireTime().AsTime())

		r.signSessionIn(t, id, func(q *sessionsv1.IssueCodeRequest) { q.Scope = "poppy:read" })
		got = r.visit(t, cookie)
		require.Equal(t, []any{true, mia}, []any{got.GetSignedIn(), got.GetAccount()})
		require.Equal(t, []string{"poppy:read"}, got.GetScopes())
		wider := r.signSessionIn(t, id, nil)
		require.Equal(t, []string{"poppy:read", "poppy:write"}, r.visit(t, cookie).GetScopes())
		r.revoke(t, clientID, wider.GetRefreshToken())
		got = r.visit(t, cookie)
		require.Equal(t, []any{false, "", 0}, []any{got.GetSignedIn(), got.GetAccount(), len(got.GetScopes())})

		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(id)})
		require.NoError(t, err)
		require.Nil(t, r.visit(t, cookie))
		_, err = r.join(t, id, nil)
		requireReason(t, err, problem.InvalidSession)
	})
}

// A sign-in that ends by itself is over on the website, too.
func TestCheckBrowserSession_SignInExpires(t *testing.T) {
	eachJoinable(t, func(t *testing.T, r *rig) {
		id := r.open(t, nil).GetSessionId()
		cookie := r.joined(t, id).GetCookie()
		r.offer(func(s *directoryv1.SignIn) { s.AccountTokenLifetime = durationpb.New(time.Hour) })
		r.signSessionIn(t, id, nil)
		require.Equal(t, r.Clock.Now().Add(time.Hour), r.visit(t, cookie).GetExpireTime().AsTime())
		r.Clock.Advance(time.Hour - time.Second)
		require.True(t, r.visit(t, cookie).GetSignedIn())
		r.Clock.Advance(time.Second)
		require.False(t, r.visit(t, cookie).GetSignedIn())
	})
}

func TestJoinBrowser_CookieNeverOutlivesTheSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#36")
	clausetest.Refuses(t, "poppy-0.1/5#36")
	eachJoinable(t, func(t *testing.T, r *rig) {
		id := r.open(t, nil).GetSessionId()
		day := r.joined(t, id)
		require.Equal(t, 24*time.Hour, day.GetExpiresIn().AsDuration())
		r.Clock.Advance(24*time.Hour - time.Second)
		require.NotNil(t, r.visit(t, day.GetCookie()))
		r.Clock.Advance(time.Second)
		require.Nil(t, r.visit(t, day.GetCookie()), "its day is over, though the Session isn't")

		r.company.Snapshot.SessionIdleLifetime = durationpb.New(time.Hour)
		r.Changed(r.company)
		id = r.open(t, nil).GetSessionId()
		hour := r.joined(t, id)
		require.Equal(t, time.Hour, hour.GetExpiresIn().AsDuration())

		// A limit that became shorter meanwhile counts as well.
		r.company.Snapshot.SessionIdleLifetime = durationpb.New(time.Minute)
		r.Changed(r.company)
		r.Clock.Advance(2*time.Minute + time.Second)
		require.Nil(t, r.visit(t, hour.GetCookie()), "the Session idled out")
		_, err := r.join(t, id, nil)
		requireReason(t, err, problem.InvalidSession)
	})
}

func TestJoinBrowser_OneCookieOfASession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#42")
	clausetest.Refuses(t, "poppy-0.1/5#42")
	eachJoinable(t, func(t *testing.T, r *rig) {
		id := r.open(t, nil).GetSessionId()
		cookies := make([]string, 4)
		for _, err := range atOnce(len(cookies), func(i int) error {
			got, err := r.join(t, id, nil)
			cookies[i] = got.GetCookie()
			return err
		}) {
			require.NoError(t, err)
		}
		good := slices.DeleteFunc(slices.Clone(cookies), func(c string) bool { return r.visit(t, c) == nil })
		require.Len(t, good, 1)
	})
}

func TestJoinBrowser_Refused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#26")
	clausetest.Refuses(t, "poppy-0.1/5#26", "poppy-0.1/5#28", "poppy-0.1/5#29", "poppy-0.1/5#d7")
	eachJoinable(t, func(t *testing.T, r *rig) {
		id := r.open(t, nil).GetSessionId()
		for name, change := range map[string]func(*sessionsv1.JoinBrowserRequest){
			"unknown Session": func(q *sessionsv1.JoinBrowserRequest) { q.SessionId = "ses_x" },
			"no Session":      func(q *sessionsv1.JoinBrowserRequest) { q.SessionId = "" },
			"another client":  func(q *sessionsv1.JoinBrowserRequest) { q.ClientId = otherClient },
			"another User":    func(q *sessionsv1.JoinBrowserRequest) { q.UserId = otherUser },
		} {
			_, err := r.join(t, id, change)
			require.Error(t, err, name)
			requireReason(t, err, problem.InvalidSession)
		}
		once := r.once(replay.KindBrowserAssertion)
		same := func(q *sessionsv1.JoinBrowserRequest) { q.Once = once }
		got, err := r.join(t, id, same)
		require.NoError(t, err)
		_, err = r.join(t, id, same)
		requireReason(t, err, problem.InvalidRequest)
		require.NotNil(t, r.visit(t, got.GetCookie()), "the replay has changed nothing")
		_, err = r.join(t, id, func(q *sessionsv1.JoinBrowserRequest) { q.Once = nil })
		require.Error(t, err, "never without a jti")

		rule, err := r.admission.CreateAdmissionRule(r.company.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
			Parent: r.company.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{ClientId: clientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK},
		})
		require.NoError(t, err)
		require.NotEmpty(t, rule.GetName())
		_, err = r.join(t, id, nil)
		requireReason(t, err, problem.InvalidClient)
		require.Nil(t, r.visit(t, got.GetCookie()))
	})
}

func TestCheckBrowserSession_OfItsCompanyAlone(t *testing.T) {
	eachJoinable(t, func(t *testing.T, r *rig) {
		cookie := r.joined(t, r.open(t, nil).GetSessionId()).GetCookie()
		mine := r.company
		other := r.NewCompany(t)
		_, err := r.access.CheckBrowserSession(other.Ctx(t.Context()), &adminv1.CheckBrowserSessionRequest{
			Parent: mine.Scope.Name(), Visitor: &adminv1.CheckBrowserSessionRequest_Cookie{Cookie: cookie},
		})
		requireReason(t, err, problem.NotFoundReason)
		r.company = other
		_, err = r.access.CheckBrowserSession(other.Ctx(t.Context()), &adminv1.CheckBrowserSessionRequest{
			Parent: other.Scope.Name(), Visitor: &adminv1.CheckBrowserSessionRequest_Cookie{Cookie: cookie},
		})
		requireReason(t, err, problem.FailedPrecondition)
		r.joinable(other)
		require.Nil(t, r.visit(t, cookie))
	})
}

func TestCheckBrowserSession_FindsTheCookieInTheHeader(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#40")
	eachJoinable(t, func(t *testing.T, r *rig) {
		cookie := r.joined(t, r.open(t, nil).GetSessionId()).GetCookie()
		for header, found := range map[string]bool{
			"sb=" + cookie:               true,
			"a=b;sb=" + cookie + "; c=d": true,
			`sb="` + cookie + `"`:        true,
			"sb=old; sb=" + cookie:       true,
			"SB=" + cookie:               false,
			"xsb=" + cookie:              false,
			"sb=; a=" + cookie:           false,
			"sb=1;sb=2;sb=3;sb=4;sb=5;sb=6;sb=7;sb=8;sb=9": false,
			"\x00":    false,
			"nothing": false,
		} {
			got, err := r.access.CheckBrowserSession(r.company.Ctx(t.Context()), &adminv1.CheckBrowserSessionRequest{
				Parent: r.company.Scope.Name(), Visitor: &adminv1.CheckBrowserSessionRequest_CookieHeader{CookieHeader: header},
			})
			require.NoError(t, err)
			require.Equal(t, found, got.GetFound(), "%q", header)
			require.Equal(t, int32(1), got.GetCacheSeconds())
		}
	})
}

func TestJoinBrowser_KeepsTheHashAlone(t *testing.T) {
	eachJoinable(t, func(t *testing.T, r *rig) {
		cookie := r.joined(t, r.open(t, nil).GetSessionId()).GetCookie()
		kept := func() (ids []string) {
			require.NoError(t, r.DB.Read(t.Context(), r.company.Scope, func(ctx context.Context, tx *ent.Tx) (err error) {
				ids, err = tx.BrowserCookie.Query().IDs(ctx)
				return err
			}))
			return ids
		}
		require.Len(t, kept(), 1)
		require.NotContains(t, kept()[0], cookie)
		require.NotContains(t, cookie, kept()[0])
	})
}
