package main

import (
	"fmt"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
)

type ruleFile struct {
	// APIs are as AccessTable of the admin API has them.
	APIs  []ruleAPI  `json:"apis"`
	Cases []ruleCase `json:"cases"`
}

type ruleAPI struct {
	URL      string        `json:"url"`
	MCP      bool          `json:"mcp"`
	Resource string        `json:"resource"`
	Bases    []string      `json:"base_urls"`
	Rules    []access.Rule `json:"rules"`
}

type ruleCase struct {
	Name     string   `json:"name"`
	Method   string   `json:"method"`
	URL      string   `json:"url"`
	SignedIn bool     `json:"signed_in"`
	Scopes   []string `json:"scopes"`
	// Listed says whether the request is for a listed API at all: otherwise it is not
	// judged, and not served.
	Listed bool `json:"listed"`
	// API and HTU are the url of the API's entry, and what a proof of the request names.
	API  string `json:"api,omitempty"`
	HTU  string `json:"htu,omitempty"`
	Want want   `json:"want"`
}

func rules() (any, error) {
	read, write := "poppy:read", "poppy:write"
	apis := []access.API{
		{URL: "https://example.com/openapi.json", Bases: []string{"https://api.example.com"}, Rules: []access.Rule{
			{Methods: []string{"GET"}, Path: "/products/**"},
			{Methods: []string{"GET"}, Path: "/orders/**", Scopes: []string{read}},
			{Methods: []string{"POST"}, Path: "/orders/*/exchanges", Scopes: []string{read, write}},
			{Path: "/account", SignIn: true},
		}},
		{URL: "https://example.com/v2.json", Bases: []string{"https://api.example.com/v2", "https://v2.example.com:8443"}},
		{URL: "https://mcp.example.com/mcp", MCP: true, Resource: "https://mcp.example.com/mcp"},
	}
	f := ruleFile{}
	for _, a := range apis {
		f.APIs = append(f.APIs, ruleAPI{a.URL, a.MCP, a.Resource, a.Bases, a.Rules})
	}
	table := access.NewTable(apis)
	const base, unlisted, denied, signIn, lacks = "https://api.example.com", "unlisted", "access_denied", "sign_in_required", "insufficient_scope"
	for _, c := range []struct {
		name, method, url string
		scopes            []string // nil: signed out
		err               string   // "" where it is served, or unlisted
	}{
		{"open to every Session", "GET", base + "/products/7", nil, ""},
		{"** is any number of segments, none too", "GET", base + "/products", nil, ""},
		{"GET stands for HEAD", "HEAD", base + "/products/7", nil, ""},
		{"HEAD doesn't stand for another method", "POST", base + "/products/7", nil, denied},
		{"a slash at the end makes no difference", "GET", base + "/products/7/", nil, ""},
		{"parameters of a segment make no difference", "GET", base + "/products;v=1/7", nil, ""},
		{"the query makes no difference", "GET", base + "/products?a=/../orders", nil, ""},
		{"the scheme makes no difference", "GET", "http://api.example.com/products", nil, ""},
		{"a default port and the host's case make no difference", "GET", "https://API.example.com:443/products", nil, ""},
		{"signed out where a scope is needed", "GET", base + "/orders/7", nil, signIn},
		{"without the scope", "GET", base + "/orders/7", []string{write}, lacks},
		{"with the scope", "GET", base + "/orders/7", []string{read}, ""},
		{"all scopes are needed", "POST", base + "/orders/7/exchanges", []string{read}, lacks},
		{"all scopes are there", "POST", base + "/orders/7/exchanges", []string{read, write}, ""},
		{"* is one segment", "POST", base + "/orders/7/8/exchanges", []string{read, write}, denied},
		{"a sign-in is needed", "PUT", base + "/account", nil, signIn},
		{"a sign-in of any scope", "PUT", base + "/account", []string{}, ""},
		{"no rule fits", "GET", base + "/users/1", []string{read, write}, denied},
		{"paths have a case", "GET", base + "/Products", nil, denied},
		{"an escaped letter is the letter", "GET", base + "/%70roducts", nil, ""},
		{"methods have a case", "get", base + "/products", nil, denied},
		{"the longest base URL decides", "DELETE", base + "/v2/anything", nil, ""},
		{"a base URL ends at a segment", "GET", base + "/v22", nil, denied},
		{"another base URL of the same API", "GET", "https://v2.example.com:8443/x", nil, ""},
		{"another port", "GET", "https://v2.example.com/x", nil, unlisted},
		{"an MCP server", "POST", "https://mcp.example.com/mcp", nil, ""},
		{"not below an MCP server", "POST", "https://mcp.example.com/other", nil, unlisted},
		{"another host", "GET", "https://other.example.com/products", nil, unlisted},
		{"dot segments", "GET", base + "/products/../orders", nil, unlisted},
		{"escaped dot segments", "GET", base + "/products/%2e%2E/orders", nil, unlisted},
		{"an escaped slash", "GET", base + "/products%2f7", nil, unlisted},
		{"a backslash", "GET", base + "/products%5c7", nil, unlisted},
		{"an empty segment", "GET", base + "//products", nil, unlisted},
		{"a NUL", "GET", base + "/products%00", nil, unlisted},
		{"user information", "GET", "https://a@api.example.com/products", nil, unlisted},
		{"a relative address", "GET", "/products", nil, unlisted},
	} {
		out := ruleCase{Name: c.name, Method: c.method, URL: c.url, SignedIn: c.scopes != nil, Scopes: append([]string{}, c.scopes...)}
		target, err := table.Find(c.method, c.url)
		if out.Listed = err == nil; out.Listed {
			out.API, out.HTU, out.Want.Allowed = target.API.URL, target.URL, true
			if err := target.Check(out.SignedIn, out.Scopes); err != nil {
				out.Want = refused(err)
			}
		}
		if got := out.Want.Error; out.Listed != (c.err != unlisted) || out.Listed && got != c.err {
			return nil, fmt.Errorf("%q: the product says listed %v, %q, not %q", c.name, out.Listed, got, c.err)
		}
		f.Cases = append(f.Cases, out)
	}
	return f, nil
}
