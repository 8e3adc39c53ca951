package cimd

import (
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses that client IDs and documents are refused by.
const (
	HTTPSClientID clause.ID = "poppy-0.1/4.1#1"   // client_id is an https URL
	SameClientID  clause.ID = "poppy-0.1/4.1#7"   // the document names the URL it was fetched from
	SameDomain    clause.ID = "poppy-0.1/4.1#d11" // URLs on client_id's host; no shared secrets, no inline keys
	DocumentForm  clause.ID = "poppy-0.1/4.1#d43" // a JSON type; one bad URL spoils the document
)

// maxURL is the longest client_id or URL of a document, in bytes.
const maxURL = 2048

// A ClientID is a client_id that may be fetched and stored. Two client IDs are the
// same agent if and only if their strings are equal: spellings that name one URL in
// two ways (upper-case host, default port, dot segments) are refused, so that a
// blocked agent does not come back under another spelling. Only ParseClientID makes one.
type ClientID struct{ raw, host string }

// String returns the client_id byte for byte as the agent sent it.
func (c ClientID) String() string { return c.raw }

// Host returns the host name without a port: what a consent page shows beside the
// agent's name, and what the URLs of the agent's document must share.
func (c ClientID) Host() string { return c.host }

// ParseClientID checks that s is an https URL of at most 2048 bytes with a path ("/"
// is one), without userinfo, fragment or dot segments, escaped ones included. A query
// is kept. It fails with INVALID_CLIENT.
func ParseClientID(s string) (ClientID, error) {
	u, fault := parseHTTPS(s)
	if fault == "" {
		switch {
		case u.path == "":
			fault = "it has no path"
		case hasDotSegment(u.path):
			fault = "its path has dot segments"
		case u.host != lower(u.host):
			fault = "its host is not in lower case"
		case u.emptyPort || u.port == "443":
			fault = "it names the default port"
		}
	}
	if fault != "" {
		return ClientID{}, refuse(HTTPSClientID, "client_id is not acceptable: "+fault)
	}
	return ClientID{raw: s, host: u.host}, nil
}

func refuse(id clause.ID, detail string) *problem.Error {
	return problem.New(problem.Unauthenticated, problem.InvalidClient, id, "%s", detail)
}
