package browser_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func requireReason(t testing.TB, err error, reason problem.Reason) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, reason, problem.As(err).Reason, "%v", err)
}

func (r *rig) reject(t testing.TB, name string) (string, error) {
	t.Helper()
	got, err := r.logins.RejectLoginRequest(r.company.Ctx(t.Context()), &adminv1.RejectLoginRequestRequest{Name: name})
	return got.GetRedirectTo(), err
}

func (r *rig) about(t testing.TB, name string) error {
	t.Helper()
	_, err := r.logins.GetLoginRequest(r.company.Ctx(t.Context()), &adminv1.GetLoginRequestRequest{Name: name})
	return err
}

func TestLoginRequest_DecidedOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		b, p := r.begun(t)
		name := r.challenge(t, p)
		first, err := r.accept(t, name, account)
		require.NoError(t, err)
		again, err := r.accept(t, name, account)
		require.NoError(t, err)
		require.Equal(t, first, again)
		_, err = r.accept(t, name, "acc-2")
		requireReason(t, err, problem.FailedPrecondition)
		_, err = r.reject(t, name)
		requireReason(t, err, problem.FailedPrecondition)
		requireReason(t, r.about(t, name), problem.FailedPrecondition)

		require.NotEmpty(t, b.get(first).scopes())
		_, err = r.accept(t, name, account)
		requireReason(t, err, problem.FailedPrecondition)
		b.get(first).shows(t, http.StatusGone, "This sign-in is over") // the verifier is used up
	})
}

func TestLoginRequest_ParallelDecisionsHaveOneOutcome(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		b, p := r.begun(t)
		name := r.challenge(t, p)
		var accepted, rejected atomic.Int64
		var mu sync.Mutex
		ways := map[string]bool{}
		var done sync.WaitGroup
		for i := range 12 {
			done.Go(func() {
				var back string
				var err error
				if i%2 == 0 {
					if back, err = r.accept(t, name, account); err == nil {
						accepted.Add(1)
					}
				} else if back, err = r.reject(t, name); err == nil {
					rejected.Add(1)
				}
				if err == nil {
					mu.Lock()
					ways[back] = true
					mu.Unlock()
				}
			})
		}
		done.Wait()
		require.Len(t, ways, 1)
		require.NotEqual(t, accepted.Load() == 0, rejected.Load() == 0)
		for back := range ways {
			p = b.get(back)
		}
		require.Equal(t, accepted.Load() > 0, len(p.scopes()) > 0)
	})
}

func TestLoginRequest_Rejected(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		b, p := r.begun(t)
		page := p.url
		name := r.challenge(t, p)
		back, err := r.reject(t, name)
		require.NoError(t, err)
		again, err := r.reject(t, name)
		require.NoError(t, err)
		require.Equal(t, back, again)
		p = b.get(back)
		p.shows(t, http.StatusForbidden, "You weren’t signed in")

		// The User may try again, with a new challenge.
		next := r.challenge(t, b.get(page))
		require.NotEqual(t, name, next)
		requireReason(t, r.about(t, name), problem.NotFoundReason)
		back, err = r.accept(t, next, account)
		require.NoError(t, err)
		require.NotEmpty(t, b.get(back).scopes())
		r.refusedByAgent(t, b.post(b.get(page), "decline", nil), "access_denied")
	})
}

func TestLoginRequest_OnlyTheBrowserThatBegan(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		attacker, p := r.begun(t)
		page := p.url
		back, err := r.accept(t, r.challenge(t, p), account)
		require.NoError(t, err)

		// A User who was had to sign in for somebody else's browser takes the verifier with them.
		r.browser(t).get(back).shows(t, http.StatusForbidden, "Please use the same browser")
		resume, _, _ := strings.Cut(back, "?")
		for _, guess := range []string{"", "?login_verifier=", "?login_verifier=plv_guess", "?login_verifier=a&login_verifier=b"} {
			got := attacker.get(resume + guess)
			require.Contains(t, []int{http.StatusGone, http.StatusBadRequest}, got.status)
			require.Empty(t, got.scopes())
		}
		require.Empty(t, attacker.get(page).scopes()) // and the account that waited is forgotten
		attacker.get(back).shows(t, http.StatusGone, "This sign-in is over")
	})
}

func TestLoginRequest_NotFound(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		b, p := r.begun(t)
		name := r.challenge(t, p)
		_, challenge, _ := strings.Cut(name, "/loginRequests/")
		mine := r.company
		other := r.NewCompany(t)
		for _, wrong := range []string{
			name + "x", name[:len(name)-1], mine.Scope.Name() + "/loginRequests/x", mine.Scope.Name() + "/loginRequests/" + challenge[:30],
			other.Scope.Name() + "/loginRequests/" + challenge,
		} {
			requireReason(t, r.about(t, wrong), problem.NotFoundReason)
			_, err := r.accept(t, wrong, account)
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.reject(t, wrong)
			requireReason(t, err, problem.NotFoundReason)
		}
		r.company = other
		r.byHandoff()
		requireReason(t, r.about(t, other.Scope.Name()+"/loginRequests/"+challenge), problem.NotFoundReason)
		r.company = mine

		require.NoError(t, r.about(t, name))
		b.get(p.url) // asks for a new challenge
		requireReason(t, r.about(t, name), problem.NotFoundReason)
		name = r.challenge(t, b.get(p.url))
		r.Clock.Advance(15 * time.Minute)
		requireReason(t, r.about(t, name), problem.NotFoundReason)
		_, err := r.accept(t, name, account)
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestLoginRequest_OfADeviceSignIn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		deviceCode, userCode := r.device(t, both)
		b := r.browser(t)
		b.headers.Set("Accept-Language", "nl-NL, en;q=0.5")
		name := r.challenge(t, r.enter(b, userCode))
		got, err := r.logins.GetLoginRequest(r.company.Ctx(t.Context()), &adminv1.GetLoginRequestRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, "device", got.GetSignIn())
		require.Equal(t, "nl-NL", got.GetUiLocale())
		back, err := r.accept(t, name, account)
		require.NoError(t, err)
		p := b.get(back)
		require.Contains(t, p.body, userCode) // it was kept with the browser
		p = b.submit(p, "restart", nil)
		require.Equal(t, "login", p.target(t).Query().Get("prompt"))
		back, err = r.accept(t, r.challenge(t, p), "acc-2")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, b.submit(b.get(back), "approve", url.Values{"scope": {"poppy:read"}}).status)
		require.Equal(t, "acc-2", r.caller(t, r.poll(t, deviceCode)["access_token"]).GetAccount())
	})
}
