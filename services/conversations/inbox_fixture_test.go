package conversations_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// desk is the inbox of a Company.
type desk struct {
	in      *installation
	company *fixture.Company
	api     adminv1.InboxServiceClient
}

func (in *installation) desk(t testing.TB) *desk {
	t.Helper()
	return &desk{in, in.company, adminv1.NewInboxServiceClient(in.Conn(t))}
}

func (d *desk) of(c *fixture.Company) *desk { return &desk{d.in, c, d.api} }

// inboxOnly registers nothing but the inbox.
type inboxOnly struct{ grpc.ServiceRegistrar }

func (r inboxOnly) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if desc.ServiceName == adminv1.InboxService_ServiceDesc.ServiceName {
		r.ServiceRegistrar.RegisterService(desc, impl)
	}
}

// other is the same desk at another process of the installation.
func (d *desk) other(t testing.TB) (*desk, *conversations.Service) {
	t.Helper()
	return d.otherWith(t, impatient)
}

func (d *desk) otherWith(t testing.TB, cfg conversations.Config) (*desk, *conversations.Service) {
	t.Helper()
	s := d.in.replicaWith(t, cfg)
	server, err := rpc.NewServer(rpc.ServerConfig{
		Name: "test", Secret: "0123456789abcdef0123456789abcdef", Log: d.in.Log,
		Allow: rpc.Allow{adminv1.InboxService_ServiceDesc.ServiceName: {"test"}},
	})
	require.NoError(t, err)
	s.Register(inboxOnly{server})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(nil) }() // ends with Stop
	conn, err := server.Dial("test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	start(t, s)
	return &desk{d.in, d.company, adminv1.NewInboxServiceClient(conn)}, s
}

func (d *desk) name(id string) string { return d.company.Scope.Name() + "/conversations/" + id }

func (d *desk) inbox() string { return d.company.Scope.Name() + "/inbox" }

func (d *desk) present(t testing.TB, person string, ttl time.Duration) *adminv1.Presence {
	t.Helper()
	got, err := d.api.SetPresence(d.company.Ctx(t.Context()), &adminv1.SetPresenceRequest{Parent: d.inbox(), Person: person, DisplayName: person, Ttl: durationpb.New(ttl)})
	require.NoError(t, err)
	return got
}

func (d *desk) settings(t testing.TB, s *adminv1.InboxSettings, fields ...string) *adminv1.InboxSettings {
	t.Helper()
	s.Name = d.inbox() + "/settings"
	req := &adminv1.UpdateInboxSettingsRequest{Settings: s}
	if len(fields) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: fields}
	}
	got, err := d.api.UpdateInboxSettings(d.company.Ctx(t.Context()), req)
	require.NoError(t, err)
	return got
}

func (d *desk) join(t testing.TB, id, person string) (*adminv1.Conversation, error) {
	t.Helper()
	return d.api.JoinConversation(d.company.Ctx(t.Context()), &adminv1.JoinConversationRequest{Conversation: d.name(id), Person: person})
}

func (d *desk) joined(t testing.TB, id, person string) *adminv1.Conversation {
	t.Helper()
	c, err := d.join(t, id, person)
	require.NoError(t, err)
	require.Equal(t, person, c.GetPerson())
	require.Equal(t, "human", c.GetResponder())
	return c
}

func (d *desk) send(t testing.TB, id, person string, change ...func(*adminv1.SendAsPersonRequest)) (*adminv1.RespondResponse, error) {
	t.Helper()
	req := &adminv1.SendAsPersonRequest{Conversation: d.name(id), Person: person}
	for _, c := range change {
		c(req)
	}
	return d.api.SendAsPerson(d.company.Ctx(t.Context()), req)
}

func saying(texts ...string) func(*adminv1.SendAsPersonRequest) {
	return func(r *adminv1.SendAsPersonRequest) {
		for _, s := range texts {
			r.Messages = append(r.Messages, &adminv1.Message{Text: s, Sender: "agent"}) // what it says of its sender is ignored
		}
	}
}

func (d *desk) transfer(t testing.TB, id, person, to string) (*adminv1.Conversation, error) {
	t.Helper()
	return d.api.TransferConversation(d.company.Ctx(t.Context()), &adminv1.TransferConversationRequest{Conversation: d.name(id), Person: person, ToPerson: to})
}

func (d *desk) handBack(t testing.TB, id, person, note string) (*adminv1.Conversation, error) {
	t.Helper()
	return d.api.HandBackConversation(d.company.Ctx(t.Context()), &adminv1.HandBackConversationRequest{Conversation: d.name(id), Person: person, Note: note})
}

func (d *desk) assign(t testing.TB, id, person string) (*adminv1.Conversation, error) {
	t.Helper()
	return d.api.AssignConversation(d.company.Ctx(t.Context()), &adminv1.AssignConversationRequest{Conversation: d.name(id), Person: person})
}

func (d *desk) list(t testing.TB, filter string) *adminv1.ListInboxItemsResponse {
	t.Helper()
	got, err := d.api.ListInboxItems(d.company.Ctx(t.Context()), &adminv1.ListInboxItemsRequest{Parent: d.inbox(), Filter: filter})
	require.NoError(t, err)
	return got
}

func uids(items []*adminv1.InboxItem) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.GetConversation().GetUid())
	}
	return out
}

// handOff has the agent ask for a person.
func (u *user) handOff(t testing.TB, id string) answer {
	t.Helper()
	got := u.do(t, http.MethodPost, endpoint+"/"+id+"/handoff", "{}")
	require.Equal(t, http.StatusAccepted, got.Status, got.Raw)
	return got
}

// queued is a new conversation that waits for a person.
func (u *user) queued(t testing.TB, message string) string {
	t.Helper()
	id := u.start(t, message, "hello").ConversationID
	require.Equal(t, "queued", u.handOff(t, id).State)
	return id
}

func requireReason(t testing.TB, err error, want problem.Reason) {
	t.Helper()
	require.True(t, problem.Is(err, want), "%v", err)
}
