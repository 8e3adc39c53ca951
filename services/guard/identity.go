package guard

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

const (
	// IdentityHeader has a JWT (RFC 7519) that says who is asking.
	IdentityHeader = "X-Poppy-Identity"
	// IdentityTyp is its typ.
	IdentityTyp = "poppy-identity+jwt"
	// identityLife is how long it is good: the API gets it at once.
	identityLife = time.Minute
)

// identity is the JWT's claims. There is no sub: User IDs are the agent's to choose, and
// an account is there only where the User signed in.
type identity struct {
	Issuer    string `json:"iss"` // where agents find the API
	IssuedAt  int64  `json:"iat"`
	Expires   int64  `json:"exp"`
	Method    string `json:"htm"`
	URL       string `json:"htu"` // without query
	Session   string `json:"session"`
	ClientID  string `json:"client_id"`
	AgentName string `json:"agent_name"`
	User      string `json:"user"`
	SignedIn  bool   `json:"signed_in"`
	Account   string `json:"account,omitempty"`
	Scope     string `json:"scope,omitempty"`
}

// signer signs identities with one key.
type signer struct {
	*jose.Signer
	kid string
}

func newSigner(key crypto.Signer) (*signer, error) {
	s, err := jose.NewSigner(key)
	if err != nil {
		return nil, err
	}
	return &signer{s, s.Thumbprint()}, nil
}

// keySet is the JWK set by which the API checks identities.
func (s *signer) keySet() []byte { return jose.PublicKeySet(s.PublicJWK(s.kid)) }

// identify signs who is asking for what.
func (s *signer) identify(base string, r *http.Request, by *poppy.Session, now time.Time) (string, error) {
	claims, err := json.Marshal(identity{
		Issuer: base, IssuedAt: now.Unix(), Expires: now.Add(identityLife).Unix(), Method: r.Method, URL: base + r.URL.EscapedPath(),
		Session: by.Name, ClientID: by.ClientID, AgentName: by.AgentName, User: by.User,
		SignedIn: by.SignedIn, Account: by.Account, Scope: strings.Join(by.Scopes, " "),
	})
	if err != nil {
		return "", err
	}
	return s.Sign(jose.SignHeader{Typ: IdentityTyp, KID: s.kid}, claims)
}

const pemType = "PRIVATE KEY"

// loadKey reads the key of file, PKCS #8 in PEM. Where there is no such file it makes one.
func loadKey(file string) (*signer, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = makeKey(file)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("%s holds no PEM block of type %s", file, pemType)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: the key cannot sign", file)
	}
	return newSigner(private)
}

func makeKey(file string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: raw})
	_, err = out.Write(text)
	return text, errors.Join(err, out.Close())
}
