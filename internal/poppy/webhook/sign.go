package webhook

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The headers of a delivery.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Tolerance is how far a webhook's timestamp may be from the receiver's clock, either way.
const Tolerance = 5 * time.Minute

const (
	maxWebhookID  = 256
	maxSignatures = 20 // of one header; more are not looked at
	maxSignature  = 4096
)

// Headers are the values of the three headers of one attempt.
type Headers struct {
	ID        string // the same at every attempt: the receiver's idempotency key
	Timestamp string // Unix seconds of this attempt
	Signature string // space-separated signatures
}

// A Signer is a Secret or a PrivateKey.
type Signer interface {
	sign(content []byte) (version string, signature []byte)
	usable() bool
}

// A Verifier is a Secret or a PublicKey.
type Verifier interface {
	version() string
	verify(content, signature []byte) bool
	usable() bool
}

// Sign signs the exact bytes of body for an attempt made at the given time, once
// with each signer: while a secret is being replaced, with the old and the new.
// The id must not hold a dot, which separates the parts of what is signed.
func Sign(id string, at time.Time, body []byte, signers ...Signer) (Headers, error) {
	if !isWebhookID(id) {
		return Headers{}, problem.New(problem.Invalid, problem.InvalidRequest, clauseHeaders,
			"a webhook id has 1 to %d visible characters other than the dot", maxWebhookID)
	}
	if len(signers) == 0 {
		return Headers{}, problem.New(problem.Invalid, InvalidKey, clauseSignature, "a webhook has at least one signature")
	}
	h := Headers{ID: id, Timestamp: strconv.FormatInt(at.Unix(), 10)}
	content := signedContent(h, body)
	for i, s := range signers {
		if !s.usable() {
			return Headers{}, badKey("a webhook can't be signed with an empty key")
		}
		version, signature := s.sign(content)
		if i > 0 {
			h.Signature += " "
		}
		h.Signature += version + "," + base64.StdEncoding.EncodeToString(signature)
	}
	return h, nil
}

func isWebhookID(id string) bool {
	if id == "" || len(id) > maxWebhookID {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' })
}

func signedContent(h Headers, body []byte) []byte {
	content := make([]byte, 0, len(h.ID)+len(h.Timestamp)+len(body)+2)
	content = append(append(content, h.ID...), '.')
	content = append(append(content, h.Timestamp...), '.')
	return append(content, body...)
}

// Verify checks a received webhook: that its timestamp is within Tolerance of now
// and that one of its signatures is by one of the verifiers. body is what came
// over the wire, byte for byte. Comparison takes the same time wherever a
// signature differs; signatures of unknown versions are skipped.
func Verify(h Headers, body []byte, now time.Time, verifiers ...Verifier) error {
	if !isWebhookID(h.ID) {
		return badSignature("the %s header is missing or malformed", HeaderID)
	}
	seconds, err := strconv.ParseInt(h.Timestamp, 10, 64)
	// One spelling only: the text is signed, and "+1" or "01" would be other texts of the same time.
	if err != nil || strconv.FormatInt(seconds, 10) != h.Timestamp {
		return badSignature("the %s header is missing or malformed", HeaderTimestamp)
	}
	if at := time.Unix(seconds, 0); at.Before(now.Add(-Tolerance)) || at.After(now.Add(Tolerance)) {
		return badSignature("the webhook's timestamp is more than five minutes off")
	}
	if len(h.Signature) > maxSignature {
		return badSignature("the %s header is too long", HeaderSignature)
	}
	content := signedContent(h, body)
	for i, entry := range strings.Split(h.Signature, " ") {
		version, text, ok := strings.Cut(entry, ",")
		if !ok || i >= maxSignatures {
			continue
		}
		signature, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		for _, v := range verifiers {
			if v.usable() && v.version() == version && v.verify(content, signature) {
				return nil
			}
		}
	}
	return badSignature("none of the webhook's signatures is by an accepted key")
}

func badSignature(format string, args ...any) error {
	return problem.New(problem.Unauthenticated, InvalidSignature, clauseSignature, format, args...)
}
