package gateway

import (
	"fmt"
	"strconv"
	"strings"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Field is a header field.
type Field struct{ Name, Value string }

// Identity is what an API is told of the Session that asks, in every one of its header
// fields: a value that there isn't is empty. The agent and the Company choose what stands
// in some of them, so those are percent-encoded.
func Identity(s *adminv1.AgentSession) []Field {
	return []Field{
		{"X-Poppy-Session", s.GetSession()},
		{"X-Poppy-Client-Id", s.GetClientId()},
		{"X-Poppy-User", encode(s.GetUser())},
		{"X-Poppy-Account", encode(s.GetAccount())},
		{"X-Poppy-Scope", strings.Join(s.GetScopes(), " ")},
		{"X-Poppy-Signed-In", strconv.FormatBool(s.GetSignedIn())},
		{"X-Poppy-Agent-Name", encode(s.GetAgentName())},
	}
}

// encode is text as a header field can hold it: percent-encoded UTF-8, but for visible ASCII.
func encode(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c > ' ' && c < 0x7F && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
