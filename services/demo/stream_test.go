package demo

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// fakeStreams is the admin API's side of a stream: it sends deliveries and keeps what
// comes back.
type fakeStreams struct {
	adminv1.UnimplementedBackendStreamServiceServer
	send chan *adminv1.BackendEvent // a nil one breaks the stream off
	got  chan *adminv1.ConnectRequest
	keys chan []string
}

func (f *fakeStreams) Connect(s grpc.BidiStreamingServer[adminv1.ConnectRequest, adminv1.ConnectResponse]) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	f.keys <- md.Get("authorization")
	go func() {
		for {
			in, err := s.Recv()
			if err != nil {
				return
			}
			f.got <- in
		}
	}()
	for event := range f.send {
		if event == nil {
			return io.ErrUnexpectedEOF
		}
		if err := s.Send(&adminv1.ConnectResponse{Frame: &adminv1.ConnectResponse_Event{Event: event}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeStreams) next(t *testing.T) *adminv1.ConnectRequest {
	t.Helper()
	select {
	case in := <-f.got:
		return in
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes from the backend")
		return nil
	}
}

// ask sends a delivery and returns its answer with the pieces that came before it.
func (f *fakeStreams) ask(t *testing.T, id string, body []byte) (*adminv1.BackendAnswer, string) {
	t.Helper()
	f.send <- &adminv1.BackendEvent{Delivery: id, Body: body}
	var pieces strings.Builder
	for {
		in := f.next(t)
		if a := in.GetAnswer(); a != nil {
			require.Equal(t, id, a.GetDelivery())
			return a, pieces.String()
		}
		pieces.WriteString(in.GetDelta().GetText())
	}
}

func TestStreamer_AnswersEveryWay(t *testing.T) {
	ca, err := devca.Load(filepath.Join(t.TempDir(), "ca"), time.Now)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeStreams{send: make(chan *adminv1.BackendEvent), got: make(chan *adminv1.ConnectRequest, 1000), keys: make(chan []string, 10)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(ca.ServerConfig(func(string) bool { return true }))))
	adminv1.RegisterBackendStreamServiceServer(server, f)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)

	a := newFakeAdmin(t)
	a.key = "pfk_shop"
	b := testBackend(t)
	b.pace, b.desk.time = 0, 0
	b.desk.open("companies/cmp_1", &adminClient{origin: a.server.URL, key: a.key, http: a.server.Client()})
	s := &streamer{cfg: Config{StreamAddress: ln.Addr().String(), Roots: ca.Pool(), Log: quiet()}, backend: b, company: "companies/cmp_1", key: a.key}
	b.desk.busy.Go(func() { s.run(b.desk.ctx) })
	defer b.desk.close()

	require.Equal(t, []string{"Bearer pfk_shop"}, <-f.keys)
	require.Equal(t, "companies/cmp_1", f.next(t).GetHello().GetCompany())

	got, pieces := f.ask(t, "dlv_1", message("Tell me about the menu", "human", nil))
	require.Equal(t, pieces, got.GetMessages()[0].GetText())
	got, pieces = f.ask(t, "dlv_2", message("Where is order 1042?", "human", nil))
	require.Empty(t, pieces)
	require.Contains(t, got.GetMessages()[0].GetData().AsMap(), "order")
	got, _ = f.ask(t, "dlv_3", message("Where is my order?", "human", nil))
	require.Equal(t, "1042", mentioned(got.GetMessages()[0].GetText()))
	got, _ = f.ask(t, "dlv_4", message("What is my address?", "human", nil))
	require.Equal(t, "sign_in_required", got.GetAuthorization().GetError())
	got, _ = f.ask(t, "dlv_5", message("I want to talk to a person", "human", nil))
	require.NotEmpty(t, got.GetHandOff().GetReason())
	got, _ = f.ask(t, "dlv_6", message("Call me", "human", nil))
	require.NotEmpty(t, got.GetRequestUser())
	got, _ = f.ask(t, "dlv_7", message("Goodbye", "human", nil))
	require.True(t, got.GetClose())
	got, _ = f.ask(t, "dlv_8", message("Check the kitchen", "human", nil))
	require.True(t, got.GetLater())
	got, _ = f.ask(t, "dlv_9", []byte("no JSON"))
	require.NotEmpty(t, got.GetFailure())

	f.send <- nil
	require.Equal(t, []string{"Bearer pfk_shop"}, <-f.keys, "it opens another one")
	require.NotNil(t, f.next(t).GetHello())
	again, _ := f.ask(t, "dlv_7", message("Goodbye", "human", nil))
	require.True(t, again.GetClose(), "the same answer to the same delivery")
}

// mentioned is the order that a text names.
func mentioned(text string) string { return orderNumber(text, nil) }

func TestStart_BackendThatConnects(t *testing.T) {
	a, dir := newFakeAdmin(t), t.TempDir()
	cfg := shopConfig(t, a, dir)
	cfg.StreamAddress = "127.0.0.1:1" // where nobody answers: that is no reason not to start
	stopShop(t, startShop(t, cfg))
	require.Equal(t, backendStream, a.back.Kind)
	stopShop(t, startShop(t, shopConfig(t, a, dir)))
	require.Equal(t, backendWebhook, a.back.Kind)
	require.Equal(t, "https://noodle-bar.localhost/agent", a.back.URL)
}
