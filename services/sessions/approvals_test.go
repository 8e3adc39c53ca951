package sessions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Whoever takes access back takes back, too, what was approved and not yet exchanged.
func TestDisconnect_EndsWhatWasApprovedAndNotExchanged(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.9#17", "poppy-0.1/4.9#18")
	eachOffering(t, func(t *testing.T, r *rig) {
		parent := r.company.Scope.Name()
		for name, end := range map[string]func() error{
			"by the User": func() error {
				_, err := r.pages.Disconnect(r.company.Ctx(t.Context()), &sessionsv1.DisconnectRequest{AccountId: mia})
				return err
			},
			"by the Company": func() error {
				_, err := r.agents.DisconnectAccount(r.company.Ctx(t.Context()), &adminv1.DisconnectAccountRequest{Parent: parent, Account: mia})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				session := r.open(t, nil).GetSessionId()
				code, d := r.code(t, nil), r.startDevice(t)
				require.NoError(t, r.decide(t, d.GetUserCode(), readOnly, mia))
				require.NoError(t, end())
				_, err := r.exchange(t, session, byCode(code), nil)
				requireReason(t, err, problem.InvalidGrant)
				_, err = r.exchange(t, session, byDevice(d.GetDeviceCode()), nil)
				requireReason(t, err, problem.AccessDenied)
				// What is approved after that counts.
				_, err = r.exchange(t, session, byCode(r.code(t, nil)), nil)
				require.NoError(t, err)
			})
		}
	})
}
