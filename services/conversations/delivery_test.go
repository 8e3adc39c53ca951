package conversations_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

func (in *installation) deliveries(t testing.TB, id string) []*ent.Delivery {
	t.Helper()
	var rows []*ent.Delivery
	err := in.DB.Read(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		rows, err = tx.Delivery.Query().Where(entdelivery.ConversationID(id)).Order(entdelivery.BySequence()).All(ctx)
		return err
	})
	require.NoError(t, err)
	return rows
}

func (in *installation) delivered(t testing.TB, id string) bool {
	t.Helper()
	for _, d := range in.deliveries(t, id) {
		if d.State != entdelivery.StateDelivered {
			return false
		}
	}
	return true
}

// posted starts a conversation without waiting for its reply.
func (u *user) posted(t testing.TB, id, s string) string {
	t.Helper()
	got := u.do(t, http.MethodPost, endpoint, text(id, s))
	require.Equal(t, http.StatusCreated, got.Status, got.Raw)
	return got.ConversationID
}

func TestDelivery_SaysWhatTheContractSays(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		w := in.backend.webhooks()[0]
		require.Equal(t, "conversation.message", w.Type)
		require.Equal(t, in.company.Scope.Name(), w.Data.Company)
		require.Equal(t, got.ConversationID, w.Data.Conversation.ID)
		require.Equal(t, "working", w.Data.Conversation.Status)
		require.Equal(t, int64(1), w.Data.Sequence)
		require.Equal(t, "hello", w.Data.Message.Text)
		require.Equal(t, agentID, w.Data.Agent.ClientID)
		require.Equal(t, "Example Agent", w.Data.Agent.Name)
		require.Equal(t, u.session.GetSessionId(), w.Data.Session.ID)
		require.False(t, w.Data.Session.SignedIn)
		require.True(t, w.Data.Expected.Reply)
		by, err := time.Parse(time.RFC3339, *w.Data.Expected.ReplyBy)
		require.NoError(t, err)
		require.WithinDuration(t, in.Clock.Now().Add(time.Minute), by, time.Second)
		d := in.deliveries(t, got.ConversationID)[0]
		require.Equal(t, d.ID, w.id)
		require.Equal(t, "answered", d.AgentOutcome)
		require.Equal(t, 200, d.LastStatus)
	})
}

func TestDelivery_NothingToSay(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d45", "poppy-0.1/7.7#11")
		in.backend.always(says())
		got := in.user("usr_1").start(t, "msg_1", "hello")
		require.Equal(t, []string{"user: hello", "=working", "=idle"}, got.told())
		require.Equal(t, "silent", in.deliveries(t, got.ConversationID)[0].AgentOutcome)
	})
}

func TestDelivery_PersonAtTheCompany(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#15", "poppy-0.1/7.7#16", "poppy-0.1/7.8#4", "poppy-0.1/7.7#2")
		r := says("first", "second")
		r.Messages[1].Sender = "human"
		in.backend.always(r)
		got := in.user("usr_1").start(t, "msg_1", "hello")
		require.Equal(t, "agent", got.Events[2].Message.Sender)
		require.Equal(t, "human", got.Events[3].Message.Sender)
		require.Equal(t, "company", got.Events[3].Message.Role)
	})
}

func TestDelivery_RetriesSendTheSameBytes(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		calls := 0
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			if calls++; calls < 4 {
				return fails, nil
			}
			return says("at last"), nil
		})
		u := in.user("usr_1")
		got := u.do(t, http.MethodPost, endpoint, `{"message":{"id":"msg_1","sender":"agent","text":"hi","data":{"b":1.0,"a":1e2},"context":{"zz":1.0,"a":{"z":1,"b":12345678901234567890},"locale":"de"}}}`)
		for n := 1; n <= 3; n++ {
			in.backend.await(t, n)
			eventually(t, func() bool { return in.deliveries(t, got.ConversationID)[0].Attempts == n }, "the attempt is recorded")
			in.Clock.Advance(6 * time.Minute)
		}
		read := u.read(t, got.ConversationID, "")
		for len(read.Events) < 4 || read.Events[len(read.Events)-1].Message == nil || read.Events[len(read.Events)-1].Message.Text != "at last" {
			read = u.read(t, got.ConversationID, "")
		}
		hooks := in.backend.webhooks()
		require.Len(t, hooks, 4)
		for _, w := range hooks {
			require.Equal(t, hooks[0].id, w.id)
			require.Equal(t, hooks[0].raw, w.raw)
		}
	})
}

