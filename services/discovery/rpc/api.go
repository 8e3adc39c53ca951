package rpc

import (
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

func apiFrom(a *adminv1.Api) discovery.API {
	out := discovery.API{Type: discovery.APIType(a.GetType()), URL: a.GetUrl(), Description: a.GetDescription(), Resource: a.GetResource(), BaseURLs: a.GetBaseUrls()}
	for _, r := range a.GetRules() {
		out.Rules = append(out.Rules, access.Rule{Methods: r.GetMethods(), Path: r.GetPath(), SignIn: r.GetSignIn(), Scopes: r.GetScopes()})
	}
	return out
}

func apiOf(a discovery.API) *adminv1.Api {
	out := &adminv1.Api{Type: string(a.Type), Url: a.URL, Description: a.Description, Resource: a.Resource, BaseUrls: a.BaseURLs}
	for _, r := range a.Rules {
		out.Rules = append(out.Rules, &adminv1.AccessRule{Methods: r.Methods, Path: r.Path, SignIn: r.SignIn, Scopes: r.Scopes})
	}
	return out
}

// judged is what calls of the listed APIs are judged by.
func judged(apis []access.API) []*directoryv1.Api {
	out := make([]*directoryv1.Api, len(apis))
	for i, a := range apis {
		out[i] = &directoryv1.Api{Url: a.URL, Mcp: a.MCP, Resource: a.Resource, BaseUrls: a.Bases}
		for _, r := range a.Rules {
			out[i].Rules = append(out[i].Rules, &directoryv1.AccessRule{Methods: r.Methods, Path: r.Path, SignIn: r.SignIn, Scopes: r.Scopes})
		}
	}
	return out
}
