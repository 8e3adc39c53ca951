package conversations_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// told reports whether the backend was told a text of the conversation.
func (in *installation) told(t testing.TB, id, text string) bool {
	t.Helper()
	for _, w := range in.backend.webhooks() {
		if w.Data.Conversation.ID == id && w.Data.Message.Text == text {
			return true
		}
	}
	return false
}

func (in *installation) write(t testing.TB, fn func(context.Context, *ent.Tx) error) {
	t.Helper()
	require.NoError(t, in.DB.Write(t.Context(), in.company.Scope, fn))
}

func TestSweep_ADamagedDeliveryIsPutAside(t *testing.T) {
	for name, spoil := range map[string]func(context.Context, *ent.Tx, string) error{
		"message": func(ctx context.Context, tx *ent.Tx, id string) error {
			return tx.Event.Update().Where(entevent.ConversationID(id), entevent.Sequence(1)).SetPayload([]byte("{")).Exec(ctx)
		},
		"no message": func(ctx context.Context, tx *ent.Tx, id string) error {
			_, err := tx.Event.Delete().Where(entevent.ConversationID(id), entevent.Sequence(1)).Exec(ctx)
			return err
		},
		"conversation": func(ctx context.Context, tx *ent.Tx, id string) error {
			return tx.Conversation.UpdateOneID(id).SetContext([]byte("7")).Exec(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, in *installation) {
				in.backend.always(disabled)
				u := in.user("usr_1")
				id, other := u.posted(t, "msg_1", "hello"), u.posted(t, "msg_2", "other")
				u.send(t, id, "", text("msg_3", "behind"))
				in.backend.await(t, 2)
				eventually(t, func() bool {
					return in.deliveries(t, id)[0].LeaseOwner == "" && in.deliveries(t, other)[0].LeaseOwner == ""
				}, "both are put off")
				in.write(t, func(ctx context.Context, tx *ent.Tx) error { return spoil(ctx, tx, id) })
				in.backend.always(says("ok"))
				in.Clock.Advance(31 * time.Second)
				eventually(t, func() bool { return in.delivered(t, other) }, "the other is delivered")
				if name == "conversation" { // its messages can be sent still, but no answer added
					for n := range 2 {
						eventually(t, func() bool { return in.deliveries(t, id)[n].State == entdelivery.StateFailed }, "it is put aside")
					}
					require.Len(t, in.backend.webhooks(), 5, "and not sent again and again")
					return
				}
				eventually(t, func() bool { return in.deliveries(t, id)[1].State == entdelivery.StateDelivered }, "so is the one behind it")
				d := in.deliveries(t, id)[0]
				require.Equal(t, entdelivery.StateFailed, d.State)
				require.Equal(t, "damaged in the database", d.LastReason)
				require.True(t, in.told(t, id, "behind"))
			})
		})
	}
}

func TestDelivery_ABackendThatIsBackGetsWhatWaitsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(disabled)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		u.send(t, id, "", text("msg_2", "more"))
		in.backend.await(t, 1)
		eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseOwner == "" }, "it is put off")
		in.backend.always(says("ok"))
		subject, err := bus.DeliverySubject(in.company.Scope.CompanyID())
		require.NoError(t, err)
		in.Bus.Publish(t.Context(), subject, nil) // and the clock stands still
		eventually(t, func() bool { return in.delivered(t, id) }, "it is delivered")
	})
}

func TestPost_AnswersWhatIsKept(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		r := says("one", "two")
		r.Messages[0].Data = []byte(`{"z":1.0,"a":[1e2,"<&>"]}`)
		in.backend.always(r)
		u := in.user("usr_1")
		first := u.do(t, "POST", endpoint+"?wait=20", `{"message":{"id":"msg_1","sender":"agent","text":"hi <&>","data":{"b": 1.0, "a": "\u00e9"}}}`)
		require.Len(t, first.Events, 5)
		require.Equal(t, first.Events, u.read(t, first.ConversationID, "").Events)
		second := u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "and?"))
		require.Len(t, second.Events, 5)
		require.Equal(t, second.Events, u.read(t, first.ConversationID, "?cursor="+first.Cursor).Events)
		// Without a cursor everything is read again.
		third := u.send(t, first.ConversationID, "?wait=20", text("msg_3", "and?"))
		require.Len(t, third.Events, 15)
	})
}

func TestMeter_CountsTurns(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	in := newInstallationMetered(t, dbtest.SQLite(t), impatient, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	u := in.user("usr_1")
	u.start(t, "msg_1", "hello")
	in.backend.always(later)
	id := u.posted(t, "msg_2", "hello")
	eventually(t, func() bool { return in.delivered(t, id) }, "it is taken over")
	in.Clock.Advance(2 * time.Minute)
	eventually(t, func() bool { return in.deliveries(t, id)[0].AgentOutcome == "deadline" }, "the deadline passes")
	in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { return fails, nil })
	waits := u.posted(t, "msg_3", "hello")
	eventually(t, func() bool { return in.deliveries(t, waits)[0].Attempts == 1 }, "the attempt fails")

	eventually(t, func() bool {
		got := collect(t, reader)
		return got["poppyfield.conversations.messages.accepted"] == 3 &&
			got["poppyfield.conversations.deliveries"] == 3 &&
			got["poppyfield.conversations.delivery.attempt.duration"] == 3 &&
			got["poppyfield.conversations.turn.duration"] == 1 &&
			got["poppyfield.conversations.answers.missed"] == 1 &&
			got["poppyfield.conversations.deliveries.pending"] == 1
	}, "everything is counted")
	got := collect(t, reader)
	require.Contains(t, got, "poppyfield.conversations.reads.held")
	require.Contains(t, got, "poppyfield.conversations.deliveries.overdue")
}

// collect adds up the values of each metric, and the counts of histograms.
func collect(t testing.TB, reader sdkmetric.Reader) map[string]int {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	out := map[string]int{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					out[m.Name] += int(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					out[m.Name] += int(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					out[m.Name] += int(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					out[m.Name] += int(p.Count)
				}
			}
		}
	}
	return out
}
