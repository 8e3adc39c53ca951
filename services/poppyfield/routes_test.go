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
		"GET /poppy/{domain}/poppy.json":              publicweb.Anyone,
		"GET /.well-known/oauth-authorization-server": publicweb.Anyone,
		"GET /poppy/webhook-keys.json":                publicweb.Anyone,
		"GET /assets/logo":                            publicweb.Anyone,
		"POST /oauth/token":                           publicweb.Client,
		"POST /oauth/revoke":                          publicweb.Client,
		"POST /oauth/device":                          publicweb.Client,
		"POST /poppy/sign-in":                         publicweb.Session,
		"POST /poppy/sign-in/{id}":                    publicweb.Session,
		"POST /poppy/conversations":                   publicweb.Session,
		"POST /poppy/conversations/{id}/messages":     publicweb.Session,
		"GET /poppy/conversations/{id}/events":        publicweb.Session,
		"POST /poppy/conversations/{id}/close":        publicweb.Session,
	}, table)
}
