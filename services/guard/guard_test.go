package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

const base = "https://api.shop.example"

func noon() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) }

// judges lets requests with the right token through.
type judges struct {
	adminv1.UnimplementedAccessServiceServer
}

func (judges) VerifyRequest(_ context.Context, r *adminv1.VerifyRequestRequest) (*adminv1.VerifyRequestResponse, error) {
	for _, h := range r.GetHeaders() {
		if h.GetName() == "Authorization" && h.GetValue() == "DPoP good" {
			return &adminv1.VerifyRequestResponse{Allowed: true, Session: &adminv1.AgentSession{
				Session: r.GetParent() + "/sessions/ses_1", ClientId: "https://agent.example/agent.json", AgentName: "Ägent", User: "u-1",
				SignedIn: true, Account: "acc-1", Scopes: []string{"poppy:read", "poppy:write"},
			}}, nil
		}
	}
	return &adminv1.VerifyRequestResponse{
		Status: http.StatusUnauthorized, Body: `{"error":"invalid_token"}`,
		Headers: []*adminv1.HeaderField{{Name: "WWW-Authenticate", Value: `DPoP error="invalid_token"`}},
	}, nil
}

// start starts a guard before an API and returns its address and the key set for identities.
func start(t *testing.T, api http.Handler) (string, jose.KeySet) {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	adminv1.RegisterAccessServiceServer(server, judges{})
	go func() { _ = server.Serve(lis) }() // it ends with the test
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///judges", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	verifier, err := poppy.New(t.Context(), poppy.Config{Company: "companies/cmp_1", Conn: conn, BaseURL: base})
	require.NoError(t, err)
	t.Cleanup(verifier.Close)
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)
	to, err := url.Parse(behind.URL)
	require.NoError(t, err)
	cfg := Config{Verifier: verifier, BaseURL: base + "/", To: to, KeyFile: filepath.Join(t.TempDir(), "key.pem"), Now: noon, Log: slog.New(slog.DiscardHandler)}
	h, err := New(cfg)
	require.NoError(t, err)
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	key, err := loadKey(cfg.KeyFile)
	require.NoError(t, err)
	keys, err := jose.ParseKeySet(key.keySet())
	require.NoError(t, err)
	return front.URL, keys
}

func get(t *testing.T, address string, header map[string]string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	for name, value := range header {
		r.Header[name] = []string{value} // as it is spelt
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestGuard_TellsTheAPIWhoIsAsking(t *testing.T) {
	var seen *http.Request
	front, keys := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		w.WriteHeader(http.StatusTeapot)
	}))
	answer := get(t, front+"/orders/%C3%A9%20x?page=2", map[string]string{
		"Authorization": "DPoP good", "Dpop": "proof", IdentityHeader: "forged", "X_poppy_account": "forged", "X-Other": "kept",
	})
	require.Equal(t, http.StatusTeapot, answer.StatusCode)
	require.Equal(t, "/orders/%C3%A9%20x?page=2", seen.URL.RequestURI())
	require.Equal(t, []string{"", "", "", "kept"}, []string{
		seen.Header.Get("Authorization"), seen.Header.Get("DPoP"), seen.Header.Get("X_poppy_account"), seen.Header.Get("X-Other"),
	})
	require.Len(t, seen.Header.Values(IdentityHeader), 1)
	jws, err := jose.ParseJWS(seen.Header.Get(IdentityHeader))
	require.NoError(t, err)
	_, err = keys.Verify(&jws)
	require.NoError(t, err)
	require.Equal(t, IdentityTyp, jws.Header.Typ)
	var got identity
	require.NoError(t, json.Unmarshal(jws.Payload, &got))
	require.Equal(t, identity{
		Issuer: base, IssuedAt: noon().Unix(), Expires: noon().Add(time.Minute).Unix(), Method: "GET", URL: base + "/orders/%C3%A9%20x",
		Session: "companies/cmp_1/sessions/ses_1", ClientID: "https://agent.example/agent.json", AgentName: "Ägent", User: "u-1",
		SignedIn: true, Account: "acc-1", Scope: "poppy:read poppy:write",
	}, got)
}

func TestGuard_RefusesBeforeTheAPI(t *testing.T) {
	front, _ := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the API was asked") }))
	answer := get(t, front+"/orders/7", map[string]string{"Authorization": "DPoP bad", IdentityHeader: "forged"})
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, []any{http.StatusUnauthorized, `DPoP error="invalid_token"`, `{"error":"invalid_token"}`},
		[]any{answer.StatusCode, answer.Header.Get("WWW-Authenticate"), string(body)})
}

func TestGuard_StreamsStayStreams(t *testing.T) {
	read := make(chan struct{})
	front, _ := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-read // the agent has the first event before there is a second
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	answer := get(t, front+"/events", map[string]string{"Authorization": "DPoP good"})
	lines := bufio.NewScanner(answer.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "data: 1", lines.Text())
	close(read)
	for range 2 { // an empty line ends the first event
		require.True(t, lines.Scan())
	}
	require.Equal(t, "data: 2", lines.Text())
}

func TestGuard_AnAPIThatIsAwayIsABadGateway(t *testing.T) {
	front, _ := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	answer := get(t, front+"/orders/7", map[string]string{"Authorization": "DPoP good"})
	require.Equal(t, http.StatusBadGateway, answer.StatusCode)
}

func TestNew_BadConfiguration(t *testing.T) {
	to := func(raw string) *url.URL {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		return u
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	for _, bad := range []*url.URL{nil, to("ftp://x"), to("/x"), to("http://x?y"), to("http://me@x")} {
		_, err := New(Config{To: bad, KeyFile: file})
		require.Error(t, err, "%v", bad)
	}
	require.NoError(t, os.WriteFile(file, []byte("no key"), 0o600))
	_, err := New(Config{To: to("http://x"), KeyFile: file})
	require.ErrorContains(t, err, "no PEM block")
}
