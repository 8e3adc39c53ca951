package oauth

import (
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// AssertionClaims is what a Personal Agent states in an assertion. In a client
// assertion Subject is the client_id, in a Session assertion the User ID.
type AssertionClaims struct {
	Issuer, Subject, Audience string
	JTI                       string // at least 128 random bits
	IssuedAt, ExpiresAt       time.Time
}

// BuildAssertion signs a client or Session assertion with the published key kid.
func BuildAssertion(s *jose.Signer, kid string, c AssertionClaims) (string, error) {
	payload := jsonx.AppendString([]byte(`{"iss":`), c.Issuer)
	payload = jsonx.AppendString(append(payload, `,"sub":`...), c.Subject)
	payload = jsonx.AppendString(append(payload, `,"aud":`...), c.Audience)
	payload = strconv.AppendInt(append(payload, `,"iat":`...), c.IssuedAt.Unix(), 10)
	payload = strconv.AppendInt(append(payload, `,"exp":`...), c.ExpiresAt.Unix(), 10)
	payload = jsonx.AppendString(append(payload, `,"jti":`...), c.JTI)
	return s.Sign(jose.SignHeader{Typ: "JWT", KID: kid}, append(payload, '}'))
}
