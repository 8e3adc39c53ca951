package conversations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/ent"
	entevent "github.com/poppyfield/poppyfield/ent/companyevent"
	entendpoint "github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	wire "github.com/poppyfield/poppyfield/internal/poppy/webhook"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// listen makes an endpoint that listens to everything.
func (in *installation) listen(t testing.TB) *desk {
	t.Helper()
	require.NoError(t, in.DB.Write(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Endpoint.Create().SetID(ids.New("wep")).SetRole(entendpoint.RoleListens).SetURL("https://crm.example/hook").Exec(ctx)
	}))
	in.Clock.Advance(2 * time.Second) // what is known of the listeners is too old now
	return in.desk(t)
}

type companyEvent struct {
	Type string
	Data struct {
		Company      string
		Conversation struct{ ID, Status, Responder string }
		Sequence     int64
		Message      struct{ Role, Text string }
		Previous     struct{ Status string }
		Reason       string
		Person       string
		ClosedBy     string `json:"closed_by"`
		Session      struct{ ID string }
	}
}

// news returns what listeners of the Company are told of a conversation, and checks it against the schemas.
func (in *installation) news(t testing.TB, id string) []companyEvent {
	t.Helper()
	var rows []*ent.CompanyEvent
	require.NoError(t, in.DB.Read(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		rows, err = tx.CompanyEvent.Query().Where(entevent.Subject("conversations/" + id)).Order(entevent.ByID()).All(ctx)
		return err
	}))
	out := make([]companyEvent, 0, len(rows))
	for _, row := range rows {
		raw, err := wire.EventSchema(row.Type)
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		require.NoError(t, c.AddResource("https://poppyfield.example/"+row.Type, doc))
		s, err := c.Compile("https://poppyfield.example/" + row.Type)
		require.NoError(t, err)
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(row.Body))
		require.NoError(t, err)
		require.NoError(t, s.Validate(body), string(row.Body))
		var e companyEvent
		require.NoError(t, json.Unmarshal(row.Body, &e))
		require.Equal(t, row.Type, e.Type)
		require.Equal(t, in.company.Scope.Name(), e.Data.Company)
		require.Equal(t, id, e.Data.Conversation.ID)
		out = append(out, e)
	}
	return out
}

func typesOf(all []companyEvent) []string {
	out := make([]string, 0, len(all))
	for _, e := range all {
		out = append(out, e.Type)
	}
	return out
}

func (in *installation) answers(t testing.TB, id string, req *adminv1.RespondRequest) {
	t.Helper()
	_, err := in.respond(t, id, req)
	require.NoError(t, err)
}

func TestEvents_OfAConversationsLife(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d := in.listen(t)
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		id := got.ConversationID
		all := in.news(t, id)
		require.Equal(t, []string{
			wire.EventStarted, wire.EventMessage, wire.EventStatusChanged, wire.EventMessage, wire.EventStatusChanged,
		}, typesOf(all))
		require.Equal(t, "hello", all[1].Data.Message.Text)
		require.Equal(t, "user", all[1].Data.Message.Role)
		require.Equal(t, "idle", all[2].Data.Previous.Status)
		require.Equal(t, "working", all[2].Data.Conversation.Status)
		require.Equal(t, "company", all[3].Data.Message.Role)
		require.Equal(t, u.session.GetSessionId(), all[0].Data.Session.ID)
		for i := 1; i < len(all); i++ {
			require.GreaterOrEqual(t, all[i].Data.Sequence, all[i-1].Data.Sequence)
		}

		in.answers(t, id, &adminv1.RespondRequest{Authorization: &adminv1.Authorization{Error: "sign_in_required"}})
		in.answers(t, id, &adminv1.RespondRequest{RequestUser: "please come"})
		child := u.direct(t, id, "msg_2").ConversationID
		require.Equal(t, wire.EventStarted, in.news(t, child)[0].Type)
		_, err := in.admin.CloseConversation(in.company.Ctx(t.Context()), &adminv1.CloseConversationRequest{Name: in.company.Scope.Name() + "/conversations/" + child})
		require.NoError(t, err)
		seen := len(all)
		all = in.news(t, id)
		require.Subset(t, typesOf(all[seen:]), []string{wire.EventAuthorization, wire.EventUserRequested, wire.EventDirectOpened, wire.EventDirectClosed})
		last := in.news(t, child)
		require.Equal(t, wire.EventClosed, last[len(last)-1].Type)
		require.Equal(t, "company", last[len(last)-1].Data.ClosedBy)

		d.present(t, "mia", time.Hour)
		d.present(t, "tom", time.Hour)
		seen = len(all)
		in.answers(t, id, &adminv1.RespondRequest{HandOff: &adminv1.HandOff{Reason: "refund"}})
		d.joined(t, id, "mia")
		_, err = d.transfer(t, id, "mia", "tom")
		require.NoError(t, err)
		_, err = d.handBack(t, id, "tom", "")
		require.NoError(t, err)
		all = in.news(t, id)
		var people []string
		for _, e := range all[seen:] {
			switch e.Type {
			case wire.EventHandoffRequested:
				people = append(people, "asked: "+e.Data.Reason)
			case wire.EventPersonJoined:
				people = append(people, "joined: "+e.Data.Person)
			case wire.EventHandedBack:
				people = append(people, "back: "+e.Data.Person)
			}
		}
		require.Equal(t, []string{"asked: refund", "joined: mia", "joined: tom", "back: tom"}, people)

		require.Equal(t, http.StatusOK, u.do(t, http.MethodPost, endpoint+"/"+id+"/close", "{}").Status)
		all = in.news(t, id)
		require.Equal(t, wire.EventClosed, all[len(all)-1].Type)
		require.Equal(t, "agent", all[len(all)-1].Data.ClosedBy)
	})
}

