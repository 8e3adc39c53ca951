package egress

import (
	"context"
	"errors"
	"net"
	"strings"
)

// Limits of LookupTXT; more than that is cut off.
const (
	maxTXTRecords = 64
	maxTXTBytes   = 32 << 10
)

// LookupTXT returns the TXT records of name. A name without any, or that does not
// exist, has none and is no error; a failing look-up is an [Error] of kind DNS.
func (c *Client) LookupTXT(ctx context.Context, name string) ([]string, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 || !strings.Contains(name, ".") {
		return nil, invalid("the name is not a DNS name of two labels or more")
	}
	for label := range strings.SplitSeq(name, ".") {
		// Names of verification records start with an underscore (RFC 8552).
		if !validLabel(strings.TrimPrefix(label, "_")) {
			return nil, invalid("the name is not a DNS name")
		}
	}
	inner, cancel := context.WithTimeout(ctx, c.dialer.timeout)
	defer cancel()
	records, err := c.dialer.resolver.LookupTXT(inner, name+".")
	var de *net.DNSError
	switch {
	case errors.As(err, &de) && de.IsNotFound:
		return nil, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, newError(Canceled, "the request was given up", err)
	case err != nil:
		return nil, dnsError(inner, err)
	}
	var out []string
	total := 0
	for _, r := range records {
		total += len(r)
		if len(out) == maxTXTRecords || total > maxTXTBytes {
			break
		}
		out = append(out, r)
	}
	return out, nil
}
