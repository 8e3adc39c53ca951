package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/peer"
)

const (
	agentHost   = "agent.bench.test"
	backendHost = "backend.bench.test"
	clientID    = "https://" + agentHost + "/agent.json"
	kid         = "bench-1"
)

// world is a server with a Company whose backend answers at once, and an agent.
type world struct {
	server   *devserver.Server
	client   *http.Client
	document string // where the demo domain's document is
	issuer   string
	token    string // the token endpoint
	talk     string // the conversation endpoint
	keys     *jose.Signer
	proofs   *jose.Signer
}

func newWorld(b *testing.B) *world {
	b.Helper()
	keys, err := jose.GenerateSigner()
	require.NoError(b, err)
	proofs, err := jose.GenerateSigner()
	require.NoError(b, err)
	host := peer.Start(b, outside(keys), agentHost, backendHost)
	w := &world{
		server: devserver.Start(b, devserver.Options{DevHosts: host.DevHosts(), TrustCA: []string{host.CAFile}}),
		keys:   keys, proofs: proofs,
	}
	w.client = w.server.Client(b)
	w.discover(b)
	w.configure(b)
	return w
}

// outside serves the agent's documents and the backend that echoes.
func outside(keys *jose.Signer) http.Handler {
	mux := http.NewServeMux()
	document := fmt.Sprintf(
		`{"client_id":%q,"client_name":"Bench","jwks_uri":"https://%s/jwks.json","redirect_uris":["https://%s/back"],"token_endpoint_auth_method":"private_key_jwt"}`,
		clientID, agentHost, agentHost)
	mux.HandleFunc("GET /agent.json", answer(document))
	mux.HandleFunc("GET /jwks.json", answer(string(jose.PublicKeySet(keys.PublicJWK(kid)))))
	mux.HandleFunc("POST /webhook", answer(`{"messages":[{"text":"pong"}]}`))
	return mux
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a connection with an unread body is not used again
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

func (w *world) discover(b *testing.B) {
	b.Helper()
	response, err := w.client.Get("https://" + w.server.DemoDomain + "/.well-known/poppy.json")
	require.NoError(b, err)
	require.NoError(b, response.Body.Close())
	w.document = response.Header.Get("Location")
	var document struct {
		Auth  struct{ Issuer string }
		Agent struct {
			Protocols []struct{ Type, Endpoint string }
		}
	}
	w.get(b, w.document, &document)
	w.issuer, w.talk = document.Auth.Issuer, document.Agent.Protocols[0].Endpoint
	var metadata struct {
		TokenEndpoint string `json:"token_endpoint"`
	}
	w.get(b, w.issuer+"/.well-known/oauth-authorization-server", &metadata)
	w.token = metadata.TokenEndpoint
}

func (w *world) get(b *testing.B, address string, out any) {
	b.Helper()
	response, err := w.client.Get(address)
	require.NoError(b, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(b, errors.Join(err, response.Body.Close()))
	require.Equal(b, http.StatusOK, response.StatusCode, "%s: %s", address, text)
	require.NoError(b, json.Unmarshal(text, out))
}

// configure points the demo Company at the backend here and sets its rates to the
// operator's bounds: enough for a few seconds of each benchmark.
func (w *world) configure(b *testing.B) {
	b.Helper()
	for path, change := range map[string]any{
		"backend": map[string]any{"url": "https://" + backendHost + "/webhook"},
		"limits":  map[string]any{"session_starts_per_minute": 6_000, "requests_per_minute": 60_000},
	} {
		require.NoError(b, w.server.Admin(b.Context(), w.client, w.server.OperatorAPIKey,
			http.MethodPatch, w.server.DemoCompany+"/"+path, change, nil))
	}
}

func (w *world) assertion(subject, audience string) (string, error) {
	now := time.Now()
	return oauth.BuildAssertion(w.keys, kid, oauth.AssertionClaims{
		Issuer: clientID, Subject: subject, Audience: audience,
		JTI: ids.New("jti"), IssuedAt: now, ExpiresAt: now.Add(time.Minute),
	})
}

// startRequest is a signed request for a new Session.
func (w *world) startRequest(ctx context.Context) (*http.Request, error) {
	client, err := w.assertion(clientID, w.token)
	if err != nil {
		return nil, err
	}
	session, err := w.assertion(ids.New("usr"), w.token)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {session}, "client_id": {clientID},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {client},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, w.prove(request, "")
}

// prove puts a proof, and the token unless it is empty, into a request.
func (w *world) prove(request *http.Request, token string) error {
	claims := dpop.ProofClaims{
		JTI: ids.New("prf"), Method: request.Method, IssuedAt: time.Now(),
		URL: request.URL.Scheme + "://" + request.URL.Host + request.URL.Path,
	}
	if token != "" {
		claims.TokenHash = dpop.TokenHash(token)
		request.Header.Set("Authorization", "DPoP "+token)
	}
	proof, err := dpop.BuildProof(w.proofs, claims)
	request.Header.Set("DPoP", proof)
	return err
}

// messageRequest is a signed request with a message that waits for what follows it.
func (w *world) messageRequest(ctx context.Context, token, address string) (*http.Request, error) {
	body := fmt.Sprintf(`{"message":{"id":%q,"sender":"agent","text":"ping"}}`, ids.New("msg"))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return request, w.prove(request, token)
}

// send sends a request and returns the answer's body; any status but want is an error.
func (w *world) send(request *http.Request, want int) ([]byte, error) {
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode != want {
		return nil, fmt.Errorf("%s: %s: %s", request.URL, response.Status, text)
	}
	return text, nil
}
