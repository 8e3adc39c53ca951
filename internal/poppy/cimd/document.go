package cimd

import (
	"slices"
	"strings"
	"unicode"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// Limits of a document: its size in bytes, and its name in characters.
const (
	MaxDocument = 64 << 10
	maxName     = 200
)

// A Document is a client metadata document that passed every check of ParseDocument.
type Document struct {
	ClientID string
	// Name is for people: at most 200 printable characters, the host where the
	// document has none. It still needs escaping, and says nothing about who the agent is.
	Name         string
	LogoURI      string // an https URL on any host, or ""
	JWKSURI      string
	RedirectURIs []string // empty: the agent takes no part in Direct Sign-In
	// Public: the document is that of a client which can't authenticate, and so of no
	// Personal Agent. Only ParseClient returns such a one.
	Public bool
	// Extensions holds the version of each extension the agent lists (Poppy 3.3).
	Extensions map[string]string
}

// HasRedirectURI reports whether uri is one of the registered ones, byte for byte
// (Poppy 4.5). The port of a loopback address, which a public client alone may have, is
// whatever its device had free (RFC 8252 section 7.3).
func (d Document) HasRedirectURI(uri string) bool {
	if slices.Contains(d.RedirectURIs, uri) {
		return true
	}
	portless, ok := withoutPort(uri)
	return ok && d.Public && slices.ContainsFunc(d.RedirectURIs, func(registered string) bool {
		r, ok := withoutPort(registered)
		return ok && r == portless
	})
}

// ParseDocument is ParseClient for Personal Agents alone, who can authenticate (Poppy 4.1).
func ParseDocument(id ClientID, contentType string, body []byte) (Document, error) {
	d, err := ParseClient(id, contentType, body)
	if err == nil {
		err = d.CheckAgent()
	}
	if err != nil {
		return Document{}, err
	}
	return d, nil
}

// CheckAgent fails with INVALID_CLIENT where the document is a public client's.
func (d Document) CheckAgent() error {
	switch {
	case !d.Public:
		return nil
	case d.JWKSURI == "":
		return refuse(SameDomain, "the client document has no jwks_uri")
	}
	return refuse(SameDomain, "token_endpoint_auth_method is not private_key_jwt")
}

// ParseClient checks the body fetched from id's URL. contentType is the value of
// its header; that the status was 200, without a redirect, is the caller's check. One
// bad URL makes the whole document invalid. Members it doesn't know are ignored, and
// so are a logo_uri and extensions entries that don't have their form. It fails with
// INVALID_CLIENT.
//
// Without a way to authenticate the document is that of a public client: it has
// redirect_uris, on the host of its client_id or on the User's own device.
func ParseClient(id ClientID, contentType string, body []byte) (Document, error) {
	if !isJSONType(contentType) {
		return Document{}, refuse(DocumentForm, "the client document is not application/json or a +json type")
	}
	if len(body) > MaxDocument {
		return Document{}, refuse(DocumentForm, "the client document is larger than 64 KiB")
	}
	object, err := jsonx.ParseObject(body)
	if err != nil {
		return Document{}, refuse(DocumentForm, "the client document is not a sound JSON object").WithCause(err)
	}
	d := Document{Name: id.host}
	redirects := redirectURIs{}
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		if string(name) == "redirect_uris" {
			redirects = readRedirectURIs(id, v)
			continue
		}
		if err := d.read(id, string(name), v); err != nil {
			return Document{}, err
		}
	}
	if d.ClientID == "" {
		return Document{}, refuse(SameClientID, "the client document has no client_id")
	}
	d.Public = d.Public || d.JWKSURI == ""
	switch {
	case redirects.fault != nil:
		return Document{}, redirects.fault
	case redirects.loopback != nil && !d.Public:
		return Document{}, redirects.loopback
	case d.Public && len(redirects.uris) == 0:
		return Document{}, d.CheckAgent()
	}
	d.RedirectURIs = redirects.uris
	return d, nil
}

