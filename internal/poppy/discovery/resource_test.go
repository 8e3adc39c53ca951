package discovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
)

func TestPR01_BuildResources_EachMCPServersOwn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#15", "poppy-0.1/6#16")
	i := issuer(t, "https://poppy.harbor.example/t/harbor")
	const mcp = "https://mcp.harbor.example/mcp"
	docs, err := discovery.BuildResources(checked(t, everything()), i)
	require.NoError(t, err)
	require.Len(t, docs, 1)
	require.JSONEq(t, `{
		"resource": "https://mcp.harbor.example/mcp",
		"authorization_servers": ["https://poppy.harbor.example/t/harbor"],
		"scopes_supported": ["poppy:read", "poppy:write", "addresses"],
		"bearer_methods_supported": ["header"],
		"resource_name": "Product search"
	}`, string(docs[mcp]))
	require.Regexp(t, `^https://poppy\.harbor\.example/t/harbor/poppy/resources/[A-Za-z0-9_-]{22}\.json$`, i.ResourceMetadataURL(mcp))
	require.NotEqual(t, i.ResourceMetadataURL(mcp), i.ResourceMetadataURL(mcp+"/"))

	s := conversationsOnly()
	s.APIs = []discovery.API{{Type: discovery.MCP, URL: mcp}}
	docs, err = discovery.BuildResources(checked(t, s), i)
	require.NoError(t, err)
	require.NotContains(t, string(docs[mcp]), "scopes_supported")
	require.Contains(t, string(docs[mcp]), `"resource_name": "`+s.OrganizationName+`"`)

	_, err = discovery.BuildResources(discovery.CheckedSettings{}, i)
	require.Error(t, err)
}

func TestMD04_BuildMetadata_PlainClientsWhereThereIsAnMCPServerToSignInFor(t *testing.T) {
	i := issuer(t, "https://poppy.harbor.example")
	for name, c := range map[string]struct {
		change          func(*discovery.Settings)
		public, invited bool
	}{
		"both":          {func(s *discovery.Settings) { s.MCPRegistration = true }, true, true},
		"by document":   {func(*discovery.Settings) {}, true, false},
		"no MCP server": {func(s *discovery.Settings) { s.MCPRegistration, s.APIs = true, s.APIs[:1] }, false, false},
		"no page":       {func(s *discovery.Settings) { s.MCPRegistration, s.Direct = true, nil }, false, false},
	} {
		s := everything()
		c.change(&s)
		raw, err := discovery.BuildMetadata(checked(t, s), i, nil)
		require.NoError(t, err)
		if c.public {
			require.Contains(t, string(raw), `"none"`, name)
		} else {
			require.NotContains(t, string(raw), `"none"`, name)
		}
		if c.invited {
			require.Contains(t, string(raw), `"registration_endpoint": "https://poppy.harbor.example/oauth/register"`, name)
		} else {
			require.NotContains(t, string(raw), "registration_endpoint", name)
		}
	}
}