func TestDelivery_OrderedWithinAConversation(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		gate := make(chan *relayv1.DeliverResponse)
		in.backend.answers(func(ctx context.Context, _ webhook) (*relayv1.DeliverResponse, error) {
			select {
			case r := <-gate:
				return r, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		u.send(t, id, "", text("msg_2", "two"))
		u.send(t, id, "", text("msg_3", "three"))
		other := u.posted(t, "msg_4", "other")
		require.ElementsMatch(t, []string{"one", "other"}, []string{in.backend.await(t, 2)[0].Data.Message.Text, in.backend.await(t, 2)[1].Data.Message.Text})
		gate <- says("ok")
		gate <- says("ok")
		in.backend.await(t, 3)
		gate <- says("ok")
		in.backend.await(t, 4)
		gate <- says("ok")
		eventually(t, func() bool { return in.delivered(t, id) && in.delivered(t, other) }, "all are delivered")
		var order []string
		for _, w := range in.backend.webhooks() {
			if w.Data.Conversation.ID == id {
				order = append(order, w.Data.Message.Text)
			}
		}
		require.Equal(t, []string{"one", "two", "three"}, order)
		read := u.read(t, id, "")
		require.Equal(t, []string{"user: one", "=working", "user: two", "user: three", "company: ok", "company: ok", "company: ok", "=idle"}, read.told())
	})
}

func TestDelivery_FailedHeadHoldsTheConversationsOthersBack(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if len(in.backend.webhooks()) < 3 {
				return fails, nil
			}
			return says("re: " + w.Data.Message.Text), nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		in.backend.await(t, 1)
		u.send(t, id, "", text("msg_2", "two"))
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "first attempt")
		in.Clock.Advance(2 * time.Second)
		in.backend.await(t, 2)
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 2 }, "second attempt")
		in.Clock.Advance(10 * time.Second)
		eventually(t, func() bool { return in.delivered(t, id) }, "both are delivered")
		hooks := in.backend.webhooks()
		require.Len(t, hooks, 4)
		require.Equal(t, "two", hooks[3].Data.Message.Text)
		require.Equal(t, []string{"user: one", "=working", "user: two", "company: re: one", "company: re: two", "=idle"}, u.read(t, id, "").told())
	})
}

func TestDelivery_RetryAfterIsHonoured(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		r := ends(relayv1.DeliverOutcome_DELIVER_OUTCOME_RETRY, 429, "throttled with status 429")
		r.RetryAfter = durationOf(90 * time.Second)
		in.backend.always(r)
		id := in.user("usr_1").posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "the attempt is recorded")
		require.Equal(t, in.Clock.Now().Add(90*time.Second), in.deliveries(t, id)[0].NextAttemptAt.UTC())
	})
}

func TestDelivery_ADisabledBackendCostsNoAttempt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(disabled)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		for n := 1; n <= 14; n++ { // longer than any schedule
			in.backend.await(t, n)
			eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseOwner == "" }, "it is put off")
			in.Clock.Advance(31 * time.Second)
		}
		require.Zero(t, in.deliveries(t, id)[0].Attempts)
		in.backend.always(says("welcome back"))
		in.Clock.Advance(31 * time.Second)
		eventually(t, func() bool { return in.delivered(t, id) }, "the enabled backend gets it")
	})
}

func TestDelivery_GarbageFromTheRelayIsARetry(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		bad := says("fine")
		bad.Messages = append(bad.Messages, &relayv1.AnswerMessage{Sender: "user", Text: "not fine"})
		in.backend.always(bad)
		id := in.user("usr_1").posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "the attempt is recorded")
		require.Equal(t, "answer breaks the contract", in.deliveries(t, id)[0].LastReason)
		require.Len(t, in.events(t, id), 2, "half an answer is none")
	})
}

