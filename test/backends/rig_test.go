package backends_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay"
	"github.com/poppyfield/poppyfield/test/peer"
)

const (
	domain = ".backends.test"
	caller = "test"
	key    = "test-key"
)

// servers are the foreign servers, each at a name of its own.
type servers struct {
	certificate peer.Certificate
	ports       map[string]int
}

// startServers starts them until the test ends.
func startServers(t *testing.T) servers {
	t.Helper()
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the foreign servers run on Node.js: run `make setup`")
	require.DirExists(t, "node_modules", "run `make setup`")
	s := servers{certificate: peer.NewCertificate(t, "model"+domain, "agent"+domain, "older"+domain, "whole"+domain)}
	process := exec.CommandContext(t.Context(), node, "backends.mjs", s.certificate.Chain, s.certificate.Key)
	_, err = process.StdinPipe() // closed with this process: they don't outlive it
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Wait() }) // killed by then
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &s.ports))
	return s
}

// company is a Company whose backend is one of the servers, at a running relay.
type company struct {
	backends   adminv1.BackendServiceClient
	deliveries relayv1.DeliveryServiceClient
	scope      tenancy.Scope
}

func newCompany(t *testing.T, s servers) *company {
	t.Helper()
	var dev []string
	for name, port := range s.ports {
		dev = append(dev, name+domain+"=127.0.0.1:"+strconv.Itoa(port))
	}
	hosts, err := egress.ParseDevHosts(dev)
	require.NoError(t, err)
	roots, err := egress.LoadRoots([]string{s.certificate.CA})
	require.NoError(t, err)
	client, err := egress.New(egress.Config{UserAgent: "poppyfield-test", Now: time.Now, Roots: roots}, egress.NewGuard(egress.GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	root := make([]byte, keys.RootSize)
	_, _ = rand.Read(root) // never fails
	ring, err := keys.NewRing(1, map[byte][]byte{1: root})
	require.NoError(t, err)
	d := dbtest.SQLite(t)
	allow := rpc.Allow{}
	server, err := rpc.NewServer(rpc.ServerConfig{Name: "test", Secret: "0123456789abcdef0123456789abcdef", Allow: allow})
	require.NoError(t, err)
	service, err := relay.New(relay.Deps{DB: d, Egress: client, Keys: ring, Now: time.Now})
	require.NoError(t, err)
	service.Register(server)
	for name := range server.GetServiceInfo() {
		allow[name] = []string{caller}
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(nil) }() // ends with Stop
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := server.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &company{backends: adminv1.NewBackendServiceClient(conn), deliveries: relayv1.NewDeliveryServiceClient(conn), scope: dbtest.Company(t, d)}
}

func (c *company) ctx(t *testing.T) context.Context {
	t.Helper()
	return tenancy.Into(t.Context(), c.scope)
}

// points sets the Company's backend.
func (c *company) points(t *testing.T, b *adminv1.Backend) {
	t.Helper()
	b.Name = c.scope.Name() + "/backend"
	_, err := c.backends.UpdateBackend(c.ctx(t), &adminv1.UpdateBackendRequest{Backend: b})
	require.NoError(t, err)
}

// message is what a Personal Agent says.
type message struct {
	text, data string
	signedIn   bool
	history    []*relayv1.Turn
}

// hears delivers a message and returns the pieces and the result.
func (c *company) hears(t *testing.T, m message) ([]string, *relayv1.DeliverResponse) {
	t.Helper()
	if m.data == "" {
		m.data = "{}"
	}
	session := map[string]any{"id": "ses_1", "signed_in": m.signedIn, "account": nil, "scopes": []string{}}
	if m.signedIn {
		session["account"], session["scopes"] = "acc_7", []string{"poppy:read"}
	}
	body, err := json.Marshal(map[string]any{"type": "conversation.message", "data": map[string]any{
		"conversation": map[string]any{"id": "cnv_1", "direct": false}, "session": session, "context": map[string]any{"locale": "en"},
		"message": map[string]any{"id": "msg_1", "sender": "agent", "text": m.text, "data": json.RawMessage(m.data)},
	}})
	require.NoError(t, err)
	turns := m.history
	if turns != nil {
		turns = append(turns, &relayv1.Turn{Role: "user", Sender: "agent", Text: m.text})
	}
	stream, err := c.deliveries.Deliver(c.ctx(t), &relayv1.DeliverRequest{DeliveryId: "dlv_1", ConversationId: "cnv_1", Body: body, History: turns})
	require.NoError(t, err)
	var pieces []string
	var result *relayv1.DeliverResponse
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			require.NotNil(t, result)
			return pieces, result
		}
		require.NoError(t, err)
		require.Nil(t, result, "the result is the last frame")
		if frame.GetOutcome() == relayv1.DeliverOutcome_DELIVER_OUTCOME_UNSPECIFIED {
			pieces = append(pieces, frame.GetTextDelta())
			continue
		}
		result = frame
	}
}