// Sent again, a message that was given up gets its answer into the conversation, in order with later ones.
func TestResendBackendDelivery_OfOneThatIsDone(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		api := adminv1.NewBackendDeliveryServiceClient(in.Conn(t))
		u := in.user("usr_1")
		in.backend.always(says())
		id := u.posted(t, "msg_1", "one")
		eventually(t, func() bool { return in.delivered(t, id) }, "delivered")
		list, err := api.ListBackendDeliveries(in.company.Ctx(t.Context()), &adminv1.ListBackendDeliveriesRequest{
			Parent: in.company.Scope.Name() + "/backend", Filter: `state = "delivered" AND conversation = "` + in.company.Scope.Name() + "/conversations/" + id + `"`,
		})
		require.NoError(t, err)
		require.Len(t, list.GetDeliveries(), 1)
		d := list.GetDeliveries()[0]
		require.Equal(t, "silent", d.GetAgentOutcome())
		require.NotNil(t, d.GetDoneTime())

		in.backend.always(says("after all"))
		again, err := api.ResendBackendDelivery(in.company.Ctx(t.Context()), &adminv1.ResendBackendDeliveryRequest{Name: d.GetName()})
		require.NoError(t, err)
		require.Equal(t, d.GetName(), again.GetName())
		require.Equal(t, "pending", again.GetState())
		eventually(t, func() bool { return in.delivered(t, id) }, "delivered again")
		hooks := in.backend.webhooks()
		require.Len(t, hooks, 2)
		require.Equal(t, hooks[0].id, hooks[1].id)
		require.Equal(t, hooks[0].raw, hooks[1].raw)
		got := u.do(t, http.MethodGet, endpoint+"/"+id+"/events", "")
		require.Equal(t, "idle", got.State)
		require.Contains(t, got.told(), "company: after all")
	})
}

// One that is sent again is under way alone in its conversation: what the agent says meanwhile waits for it.
func TestResendBackendDelivery_KeepsTheOrder(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		api := adminv1.NewBackendDeliveryServiceClient(in.Conn(t))
		u := in.user("usr_1")
		in.backend.always(unwanted)
		id := u.posted(t, "msg_1", "one")
		eventually(t, func() bool { return len(in.deliveries(t, id)) == 1 && in.deliveries(t, id)[0].State == "expired" }, "expired")
		hold := make(chan struct{})
		in.backend.answers(func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.Data.Message.Text == "one" {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			return says("re: " + w.Data.Message.Text), nil
		})
		in.Clock.Advance(time.Second)
		got, err := api.ResendBackendDeliveries(in.company.Ctx(t.Context()), &adminv1.ResendBackendDeliveriesRequest{
			Parent: in.company.Scope.Name() + "/backend", StartTime: timestamppb.New(in.Clock.Now().Add(-24 * time.Hour)), ValidateOnly: true,
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, got.GetResent())
		got, err = api.ResendBackendDeliveries(in.company.Ctx(t.Context()), &adminv1.ResendBackendDeliveriesRequest{
			Parent: in.company.Scope.Name() + "/backend", StartTime: timestamppb.New(in.Clock.Now().Add(-24 * time.Hour)),
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, got.GetResent())
		in.backend.await(t, 2)
		require.Less(t, u.do(t, http.MethodPost, endpoint+"/"+id+"/messages", text("msg_2", "two")).Status, 300)
		require.Len(t, in.backend.webhooks(), 2, "the second waits")
		close(hold)
		in.backend.await(t, 3)
		eventually(t, func() bool { return in.delivered(t, id) }, "both delivered")
		told := u.do(t, http.MethodGet, endpoint+"/"+id+"/events", "").told()
		var said []string
		for _, s := range told {
			if len(s) > 9 && s[:9] == "company: " {
				said = append(said, s)
			}
		}
		require.Equal(t, []string{"company: re: one", "company: re: two"}, said)
	})
}
