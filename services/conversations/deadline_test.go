package conversations_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func durationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

const notice = "company: The company's agent did not answer in time. If its answer still comes, it will be added to this conversation."

// next reads until there is an event after the cursor.
func (u *user) next(t testing.TB, after answer) answer {
	t.Helper()
	got := u.read(t, after.ConversationID, "?wait=20&cursor="+after.Cursor)
	require.NotEmpty(t, got.Events)
	return got
}

func TestDeadline_TheAgentIsToldAndTheLateAnswerStillComes(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d25", "poppy-0.1/7.7#11", "poppy-0.1/7.7#15")
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			return says("sorry, here I am"), nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		before := u.read(t, id, "")
		in.Clock.Advance(59 * time.Second)
		require.Empty(t, u.read(t, id, "?wait=1&cursor="+before.Cursor).Events)
		in.Clock.Advance(time.Second)
		told := u.next(t, before)
		require.Equal(t, []string{notice, "=idle"}, told.told())
		require.Equal(t, "idle", told.State)
		require.Equal(t, "deadline", in.deliveries(t, id)[0].AgentOutcome)
		close(release)
		late := u.next(t, told)
		require.Equal(t, []string{"company: sorry, here I am"}, late.told())
		require.Equal(t, "idle", late.State)
	})
}

func TestDeadline_RetriesAfterItAreLate(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d25")
		in.backend.always(fails)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "it failed")
		require.False(t, in.backend.webhooks()[0].late)
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "idle" }, "the agent is told")
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 2 }, "it failed again")
		in.backend.always(unwanted)
		in.Clock.Advance(10 * time.Minute)
		eventually(t, func() bool { return in.deliveries(t, id)[0].State == "expired" }, "the Company wants no late ones")
		hooks := in.backend.webhooks()
		require.True(t, hooks[len(hooks)-1].late)
		require.Equal(t, []string{"user: hello", "=working", notice, "=idle"}, u.read(t, id, "").told())
		// The conversation goes on.
		in.backend.always(says("ok"))
		require.Equal(t, "idle", u.send(t, id, "?wait=20&cursor="+u.read(t, id, "").Cursor, text("msg_2", "again")).State)
	})
}

func TestDeadline_OneNoticeWhileOtherTurnsWait(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d25")
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		in.backend.await(t, 1)
		in.Clock.Advance(30 * time.Second)
		u.send(t, id, "", text("msg_2", "two"))
		before := u.read(t, id, "")
		in.Clock.Advance(30 * time.Second)
		first := u.next(t, before)
		require.Equal(t, []string{notice}, first.told())
		require.Equal(t, "working", first.State, "the second turn still has time")
		in.Clock.Advance(30 * time.Second)
		second := u.next(t, first)
		require.Equal(t, []string{notice, "=idle"}, second.told())
	})
}

func TestDeadline_MoreStartsItAnew(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		eventually(t, func() bool { return in.delivered(t, id) }, "taken over")
		in.Clock.Advance(50 * time.Second)
		in.post(t, id, true, &adminv1.Message{Text: "let me look"})
		before := u.read(t, id, "")
		in.Clock.Advance(50 * time.Second)
		require.Empty(t, u.read(t, id, "?wait=1&cursor="+before.Cursor).Events)
		in.Clock.Advance(10 * time.Second)
		require.Equal(t, []string{notice, "=idle"}, u.next(t, before).told())
	})
}

func TestDeadline_AnExhaustedScheduleEndsTheTurn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.company.Snapshot.AnswerDeadline = durationOf(1000 * time.Hour)
		in.Changed(in.company)
		in.backend.always(fails)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		for n := 1; in.deliveries(t, id)[0].State == "pending"; n++ {
			eventually(t, func() bool { d := in.deliveries(t, id)[0]; return d.Attempts >= n }, "an attempt is recorded")
			in.Clock.Advance(25 * time.Hour)
		}
		require.Equal(t, []string{"user: hello", "=working", notice, "=idle"}, u.read(t, id, "").told())
		require.Equal(t, 11, in.deliveries(t, id)[0].Attempts)
	})
}

