package gateway

import (
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Original is a request as it came to a gateway.
type Original struct {
	Method, Scheme, Host string
	// URI is the path with its query, as it stood in the request.
	URI string
	// Authorization and DPoP are the values of these fields, every one of them.
	Authorization, DPoP []string
}

// Fill makes the question of whether o may pass. Host and URI have to be what they are
// by themselves: put together, a part of one must not be read as one of the other.
func (o Original) Fill(q *adminv1.VerifyRequestRequest) error {
	switch {
	case !utf8.ValidString(o.Method):
		return resource.Invalid("method", "is no text")
	case o.Host == "" || strings.ContainsAny(o.Host, "/?#@\\") || !utf8.ValidString(o.Host):
		return resource.Invalid("host", "is no host")
	case !strings.HasPrefix(o.URI, "/") || !utf8.ValidString(o.URI):
		return resource.Invalid("path", "is no path")
	}
	q.Method, q.Url = o.Method, o.Scheme+"://"+o.Host+o.URI
	for name, values := range map[string][]string{"Authorization": o.Authorization, "DPoP": o.DPoP} {
		for _, v := range values {
			// What isn't text is neither a token nor a proof; it is refused as such.
			q.Headers = append(q.Headers, &adminv1.HeaderField{Name: name, Value: strings.ToValidUTF8(v, "\uFFFD")})
		}
	}
	return nil
}

// CompanyName is the resource name of a Company that is given by its id or its name.
func CompanyName(id string) string {
	return "companies/" + strings.TrimPrefix(id, "companies/")
}
