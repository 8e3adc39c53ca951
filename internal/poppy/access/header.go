package access

import "strings"

// IdentityPrefix begins the names of header fields by which an API behind a gateway is
// told who is asking.
const IdentityPrefix = "x-poppy-"

// IsIdentityHeader reports whether an API might take a header field for one that tells it
// who is asking: to many of them a line is as good as a hyphen. None may come from an agent.
func IsIdentityHeader(name string) bool {
	return strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), IdentityPrefix)
}