func TestDelivery_AnUnreachableRelayCostsNoAttempt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "down")
		})
		id := in.user("usr_1").posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].LastReason == "relay not reached" }, "it is put off")
		require.Zero(t, in.deliveries(t, id)[0].Attempts)
		in.backend.always(says("ok"))
		in.Clock.Advance(3 * time.Second)
		eventually(t, func() bool { return in.delivered(t, id) }, "it is delivered")
	})
}

func TestDelivery_AnswerAfterTheCloseIsRefused(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.12#d24")
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			return says("too late"), nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		u.close(t, id)
		close(release)
		eventually(t, func() bool { return in.delivered(t, id) }, "it is done")
		require.Equal(t, "refused", in.deliveries(t, id)[0].AgentOutcome)
		read := u.read(t, id, "")
		require.Equal(t, []string{"user: hello", "=working", "=closed"}, read.told())
		require.Equal(t, "closed", read.State)
	})
}

func TestDelivery_SecondAnswerOfARedeliveredWebhookIsDropped(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		first := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			if len(in.backend.webhooks()) == 1 {
				<-first
				return says("from the first"), nil
			}
			return says("from the second"), nil
		})
		start(t, in.replica(t, dispatch.Config{}))
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		in.orphan(t, id) // as if the process had been away for longer than its lease: the other one goes on
		eventually(t, func() bool { return in.delivered(t, id) }, "the second attempt is done")
		close(first)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the first attempt is over")
		require.Equal(t, []string{"user: hello", "=working", "company: from the second", "=idle"}, u.read(t, id, "").told())
	})
}

// orphan leaves the leases of a conversation's deliveries to nobody, and due.
func (in *installation) orphan(t testing.TB, id string) {
	t.Helper()
	err := in.DB.Write(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Delivery.Update().Where(entdelivery.ConversationID(id), entdelivery.StateEQ(entdelivery.StatePending)).
			SetLeaseOwner("dsp_dead").SetLeaseUntil(in.Clock.Now().Add(-time.Second)).SetNextAttemptAt(in.Clock.Now().Add(-time.Second)).Exec(ctx)
	})
	require.NoError(t, err)
}

func TestDelivery_TakenOverWhenAProcessDies(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		// Renewal of the first process is as good as dead: its leases run out.
		dead := in.replica(t, dispatch.Config{Renew: time.Hour, Sweep: time.Hour})
		start(t, dead)
		_, address := in.serveWeb(t, dead)
		in.backend.answers(func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if len(in.backend.webhooks()) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return says("echo: " + w.Data.Message.Text), nil
		})
		u := in.user("usr_1")
		u.address = address
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		u.send(t, id, "", text("msg_2", "more"))
		in.Clock.Advance(4 * time.Second)
		require.Len(t, in.backend.webhooks(), 1, "the lease still runs")
		in.Clock.Advance(2 * time.Second)
		eventually(t, func() bool { return in.delivered(t, id) }, "another process delivers")
		hooks := in.backend.webhooks()
		require.Len(t, hooks, 3)
		require.Equal(t, hooks[0].id, hooks[1].id)
		require.Equal(t, hooks[0].raw, hooks[1].raw)
		require.Equal(t, []string{"user: hello", "=working", "user: more", "company: echo: hello", "company: echo: more", "=idle"}, u.read(t, id, "").told())
	})
}

func TestDelivery_LeasesOfLongAttemptsAreRenewed(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { <-release; return says("slow"), nil })
		start(t, in.replica(t, dispatch.Config{}))
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		for range 5 {
			in.Clock.Advance(4 * time.Second)
			now := in.Clock.Now()
			eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseUntil.Equal(now.Add(5 * time.Second)) }, "the lease is renewed")
		}
		close(release)
		eventually(t, func() bool { return in.delivered(t, id) }, "it is delivered")
		require.Len(t, in.backend.webhooks(), 1)
	})
}

