package sessions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Conversations decide by it whether an agent can have one (Poppy 3.3).
func TestVerify_ExtensionsAreThoseOfTheNewestToken(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.3#9")
	eachOffering(t, func(t *testing.T, r *rig) {
		lists := func(names ...string) func(*sessionsv1.OpenSessionRequest) {
			return func(q *sessionsv1.OpenSessionRequest) { q.Extensions = names }
		}
		exchangeLists := func(names ...string) func(*sessionsv1.ExchangeRequest) {
			return func(q *sessionsv1.ExchangeRequest) { q.Extensions = names }
		}
		opened := r.open(t, lists("a.example/x", "operations"))
		first := opened.GetAccessToken()
		sees := func() []string { return r.seesAs(t, first).GetExtensions() }
		require.Equal(t, []string{"a.example/x", "operations"}, sees())

		id := opened.GetSessionId()
		r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId, q.Extensions = id, []string{"renewed"} })
		require.Equal(t, []string{"renewed"}, sees(), "a renewal tells anew")

		_, err := r.exchange(t, id, byCode(r.code(t, nil)), exchangeLists("signed-in"))
		require.NoError(t, err)
		require.Equal(t, []string{"signed-in"}, sees())

		in, err := r.signInMediated(t, id, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"signed-in"}, sees(), "no document is read for a Mediated Sign-In")

		_, err = r.exchange(t, id, byAccountToken(in.GetRefreshToken(), ""), exchangeLists("refreshed"))
		require.NoError(t, err)
		require.Equal(t, []string{"refreshed"}, sees())
		other, err := r.exchange(t, "", byAccountToken(in.GetRefreshToken(), ""), exchangeLists("new"))
		require.NoError(t, err)
		require.Equal(t, []string{"new"}, r.seesAs(t, other.GetAccessToken()).GetExtensions())
		require.Equal(t, []string{"refreshed"}, sees())

		device := r.startDevice(t)
		require.NoError(t, r.decide(t, device.GetUserCode(), readOnly, mia))
		_, err = r.exchange(t, id, byDevice(device.GetDeviceCode()), exchangeLists("by-device"))
		require.NoError(t, err)
		require.Equal(t, []string{"by-device"}, sees())

		r.open(t, func(q *sessionsv1.OpenSessionRequest) {
			q.SessionId, q.Extensions = id, []string{"", "a b", "a\tb", "a\x00b", strings.Repeat("x", 257), "good"}
		})
		require.Equal(t, []string{"good"}, sees(), "what no Company can ask for")
		r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = id })
		require.Empty(t, sees())
	})
}

func TestVerify_SaysWhenTheTokenExpires(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		opened := r.open(t, nil)
		want := r.Clock.Now().Add(opened.GetExpiresIn().AsDuration())
		require.WithinDuration(t, want, r.seesAs(t, opened.GetAccessToken()).GetExpireTime().AsTime(), time.Millisecond)
	})
}

func TestVerify_SaysWhenTheGrantExpiresBeforeTheToken(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		r.offer(func(s *directoryv1.SignIn) { s.AccountTokenLifetime = durationpb.New(10 * time.Minute) })
		in := r.signIn(t, nil)
		grant := r.connections(t)[0].GetExpireTime().AsTime()
		require.Less(t, grant.Sub(r.Clock.Now()), in.GetExpiresIn().AsDuration())
		require.WithinDuration(t, grant, r.seesAs(t, in.GetAccessToken()).GetExpireTime().AsTime(), time.Millisecond)
	})
}
