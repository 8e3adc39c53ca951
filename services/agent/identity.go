package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// Files of an agent's directory. The two documents are what the agent's owner publishes.
const (
	documentFile = "agent.json"
	keySetFile   = "jwks.json"
	keyFile      = "agent-key.pem"
)

// An Identity is who the agent is to Companies (4.1): a client_id, and the key that
// signs its client and Session assertions.
type Identity struct {
	ClientID string
	Document []byte // to be served at ClientID
	KeySet   []byte // to be served at the document's jwks_uri
	// RedirectURIs are those of the document: where Direct Sign-In may send the User back to.
	RedirectURIs []string
	signer       *jose.Signer
	kid          string
}

// Profile is what an agent says of itself in its client document.
type Profile struct {
	Name         string
	LogoURI      string
	RedirectURIs []string
}

type clientDocument struct {
	ClientID     string   `json:"client_id"`
	Name         string   `json:"client_name"`
	LogoURI      string   `json:"logo_uri,omitempty"`
	JWKSURI      string   `json:"jwks_uri"`
	RedirectURIs []string `json:"redirect_uris,omitempty"`
	AuthMethod   string   `json:"token_endpoint_auth_method"`
}

// InitIdentity makes the key (once) and writes the two documents to publish. An
// agent that already lives in dir under another client_id is left alone: its User
// IDs belong to that client_id at every Company.
func InitIdentity(dir, clientID string, p Profile) (Identity, error) {
	if err := checkClientID(clientID); err != nil {
		return Identity{}, err
	}
	if raw, err := os.ReadFile(filepath.Join(dir, documentFile)); err == nil {
		var doc clientDocument
		if json.Unmarshal(raw, &doc) == nil && doc.ClientID != "" && doc.ClientID != clientID {
			return Identity{}, fail(ExitUsage, "4.1", "%s already holds the agent %s; use another --dir", dir, doc.ClientID)
		}
	}
	key, err := loadOrMakeKey(filepath.Join(dir, keyFile))
	if err != nil {
		return Identity{}, err
	}
	id, err := newIdentity(clientID, key, p)
	if err != nil {
		return Identity{}, err
	}
	for name, content := range map[string][]byte{documentFile: id.Document, keySetFile: id.KeySet} {
		if err := writePrivate(filepath.Join(dir, name), content); err != nil {
			return Identity{}, fail(ExitUsage, "4.1", "writing %s", name).because(err)
		}
	}
	return id, nil
}

// LoadIdentity reads what InitIdentity made; clientID may be empty, or has to be the one found.
func LoadIdentity(dir, clientID string) (Identity, error) {
	raw, err := os.ReadFile(filepath.Join(dir, documentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fail(ExitUsage, "4.1", "%s holds no agent; run: poppyfield agent init --client-id https://…", dir)
	}
	if err != nil {
		return Identity{}, fail(ExitUsage, "4.1", "reading the agent's document").because(err)
	}
	var doc clientDocument
	if err := json.Unmarshal(raw, &doc); err != nil {
		return Identity{}, fail(ExitUsage, "4.1", "%s is not a client document", filepath.Join(dir, documentFile)).because(err)
	}
	if clientID != "" && clientID != doc.ClientID {
		return Identity{}, fail(ExitUsage, "4.1", "%s holds the agent %s, not %s", dir, doc.ClientID, clientID)
	}
	if err := checkClientID(doc.ClientID); err != nil {
		return Identity{}, err
	}
	key, err := loadKey(filepath.Join(dir, keyFile))
	if err != nil {
		return Identity{}, err
	}
	id, err := newIdentity(doc.ClientID, key, Profile{Name: doc.Name, LogoURI: doc.LogoURI, RedirectURIs: doc.RedirectURIs})
	if err != nil {
		return Identity{}, err
	}
	id.Document = raw
	return id, nil
}

func newIdentity(clientID string, key *ecdsa.PrivateKey, p Profile) (Identity, error) {
	signer, err := jose.NewSigner(key)
	if err != nil {
		return Identity{}, fmt.Errorf("the agent's key: %w", err)
	}
	u, err := httpsURL(clientID)
	if err != nil {
		return Identity{}, fail(ExitUsage, "4.1", "client_id: %s", err)
	}
	u.Path, u.RawPath, u.RawQuery = path.Join(path.Dir(u.Path), keySetFile), "", ""
	doc := clientDocument{
		ClientID: clientID, Name: p.Name, LogoURI: p.LogoURI, JWKSURI: u.String(),
		RedirectURIs: p.RedirectURIs, AuthMethod: "private_key_jwt",
	}
	if doc.Name == "" {
		doc.Name = "Poppyfield agent"
	}
	for _, uri := range p.RedirectURIs {
		r, err := httpsURL(uri)
		if err != nil || r.Hostname() != u.Hostname() { // poppy-0.1/4.1#9
			return Identity{}, fail(ExitUsage, "4.1", "redirect URI %q must be https on %s", uri, u.Hostname())
		}
	}
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return Identity{}, fmt.Errorf("the client document: %w", err)
	}
	kid := signer.Thumbprint()
	return Identity{
		ClientID: clientID,
		Document: append(raw, '\n'),
		KeySet:   jose.PublicKeySet(signer.PublicJWK(kid)),

		RedirectURIs: p.RedirectURIs,

		signer: signer,
		kid:    kid,
	}, nil
}

// checkClientID refuses what Companies would refuse: poppy-0.1/4.1#1 and the client ID
// metadata document draft, section 3.
func checkClientID(s string) error {
	u, err := httpsURL(s)
	switch {
	case s == "":
		return fail(ExitUsage, "4.1", "a client_id is needed: the https URL at which the agent's document is published")
	case err != nil:
		return fail(ExitUsage, "4.1", "client_id: %s", err)
	case u.Path == "" || u.Path == "/":
		return fail(ExitUsage, "4.1", "client_id %q needs a path, such as /agent.json", s)
	case u.Fragment != "" || strings.Contains(s, "#"):
		return fail(ExitUsage, "4.1", "client_id %q must not have a fragment", s)
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(seg string) bool { return seg == "." || seg == ".." }):
		return fail(ExitUsage, "4.1", "client_id %q must not have dot segments", s)
	}
	return nil
}

func loadOrMakeKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := loadKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := createPrivate(file, []byte(text)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fail(ExitUsage, "4.1", "writing the agent's key").because(err)
	}
	return loadKey(file) // of two runs at once, the first one's key counts for both
}

func loadKey(file string) (*ecdsa.PrivateKey, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(ExitUsage, "4.1", "reading the agent's key").because(err)
	}
	key, err := decodeKey(string(raw))
	if err != nil {
		return nil, fail(ExitUsage, "4.1", "%s", file).because(err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

func decodeKey(text string) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("not a PEM key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the key is not an EC key on P-256")
	}
	return key, nil
}

// createPrivate writes a file that must not exist yet; fs.ErrExist when it does.
// The link makes it appear whole or not at all.
func createPrivate(file string, content []byte) error {
	tmp := file + "." + randomText(9)
	if err := writePrivate(tmp, content); err != nil {
		return err
	}
	err := os.Link(tmp, file)
	return errors.Join(err, os.Remove(tmp))
}

// randomText returns n random bytes in the alphabet of IDs (7.2).
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b)
}
