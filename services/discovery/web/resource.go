package web

import (
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
)

// resource serves the metadata of an MCP server where its challenges say that it is.
func (d *Documents) resource(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	p, err := d.of(r.Context(), c)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	serveIf(w, r, p.byKey, r.PathValue("key"))
}

// resourceOfHost serves it at the well-known place of an MCP server that is on the
// issuer's own host (RFC 9728 section 3.1): a proxy there leads that path alone to us. The
// url is put together from the issuer, so that a request by another name finds nothing else.
func (d *Documents) resourceOfHost(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	p, err := d.of(r.Context(), c)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	url := "https://" + c.Issuer.Host() + strings.TrimPrefix(r.URL.EscapedPath(), discovery.WellKnownResource)
	if _, ok := p.byURL[url+"/"]; ok && url == "https://"+c.Issuer.Host() {
		url += "/" // a slash that ends the host is taken off in the well-known place
	}
	if r.URL.RawQuery != "" {
		url += "?" + r.URL.RawQuery
	}
	serveIf(w, r, p.byURL, url)
}

func serveIf(w http.ResponseWriter, r *http.Request, docs map[string]document, name string) {
	doc, ok := docs[name]
	if !ok {
		httpx.WriteNotFound(w)
		return
	}
	serve(w, r, doc)
}
