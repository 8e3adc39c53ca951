package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/discovery"
)

// The whole public surface, and who may call it. A new endpoint is a decision that shows here.
func TestRoutes_TableOfCallers(t *testing.T) {
	var routes []publicweb.Route
	for _, s := range []interface{ Routes() []publicweb.Route }{new(discovery.Service), new(auth.Service), new(conversations.Service)} {
		routes = append(routes, s.Routes()...)
	}
	table := publicweb.New(nil, routes).Table()
	require.Len(t, table, len(routes), "a route says nothing of its caller")
	require.Equal(t, map[string]publicweb.Caller{
		"GET /poppy/{domain}/poppy.json":                      publicweb.Anyone,
		"GET /.well-known/oauth-authorization-server":         publicweb.Anyone,
		"GET /poppy/webhook-keys.json":                        publicweb.Anyone,
		"GET /poppy/resources/{key}.json":                     publicweb.Anyone,
		"GET /.well-known/oauth-protected-resource":           publicweb.Anyone,
		"GET /.well-known/oauth-protected-resource/{path...}": publicweb.Anyone,
		"POST /oauth/register":                                publicweb.Stranger,
		"GET /poppy/egress-addresses.json":                    publicweb.Anyone,
		"GET /poppy/logo":                                     publicweb.Anyone,
		"POST /oauth/token":                                   publicweb.Client,
		"POST /oauth/revoke":                                  publicweb.Client,
		"POST /oauth/device":                                  publicweb.Client,
		"POST /poppy/sign-in":                                 publicweb.Session,
		"POST /poppy/sign-in/{id}":                            publicweb.Session,
		"GET /oauth/authorize":                                publicweb.Browser,
		"GET /oauth/callback":                                 publicweb.Browser,
		"GET /device":                                         publicweb.Browser,
		"POST /device":                                        publicweb.Browser,
		"GET /sign-in/{id}":                                   publicweb.Browser,
		"POST /sign-in/{id}":                                  publicweb.Browser,
		"GET /sign-in/{id}/resume":                            publicweb.Browser,
		"GET /sign-in/{id}/agent-logo":                        publicweb.Browser,
		"GET /account/agents":                                 publicweb.Browser,
		"POST /account/agents":                                publicweb.Browser,
		"POST /poppy/browser-session":                         publicweb.AgentBrowser,
		"GET /assets/pages-{version}.css":                     publicweb.Anyone,
		"GET /assets/brand.css":                               publicweb.Anyone,
		"POST /poppy/conversations":                           publicweb.Session,
		"POST /poppy/conversations/{id}/messages":             publicweb.Session,
		"GET /poppy/conversations/{id}/events":                publicweb.Session,
		"POST /poppy/conversations/{id}/handoff":              publicweb.Session,
		"POST /poppy/conversations/{id}/close":                publicweb.Session,
	}, table)
}
