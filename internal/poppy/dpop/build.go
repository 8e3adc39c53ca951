package dpop

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// ProofClaims is what a Personal Agent states in a proof.
type ProofClaims struct {
	JTI       string // unique for the key
	Method    string
	URL       string // without query and fragment
	IssuedAt  time.Time
	TokenHash string // "" for the token endpoint
	Nonce     string // "" when the Company asked for none
}

// TokenHash returns the ath of a Session Token: its SHA-256 in base64url.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// BuildProof signs a proof with the agent's key for one User at one Company.
func BuildProof(s *jose.Signer, c ProofClaims) (string, error) {
	payload := jsonx.AppendString([]byte(`{"jti":`), c.JTI)
	payload = jsonx.AppendString(append(payload, `,"htm":`...), c.Method)
	payload = jsonx.AppendString(append(payload, `,"htu":`...), c.URL)
	payload = strconv.AppendInt(append(payload, `,"iat":`...), c.IssuedAt.Unix(), 10)
	if c.TokenHash != "" {
		payload = jsonx.AppendString(append(payload, `,"ath":`...), c.TokenHash)
	}
	if c.Nonce != "" {
		payload = jsonx.AppendString(append(payload, `,"nonce":`...), c.Nonce)
	}
	return s.Sign(jose.SignHeader{Typ: "dpop+jwt", EmbedKey: true}, append(payload, '}'))
}
