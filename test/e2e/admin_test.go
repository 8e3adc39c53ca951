package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/test/devserver"
)

func TestAdmin_GRPCAndRESTAreOneAPI(t *testing.T) {
	dir := t.TempDir()
	s := devserver.Start(t, devserver.Options{DataDir: dir})
	code, _, errs := command(t, "agent", "talk", "--dev", dir, s.DemoDomain, question)
	require.Zero(t, code, errs)
	id, _ := state(t, dir)

	pem, err := os.ReadFile(s.CAFile)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	connection, err := grpc.NewClient(s.GRPCAddress, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})))
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close()) }()
	client := adminv1.NewConversationServiceClient(connection)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.DemoCompanyAPIKey)

	list, err := client.ListConversations(ctx, &adminv1.ListConversationsRequest{Parent: s.DemoCompany})
	require.NoError(t, err)
	require.Len(t, list.GetConversations(), 1)
	one := list.GetConversations()[0]
	require.Equal(t, s.DemoCompany+"/conversations/"+id, one.GetName())
	posted, err := client.PostMessage(ctx, &adminv1.PostMessageRequest{
		Conversation: one.GetName(), Message: &adminv1.Message{Sender: "human", Text: "Mika here, by gRPC."},
	})
	require.NoError(t, err)
	require.Equal(t, "company", posted.GetEvent().GetMessage().GetRole())

	rest := operator(t, s)
	rest.Key = s.DemoCompanyAPIKey
	require.NoError(t, rest.Call(t.Context(), http.MethodPost, one.GetName()+":postMessage",
		map[string]any{"message": map[string]any{"sender": "human", "text": "And by REST."}}, nil))
	var page struct {
		Conversations []struct{ Name, Status string }
	}
	require.NoError(t, rest.Call(t.Context(), http.MethodGet, s.DemoCompany+"/conversations", nil, &page))
	require.Len(t, page.Conversations, 1)
	require.Equal(t, one.GetName(), page.Conversations[0].Name)

	code, out, errs := command(t, "agent", "events", "--dev", dir, s.DemoDomain)
	require.Zero(t, code, errs)
	require.Contains(t, out, "Noodle Bar (human): Mika here, by gRPC.")
	require.Contains(t, out, "Noodle Bar (human): And by REST.")

	_, err = client.ListConversations(t.Context(), &adminv1.ListConversationsRequest{Parent: s.DemoCompany})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	_, err = client.ListConversations(ctx, &adminv1.ListConversationsRequest{Parent: "companies/cmp_00000000000000000000000000"})
	require.Equal(t, codes.NotFound, status.Code(err))
	plain, err := rest.Client.Get(s.APIOrigin + "/v1/" + s.DemoCompany)
	require.NoError(t, err)
	require.NoError(t, plain.Body.Close())
	require.Equal(t, http.StatusUnauthorized, plain.StatusCode)
}
