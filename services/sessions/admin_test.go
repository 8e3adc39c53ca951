package sessions_test

import (
	"encoding/base64"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestUpdateAdmission(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx, name := r.company.Ctx(t.Context()), r.company.Scope.Name()+"/admission"
		got, err := r.admission.GetAdmission(ctx, &adminv1.GetAdmissionRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, adminv1.AdmissionMode_ADMISSION_MODE_OPEN, got.GetMode())
		require.NotEmpty(t, got.GetEtag())
		require.Nil(t, got.GetUpdateTime())

		update := func(a *adminv1.Admission, paths ...string) (*adminv1.Admission, error) {
			a.Name = name
			q := &adminv1.UpdateAdmissionRequest{Admission: a}
			if paths != nil {
				q.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
			}
			return r.admission.UpdateAdmission(ctx, q)
		}
		nonce, err := update(&adminv1.Admission{RequireDpopNonce: true, Etag: got.GetEtag()})
		require.NoError(t, err)
		require.True(t, nonce.GetRequireDpopNonce())
		require.Equal(t, adminv1.AdmissionMode_ADMISSION_MODE_OPEN, nonce.GetMode())
		require.Equal(t, r.Clock.Now(), nonce.GetUpdateTime().AsTime())
		require.NotEqual(t, got.GetEtag(), nonce.GetEtag())

		_, err = update(&adminv1.Admission{RequireDpopNonce: false, Etag: got.GetEtag()}, "require_dpop_nonce")
		requireReason(t, err, problem.EtagMismatch)
		listed, err := update(&adminv1.Admission{Mode: adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST}, "mode", "name", "etag")
		require.NoError(t, err)
		require.True(t, listed.GetRequireDpopNonce())
		off, err := update(&adminv1.Admission{}, "require_dpop_nonce")
		require.NoError(t, err)
		require.False(t, off.GetRequireDpopNonce())
		require.Equal(t, adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST, off.GetMode())
		all, err := update(&adminv1.Admission{Mode: adminv1.AdmissionMode_ADMISSION_MODE_BLOCKLIST, RequireDpopNonce: true}, "*")
		require.NoError(t, err)
		require.True(t, all.GetRequireDpopNonce())

		_, err = update(&adminv1.Admission{}, "mode")
		requireReason(t, err, problem.InvalidRequest)
		_, err = update(&adminv1.Admission{}, "modes")
		requireReason(t, err, problem.InvalidRequest)
		require.Contains(t, problem.As(err).Fields[0].Detail, "modes")
		for _, foreign := range []string{r.NewCompany(t).Scope.Name() + "/admission", name + "x", "", r.company.Scope.Name()} {
			_, err = r.admission.UpdateAdmission(ctx, &adminv1.UpdateAdmissionRequest{Admission: &adminv1.Admission{Name: foreign, RequireDpopNonce: true}})
			requireReason(t, err, problem.NotFoundReason)
		}
		_, err = r.admission.GetAdmission(t.Context(), &adminv1.GetAdmissionRequest{Name: name})
		requireReason(t, err, problem.ServerError) // a call without a Company is nobody's
	})
}