func (d *Document) read(id ClientID, name string, v jsonx.Value) error {
	switch name {
	case "client_id":
		if v.Text() != id.raw {
			return refuse(SameClientID, "client_id of the client document is not the URL it was fetched from")
		}
		d.ClientID = id.raw
	case "client_name":
		if v.Kind() != jsonx.String {
			return refuse(DocumentForm, "client_name is not a string")
		}
		if clean := cleanName(v.Text()); clean != "" {
			d.Name = clean
		}
	case "logo_uri":
		if _, fault := parseHTTPS(v.Text()); fault == "" {
			d.LogoURI = v.Text()
		}
	case "jwks_uri":
		d.JWKSURI = v.Text()
		return checkURL(id, "jwks_uri", v)
	case "token_endpoint_auth_method":
		switch v.Text() {
		case "private_key_jwt":
		case "none":
			d.Public = true
		default:
			return refuse(SameDomain, "token_endpoint_auth_method is not private_key_jwt")
		}
	case "client_secret", "client_secret_expires_at":
		return refuse(SameDomain, "the client document has a shared secret")
	case "jwks":
		return refuse(SameDomain, "the client document has inline keys; jwks_uri is the only place for them")
	case "extensions":
		return d.readExtensions(v)
	}
	return nil
}

// redirectURIs is the member as it was read, before it is known whose document it is.
type redirectURIs struct {
	uris     []string
	fault    error // what makes it nobody's
	loopback error // what a Personal Agent is told of the first one on the User's device
}

func readRedirectURIs(id ClientID, v jsonx.Value) (out redirectURIs) {
	list, ok := v.Array()
	if !ok {
		out.fault = refuse(SameDomain, "redirect_uris is not a list")
		return out
	}
	for v, ok := list.Next(); ok; v, ok = list.Next() {
		out.uris = append(out.uris, v.Text())
		err := checkURL(id, "redirect_uris", v)
		switch {
		case err == nil:
		case !IsLoopbackURI(v.Text()):
			out.fault = err
			return out
		case out.loopback == nil:
			out.loopback = err
		}
	}
	return out
}

// checkURL checks that v is an https URL on id's host. Ports don't count.
func checkURL(id ClientID, member string, v jsonx.Value) error {
	u, fault := parseHTTPS(v.Text())
	if fault != "" {
		return refuse(SameDomain, member+" has a URL that is not acceptable: "+fault)
	}
	if lower(u.host) != id.host {
		return refuse(SameDomain, member+" has a URL on another host than client_id")
	}
	return nil
}

func (d *Document) readExtensions(v jsonx.Value) error {
	object, ok := v.Object()
	if !ok {
		return refuse(DocumentForm, "extensions is not an object")
	}
	d.Extensions = make(map[string]string)
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		if version := extensionVersion(v); version != "" {
			d.Extensions[string(name)] = version
		}
	}
	return nil
}

// extensionVersion returns the version of an extensions entry, "" where it has none.
func extensionVersion(v jsonx.Value) string {
	object, _ := v.Object()
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		if string(name) == "version" {
			return v.Text()
		}
	}
	return ""
}

// isJSONType reports whether a Content-Type is application/json or has the +json
// suffix of RFC 6839. Parameters don't count: JSON is UTF-8, which is checked.
func isJSONType(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	essence = lower(strings.TrimSpace(essence))
	if essence == "application/json" {
		return true
	}
	typ, subtype, ok := strings.Cut(essence, "/")
	return ok && isToken(typ) && isToken(subtype) && strings.HasSuffix(subtype, "+json") && subtype != "+json"
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("!#$&-^_.+", c) < 0 {
			return false
		}
	}
	return s != ""
}

// cleanName keeps the printable characters of a name, at most maxName of them.
// Control characters and those that turn the direction of text, by which a name can
// be made to read as another, are not printable; each run of space becomes one.
func cleanName(s string) string {
	var b strings.Builder
	count, space := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) {
			space = true
			continue
		}
		if !unicode.IsPrint(r) {
			continue
		}
		if space && count > 0 {
			if count++; count >= maxName {
				break
			}
			b.WriteByte(' ')
		}
		space = false
		if count++; count > maxName {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
