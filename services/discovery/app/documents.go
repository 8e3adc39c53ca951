package app

import (
	"context"
	"errors"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Documents are the bytes a Company serves.
type Documents struct {
	Version  int64
	Metadata []byte
	// ByDomain has the poppy.json of each verified domain.
	ByDomain map[string][]byte
	// ByResource has the metadata of each listed MCP server, by its url.
	ByResource map[string][]byte
}

// Documents builds what the Company serves now.
func (a *App) Documents(ctx context.Context, scope tenancy.Scope) (Documents, error) {
	s, err := a.store.Snapshot(ctx, scope)
	if err != nil {
		return Documents{}, err
	}
	out, err := documents(s.Published(), s.Issuer, s.Domains)
	out.Version = s.Version
	return out, err
}

// check builds everything that c could serve, for a domain as long as one can be and
// with every type of sign-in that its settings name: a connection that is set up later
// doesn't break the documents.
func (a *App) check(c *Company, conn Connection) error {
	longest, err := discovery.ParseDomain(strings.Repeat(strings.Repeat("d", 62)+".", 3) + strings.Repeat("d", 64-3) + ".dd")
	if err != nil {
		return err
	}
	settings := c.wanted()
	if settings.Mediated != nil {
		fields := conn.Fields()
		if len(fields) == 0 {
			fields = testFields()
		}
		settings.Mediated = &discovery.Mediated{Fields: fields, Scopes: settings.Mediated.Scopes}
	}
	_, err = documents(settings, c.Issuer, []discovery.Domain{longest})
	return atSettings(err)
}

// atSettings puts the paths of err's fields where discovery settings have them.
func atSettings(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Fields) == 0 {
		return err
	}
	c := *p
	c.Fields = make([]problem.Field, len(p.Fields))
	for i, f := range p.Fields {
		for _, t := range []string{"direct", "device", "mediated"} {
			if rest, ok := strings.CutPrefix(f.Path, t+".scopes"); ok {
				f.Path = t + "_scopes" + rest
			}
		}
		c.Fields[i] = f
	}
	return within("discovery_settings", &c)
}

// documents builds what is served with the given settings.
func documents(settings discovery.Settings, issuer discovery.Issuer, domains []discovery.Domain) (Documents, error) {
	checked, err := discovery.CheckSettings(settings)
	if err != nil {
		return Documents{}, err
	}
	out := Documents{ByDomain: make(map[string][]byte, len(domains))}
	if out.Metadata, err = discovery.BuildMetadata(checked, issuer, domains); err != nil {
		return Documents{}, err
	}
	if out.ByResource, err = discovery.BuildResources(checked, issuer); err != nil {
		return Documents{}, err
	}
	for _, d := range domains {
		if out.ByDomain[d.String()], err = discovery.BuildDocument(checked, issuer, d); err != nil {
			return Documents{}, err
		}
	}
	return out, nil
}
