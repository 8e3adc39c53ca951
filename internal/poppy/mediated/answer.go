package mediated

import (
	"encoding/json"
	"time"
)

// Status is how a Mediated Sign-In stands.
type Status string

// The statuses (Poppy 4.7, decision 32).
const (
	Complete     Status = "complete"
	CodeRequired Status = "code_required"
	Failed       Status = "failed"
	Expired      Status = "expired"
)

// EncodeCodeRequired returns the answer that asks for a one-time code. sentTo is the
// Company's description of where it went.
func EncodeCodeRequired(signInID, sentTo string, expires time.Time) ([]byte, error) {
	type code struct {
		SentTo string `json:"sent_to"`
	}
	return json.Marshal(struct {
		Status    Status `json:"status"`
		SignInID  string `json:"sign_in_id"`
		Code      code   `json:"code"`
		ExpiresAt string `json:"expires_at"`
	}{CodeRequired, signInID, code{sentTo}, expires.UTC().Format(time.RFC3339)})
}

// EncodeEnd returns the answer of a sign-in that came to nothing.
func EncodeEnd(s Status) ([]byte, error) {
	return json.Marshal(struct {
		Status Status `json:"status"`
	}{s})
}