func TestAdmissionRules(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		create := func(a *adminv1.AdmissionRule) (*adminv1.AdmissionRule, error) {
			return r.admission.CreateAdmissionRule(ctx, &adminv1.CreateAdmissionRuleRequest{Parent: parent, AdmissionRule: a})
		}
		var names []string
		for i := range 5 {
			made, err := create(&adminv1.AdmissionRule{ClientId: "https://agent" + strconv.Itoa(i) + ".example/a", Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK, Reason: "spam"})
			require.NoError(t, err)
			names = append(names, made.GetName())
		}
		replaced, err := create(&adminv1.AdmissionRule{
			ClientId: "https://agent0.example/a", Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW, ExpireTime: timestamppb.New(r.Clock.Now().Add(time.Hour)),
		})
		require.NoError(t, err)
		require.Equal(t, names[0], replaced.GetName())
		require.Empty(t, replaced.GetReason())

		var got []string
		list := &adminv1.ListAdmissionRulesRequest{Parent: parent, PageSize: 2}
		for {
			page, err := r.admission.ListAdmissionRules(ctx, list)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.GetAdmissionRules()), 2)
			for _, rule := range page.GetAdmissionRules() {
				got = append(got, rule.GetName())
			}
			if list.PageToken = page.GetNextPageToken(); list.GetPageToken() == "" {
				break
			}
		}
		require.Equal(t, names, got)

		for field, bad := range map[string]*adminv1.AdmissionRule{
			"admission_rule.client_id":   {ClientId: "http://agent.example/a", Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK},
			"admission_rule.effect":      {ClientId: "https://agent.example/a"},
			"admission_rule.reason":      {ClientId: "https://agent.example/a", Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK, Reason: "a\x00b"},
			"admission_rule.expire_time": {ClientId: "https://agent.example/a", Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK, ExpireTime: timestamppb.New(r.Clock.Now())},
		} {
			_, err := create(bad)
			requireReason(t, err, problem.InvalidRequest)
			require.Equal(t, field, problem.As(err).Fields[0].Path)
		}
		other := r.NewCompany(t)
		_, err = r.admission.DeleteAdmissionRule(other.Ctx(t.Context()), &adminv1.DeleteAdmissionRuleRequest{Name: names[0]})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.admission.CreateAdmissionRule(other.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{Parent: parent, AdmissionRule: replaced})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.admission.ListAdmissionRules(other.Ctx(t.Context()), &adminv1.ListAdmissionRulesRequest{Parent: parent})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.admission.DeleteAdmissionRule(ctx, &adminv1.DeleteAdmissionRuleRequest{Name: names[0]})
		require.NoError(t, err)
		_, err = r.admission.DeleteAdmissionRule(ctx, &adminv1.DeleteAdmissionRuleRequest{Name: names[0]})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestListSessions(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		var made []string
		for range 5 {
			made = append(made, r.sessionName(r.open(t, nil).GetSessionId()))
		}
		var got []string
		list := &adminv1.ListSessionsRequest{Parent: parent, PageSize: 2}
		tokens := []string{}
		for {
			page, err := r.admin.ListSessions(ctx, list)
			require.NoError(t, err)
			for _, s := range page.GetSessions() {
				got = append(got, s.GetName())
				require.Equal(t, adminv1.SessionState_SESSION_STATE_ACTIVE, s.GetState())
			}
			if list.PageToken = page.GetNextPageToken(); list.GetPageToken() == "" {
				break
			}
			tokens = append(tokens, list.GetPageToken())
		}
		require.Len(t, got, 5)
		for i := range made {
			require.Equal(t, made[len(made)-1-i], got[i])
		}
		other := r.NewCompany(t)
		rules, err := r.admission.ListAdmissionRules(ctx, &adminv1.ListAdmissionRulesRequest{Parent: parent, PageToken: tokens[0]})
		requireReason(t, err, problem.InvalidRequest)
		require.Nil(t, rules)
		garbled := base64.RawURLEncoding.EncodeToString([]byte("sessions\n" + parent + "\nx\ny"))
		for _, token := range []string{"x", "!", tokens[0] + "A", tokens[0] + "AA", garbled} {
			_, err = r.admin.ListSessions(ctx, &adminv1.ListSessionsRequest{Parent: parent, PageToken: token})
			requireReason(t, err, problem.InvalidRequest)
			require.Equal(t, "page_token", problem.As(err).Fields[0].Path)
		}
		_, err = r.admin.ListSessions(other.Ctx(t.Context()), &adminv1.ListSessionsRequest{Parent: other.Scope.Name(), PageToken: tokens[0]})
		requireReason(t, err, problem.InvalidRequest)
		_, err = r.admin.ListSessions(other.Ctx(t.Context()), &adminv1.ListSessionsRequest{Parent: parent})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestEndSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#42", "poppy-0.1/4.2#43")
	each(t, func(t *testing.T, r *rig) {
		hub, err := bus.NewHub(r.Bus, bus.AllSessions)
		require.NoError(t, err)
		t.Cleanup(hub.Close)
		opened := r.open(t, nil)
		ctx, name := r.company.Ctx(t.Context()), r.sessionName(opened.GetSessionId())
		subject, err := bus.SessionSubject(r.company.Scope.CompanyID(), opened.GetSessionId())
		require.NoError(t, err)
		rung, cancel := hub.Listen(subject)
		defer cancel()

		_, err = r.admin.EndSession(r.NewCompany(t).Ctx(t.Context()), &adminv1.EndSessionRequest{Name: name})
		requireReason(t, err, problem.NotFoundReason)
		_, err = r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: r.sessionName("ses_unknown")})
		requireReason(t, err, problem.NotFoundReason)
		for _, odd := range []string{"ses_\x00", "SES", "ses_%", "-"} {
			_, err = r.admin.GetSession(ctx, &adminv1.GetSessionRequest{Name: r.sessionName(odd)})
			requireReason(t, err, problem.NotFoundReason)
		}
		first, err := r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, adminv1.SessionState_SESSION_STATE_ENDED, first.GetState())
		require.Equal(t, r.Clock.Now(), first.GetEndTime().AsTime())
		select {
		case <-rung:
		case <-time.After(10 * time.Second):
			require.Fail(t, "nobody rang")
		}
		r.Clock.Advance(time.Second)
		again, err := r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, first.GetEndTime().AsTime(), again.GetEndTime().AsTime())

		_, err = r.tryOpen(t, r.company, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = opened.GetSessionId() })
		requireReason(t, err, problem.InvalidSession)

		idle := r.sessionName(r.open(t, nil).GetSessionId())
		r.Clock.Advance(7*24*time.Hour + 2*time.Minute)
		s, err := r.admin.GetSession(ctx, &adminv1.GetSessionRequest{Name: idle})
		require.NoError(t, err)
		require.Equal(t, adminv1.SessionState_SESSION_STATE_ENDED, s.GetState())
		require.NotNil(t, s.GetEndTime())
	})
}