func TestDelivery_AHangingCompanyDelaysNobodyElse(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		slow := in.company
		hang := make(chan struct{})
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.company == slow.Scope.CompanyID() {
				<-hang
			}
			return says("ok"), nil
		})
		u := in.user("usr_1")
		const n = 80
		ids := make([]string, n)
		for i := range n {
			ids[i] = u.posted(t, fmt.Sprintf("msg_%d", i), "hello")
		}
		in.backend.await(t, 64)
		require.Equal(t, 64, in.service.InFlight())
		quick := in.userOf(in.newCompany(t), agentID, "usr_1")
		for i := range 20 {
			require.Equal(t, "idle", quick.start(t, fmt.Sprintf("msg_%d", i), "hello").State)
		}
		close(hang)
		for _, id := range ids {
			eventually(t, func() bool { return in.delivered(t, id) }, "the hung ones are delivered")
		}
		require.Len(t, in.backend.webhooks(), n+20)
	})
}

func TestWH06_NothingIsLostWhileNATSIsAway(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		other := in.replica(t, dispatch.Config{})
		start(t, other)
		_, address := in.serveWeb(t, other)
		in.Bus.Close()
		u := in.user("usr_1")
		for i := range 20 {
			got := u.start(t, fmt.Sprintf("msg_%d", i), "hello")
			require.Equal(t, []string{"user: hello", "=working", "company: echo: hello", "=idle"}, got.told())
		}
		// A change that another process makes is seen without a doorbell too.
		id := u.start(t, "msg_a", "hello")
		far := u.again()
		far.address = address
		answers := make(chan answer, 1)
		go func() {
			got, err := far.try(t.Context(), http.MethodGet, endpoint+"/"+id.ConversationID+"/events?wait=30&cursor="+id.Cursor, "")
			if err == nil {
				answers <- got
			}
		}()
		eventually(t, func() bool { return other.Waiting() == 1 }, "the far read waits")
		in.post(t, id.ConversationID, false, &adminv1.Message{Text: "news"})
		require.Equal(t, []string{"company: news"}, (<-answers).told())
	})
}

func TestStop_GivesLeasesBack(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		first := in.replica(t, dispatch.Config{})
		start(t, first)
		_, address := in.serveWeb(t, first)
		in.backend.answers(func(ctx context.Context, _ webhook) (*relayv1.DeliverResponse, error) {
			if len(in.backend.webhooks()) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return says("from another"), nil
		})
		u := in.user("usr_1")
		u.address = address
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, first.Stop(ctx), context.DeadlineExceeded)
		// The clock stands still: without the release, the lease would never end.
		eventually(t, func() bool { return in.delivered(t, id) }, "another process delivers")
	})
}

func TestStop_LetsAttemptsEnd(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		first := in.replica(t, dispatch.Config{})
		start(t, first)
		_, address := in.serveWeb(t, first)
		release := make(chan struct{})
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.Data.Message.Text == "hello" {
				<-release
			}
			return says("re: " + w.Data.Message.Text), nil
		})
		u := in.user("usr_1")
		u.address = address
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		u.send(t, id, "", text("msg_2", "next"))
		done := make(chan error, 1)
		go func() { done <- first.Stop(t.Context()) }()
		eventually(t, func() bool { return !first.Delivering() }, "it claims no more")
		close(release)
		require.NoError(t, <-done)
		eventually(t, func() bool { return in.delivered(t, id) }, "the next one goes to another process")
		require.Len(t, in.backend.webhooks(), 2)
	})
}

func TestDelivery_OneTraceFromTheRequestToTheWebhook(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			if len(in.backend.webhooks()) == 1 {
				return fails, nil
			}
			return says("ok"), nil
		})
		id := in.user("usr_1").posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "the first attempt is over")
		in.Clock.Advance(2 * time.Second)
		eventually(t, func() bool { return in.delivered(t, id) && in.service.InFlight() == 0 }, "it is delivered")
		var request trace.TraceID
		var attempts []trace.TraceID
		for _, s := range in.spans.Ended() {
			if s.SpanKind() == trace.SpanKindServer {
				request = s.SpanContext().TraceID()
			}
			if s.Name() == "conversations.deliver" {
				attempts = append(attempts, s.SpanContext().TraceID())
			}
		}
		require.True(t, request.IsValid())
		require.Equal(t, []trace.TraceID{request, request}, attempts, "also over what the database keeps")
	})
}
