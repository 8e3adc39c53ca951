package browser_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	providerIssuer = "https://login.example"
	providerClient = "poppyfield"
	upstreamCode   = "canary-upstream-code"
)

// provider is the Company's identity provider as the relay shows it. Who the User is
// there, a test says by the address of a login.
type provider struct {
	relayv1.SignInServiceClient
	signer *jose.Signer
	now    func() time.Time

	mu       sync.Mutex
	nonce    string
	s256     string // the challenge of the login
	subject  string
	redeemed bool
}

func newProvider(t testing.TB, checks relayv1.SignInServiceClient, now func() time.Time) *provider {
	t.Helper()
	return &provider{SignInServiceClient: checks, signer: fixture.NewKey(t), now: now}
}

// login is what a User does at the provider: it returns where the browser is sent back to.
func (p *provider) login(t testing.TB, at *url.URL, subject string) string {
	t.Helper()
	require.Equal(t, providerIssuer+"/authorize", at.Scheme+"://"+at.Host+at.Path)
	q := at.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nonce, p.s256, p.subject, p.redeemed = q.Get("nonce"), q.Get("code_challenge"), subject, false
	return q.Get("redirect_uri") + "?" + url.Values{"state": {q.Get("state")}, "code": {upstreamCode}}.Encode()
}

// SendRequest implements relayv1.SignInServiceClient.
func (p *provider) SendRequest(_ context.Context, r *relayv1.SendRequestRequest, _ ...grpc.CallOption) (*relayv1.SendRequestResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var body any
	switch r.GetUrl() {
	case providerIssuer + "/.well-known/openid-configuration":
		body = map[string]any{
			"issuer": providerIssuer, "authorization_endpoint": providerIssuer + "/authorize", "token_endpoint": providerIssuer + "/token", "jwks_uri": providerIssuer + "/keys",
		}
	case providerIssuer + "/keys":
		body = json.RawMessage(jose.PublicKeySet(p.signer.PublicJWK("k1")))
	case providerIssuer + "/token":
		form, _ := url.ParseQuery(string(r.GetBody()))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if form.Get("code") != upstreamCode || p.redeemed || base64.RawURLEncoding.EncodeToString(sum[:]) != p.s256 {
			return &relayv1.SendRequestResponse{Status: 400, ContentType: "application/json", Body: []byte(`{"error":"invalid_grant"}`)}, nil
		}
		p.redeemed = true
		claims, err := json.Marshal(map[string]any{
			"iss": providerIssuer, "sub": p.subject, "aud": providerClient, "nonce": p.nonce, "email": email, "email_verified": true,
			"iat": p.now().Unix(), "exp": p.now().Add(time.Minute).Unix(), "auth_time": p.now().Unix(),
		})
		if err != nil {
			return nil, err
		}
		token, err := p.signer.Sign(jose.SignHeader{KID: "k1"}, claims)
		if err != nil {
			return nil, err
		}
		body = map[string]any{"access_token": "canary-upstream-token", "token_type": "Bearer", "id_token": token}
	default:
		return &relayv1.SendRequestResponse{Status: 404}, nil
	}
	raw, err := json.Marshal(body)
	return &relayv1.SendRequestResponse{Status: 200, ContentType: "application/json", Body: raw}, err
}