// An admission change and a revoked token ring too.
func TestDoorbells(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		companies, err := bus.NewHub(r.Bus, bus.AllCompanies)
		require.NoError(t, err)
		t.Cleanup(companies.Close)
		subject, err := bus.CompanySubject(r.company.Scope.CompanyID())
		require.NoError(t, err)
		rung, cancel := companies.Listen(subject)
		defer cancel()
		_, err = r.admission.CreateAdmissionRule(r.company.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
			Parent: r.company.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{ClientId: clientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW},
		})
		require.NoError(t, err)
		select {
		case <-rung:
		case <-time.After(10 * time.Second):
			require.Fail(t, "nobody rang")
		}
		opened := r.open(t, nil)
		sessions, err := bus.NewHub(r.Bus, bus.AllSessions)
		require.NoError(t, err)
		t.Cleanup(sessions.Close)
		subject, err = bus.SessionSubject(r.company.Scope.CompanyID(), opened.GetSessionId())
		require.NoError(t, err)
		rung, cancel2 := sessions.Listen(subject)
		defer cancel2()
		_, err = r.api.RevokeToken(r.company.Ctx(t.Context()), &sessionsv1.RevokeTokenRequest{ClientId: clientID, Token: opened.GetAccessToken()})
		require.NoError(t, err)
		select {
		case <-rung:
		case <-time.After(10 * time.Second):
			require.Fail(t, "nobody rang")
		}
	})
}

func TestOpenSession_OtherCallers(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, err := r.api.OpenSession(t.Context(), &sessionsv1.OpenSessionRequest{})
		requireReason(t, err, problem.ServerError)
		// A caller can't have a proof claimed under another name.
		_, err = r.api.ClaimOnce(r.company.Ctx(t.Context()), &sessionsv1.ClaimOnceRequest{Once: []*sessionsv1.OnceKey{{Kind: "other", Jti: fixture.RandomID()}}})
		requireReason(t, err, problem.ServerError)
		r.company.Snapshot.Active = false
		r.Changed(r.company)
		_, err = r.tryOpen(t, r.company, nil)
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestReady(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.service.Ready(t.Context()))
		r.Bus.Close()
		require.Error(t, r.service.Ready(t.Context()))
	})
}