func TestInactivity_ClosesIdleConversations(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#5", "poppy-0.1/7.12#2")
		in.company.Snapshot.ConversationIdleLifetime = durationOf(time.Hour)
		in.Changed(in.company)
		u := in.user("usr_1")
		old := u.start(t, "msg_1", "hello")
		in.Clock.Advance(40 * time.Minute)
		young := u.start(t, "msg_2", "hello")
		in.Clock.Advance(21 * time.Minute)
		require.Equal(t, []string{"=closed"}, u.next(t, old).told())
		require.Equal(t, "inactivity", in.get(t, old.ConversationID).GetClosedBy())
		require.Equal(t, "idle", in.get(t, young.ConversationID).GetStatus())
	})
}

func TestCU03_PrunedEvents(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#17", "poppy-0.1/7.5#28", "poppy-0.1/7.3#12", "poppy-0.1/7.12#7")
		clausetest.Refuses(t, "poppy-0.1/7.5#29", "poppy-0.1/7.13#12", "poppy-0.1/7.13#13", "poppy-0.1/7.13#d19", "poppy-0.1/7.3#11")
		in.company.Snapshot.EventRetention = durationOf(time.Hour)
		in.Changed(in.company)
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "secret plan")
		in.Clock.Advance(50 * time.Minute)
		second := u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "later"))
		in.Clock.Advance(11 * time.Minute)
		eventually(t, func() bool { return len(in.events(t, first.ConversationID)) == 4 }, "the old events are gone")
		for _, e := range first.Events[:3] {
			got := u.read(t, first.ConversationID, "?cursor="+e.ID)
			require.Equal(t, http.StatusGone, got.Status)
			require.Equal(t, "cursor_expired", got.Error)
			posted := u.send(t, first.ConversationID, "?wait=1&cursor="+e.ID, text("msg_3", "x"))
			require.Equal(t, http.StatusGone, posted.Status)
		}
		// The cursor right before the oldest kept event misses nothing.
		require.Equal(t, second.Events, u.read(t, first.ConversationID, "?cursor="+first.Cursor).Events)
		require.Equal(t, second.Events, u.read(t, first.ConversationID, "").Events)
		// What retries are recognised by is kept.
		again := u.do(t, http.MethodPost, endpoint, text("msg_1", "secret plan"))
		require.Equal(t, http.StatusCreated, again.Status)
		require.Equal(t, first.ConversationID, again.ConversationID)
		require.Equal(t, http.StatusConflict, u.do(t, http.MethodPost, endpoint, text("msg_1", "other")).Status)
		// With everything pruned there is still a cursor.
		in.Clock.Advance(2 * time.Hour)
		eventually(t, func() bool { return len(in.events(t, first.ConversationID)) == 0 }, "all events are gone")
		empty := u.read(t, first.ConversationID, "")
		require.Empty(t, empty.Events)
		require.Equal(t, second.Cursor, empty.Cursor)
		waited := u.do(t, http.MethodPost, endpoint+"?wait=0", text("msg_1", "secret plan"))
		require.Equal(t, http.StatusCreated, waited.Status)
	})
}

func TestPrune_KeepsWhatIsBeingDelivered(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.company.Snapshot.EventRetention = durationOf(time.Minute)
		in.Changed(in.company)
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { <-release; return says("ok"), nil })
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		for range 20 {
			in.Clock.Advance(4 * time.Second)
			now := in.Clock.Now()
			eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseUntil.Equal(now.Add(5 * time.Second)) }, "the lease is renewed")
		}
		require.Equal(t, "hello", in.events(t, id)[0].GetMessage().GetText())
		close(release)
		eventually(t, func() bool { return in.delivered(t, id) }, "it is delivered")
	})
}

func TestPrune_GivesUpWhatWaitsForLongerThanTheRetention(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.company.Snapshot.EventRetention = durationOf(10 * time.Minute)
		in.Changed(in.company)
		in.backend.always(disabled)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		u.send(t, id, "", text("msg_2", "more"))
		in.backend.await(t, 1)
		eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseOwner == "" }, "it is put off")
		in.Clock.Advance(9 * time.Minute)
		u.send(t, id, "", text("msg_3", "young"))
		in.backend.always(says("ok"))
		in.Clock.Advance(2 * time.Minute)
		eventually(t, func() bool { return len(in.backend.webhooks()) > 0 && in.told(t, id, "young") }, "what is younger goes out")
		eventually(t, func() bool {
			for _, e := range in.events(t, id) {
				if m := e.GetMessage(); m.GetText() == "hello" || m.GetText() == "more" {
					return false
				}
			}
			return true
		}, "the old messages are gone")
		require.Equal(t, "closed", u.close(t, id).State)
	})
}
