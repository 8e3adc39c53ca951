package discovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Caps on Settings. With them the document of a Company fits into MaxDocument
// unless its extensions are large; BuildDocument checks the result.
const (
	maxOrganizationName = 200      // characters
	maxDescription      = 1000     // characters of an API's description
	maxScopeText        = 300      // characters of a custom scope's description
	maxLabelText        = 100      // characters of a mediated field's name or label
	maxScope            = 128      // octets of a scope's name
	maxEntries          = 50       // of each list and map
	maxExtension        = 16 << 10 // octets of one extension's entry
)

const reservedScopePrefix = "poppy:"

// CheckSettings applies the rules of 3.1 and 3.3 to what a Company wants to
// publish. The error names every field that breaks one, by its JSON path.
func CheckSettings(s Settings) (CheckedSettings, error) {
	s = copySettings(s)
	var v violations
	checkText(&v, clauseName, "organization_name", s.OrganizationName, maxOrganizationName)
	if !s.Conversations.Enabled && len(s.APIs) == 0 && s.BrowserSessionEndpoint == "" {
		v.add(clauseSomething, "conversations.enabled",
			"a document has at least one of conversations, APIs and a browser session endpoint")
	}
	if s.BrowserSessionEndpoint != "" {
		checkHTTPS(&v, clauseWeb, "browser_session_endpoint", s.BrowserSessionEndpoint)
	}
	checkBrowserCookie(&v, s)
	checkAPIs(&v, s)
	checkCustomScopes(&v, s.CustomScopes)
	checkSignIn(&v, s)
	checkExtensions(&v, s.Extensions)
	checkRequired(&v, s)
	if err := v.err(problem.InvalidRequest); err != nil {
		return CheckedSettings{}, err
	}
	return CheckedSettings{settings: s, checked: true}, nil
}

// checkText asks for 1 to limit characters without control characters.
func checkText(v *violations, id clause.ID, path, text string, limit int) {
	switch {
	case strings.TrimSpace(text) == "":
		v.add(id, path, "is missing")
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		v.add(id, path, "has characters that can't be shown")
	case utf8.RuneCountInString(text) > limit:
		v.add(id, path, "has more than %d characters", limit)
	}
}

func checkHTTPS(v *violations, id clause.ID, path, raw string) {
	if _, detail := parseHTTPS(raw); detail != "" {
		v.add(id, path, "%s", detail)
	}
}

func checkCount(v *violations, id clause.ID, path string, n int) {
	if n > maxEntries {
		v.add(id, path, "has more than %d entries", maxEntries)
	}
}

func checkAPIs(v *violations, s Settings) {
	checkCount(v, clauseAPIs, "apis", len(s.APIs))
	for i, api := range s.APIs {
		path := fmt.Sprintf("apis[%d]", i)
		if api.Type != OpenAPI && api.Type != MCP {
			v.add(clauseAPIType, path+".type", "is neither openapi nor mcp")
		}
		checkHTTPS(v, clauseAPIs, path+".url", api.URL)
		if api.Description != "" {
			checkText(v, clauseAPIs, path+".description", api.Description, maxDescription)
		}
		switch {
		case api.Resource == "":
		case api.Type == MCP && api.Resource != api.URL:
			v.add(clauseMCPResource, path+".resource", "differs from the url, which is the resource of an mcp entry")
		default:
			checkHTTPS(v, clauseAPIs, path+".resource", api.Resource)
		}
		checkAccess(v, path, s, api)
	}
}

// checkAccess checks what is not published of an entry: where its calls go, and what they need.
func checkAccess(v *violations, path string, s Settings, api API) {
	checkCount(v, clauseAPIs, path+".base_urls", len(api.BaseURLs))
	if api.Type == MCP && len(api.BaseURLs) > 0 {
		v.add(clauseAPIs, path+".base_urls", "is for openapi entries: the url of an mcp entry is where its calls go")
	}
	for j, raw := range api.BaseURLs {
		at := fmt.Sprintf("%s.base_urls[%d]", path, j)
		checkHTTPS(v, clauseAPIs, at, raw)
		if detail := access.CheckBase(raw); detail != "" {
			v.add(clauseAPIs, at, "%s", detail)
		}
		for _, other := range s.APIs {
			if other.URL != api.URL && slices.Contains(other.BaseURLs, raw) {
				v.add(clauseAPIs, at, "belongs to another entry, too")
			}
		}
	}
	access.CheckRules(api.Rules, func(scope string) bool { return isGrantable(scope, s.CustomScopes) }, func(at, detail string) {
		v.add(clauseAPIs, path+"."+at, "%s", detail)
	})
}

func checkCustomScopes(v *violations, scopes map[string]string) {
	checkCount(v, clauseCustomScopes, "custom_scopes", len(scopes))
	for _, name := range slices.Sorted(maps.Keys(scopes)) {
		path := "custom_scopes." + name
		if !isScope(name) {
			v.add(clauseCustomScopes, path, "is no OAuth scope name of 1 to %d characters", maxScope)
		}
		// Any case: a scope that reads like one of the protocol's would mislead the User.
		if len(name) >= len(reservedScopePrefix) && strings.EqualFold(name[:len(reservedScopePrefix)], reservedScopePrefix) {
			v.add(clauseReservedScope, path, "names that start with poppy: belong to the protocol")
		}
		checkText(v, clauseCustomScopes, path, scopes[name], maxScopeText)
	}
}

// isScope reports whether name is a scope-token of RFC 6749 section 3.3.
func isScope(name string) bool {
	if name == "" || len(name) > maxScope {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func checkSignIn(v *violations, s Settings) {
	if s.Direct != nil {
		checkScopes(v, clauseDirect, "direct.scopes", s.Direct.Scopes, s.CustomScopes)
	}
	if s.Device != nil {
		checkScopes(v, clauseDevice, "device.scopes", s.Device.Scopes, s.CustomScopes)
	}
	if s.Mediated == nil {
		return
	}
	checkScopes(v, clauseMediatedScopes, "mediated.scopes", s.Mediated.Scopes, s.CustomScopes)
	checkFields(v, "mediated.fields", s.Mediated.Fields)
}

// CheckFields applies the rules of auth.mediated.fields (4.7) to fields that may be
// published later. The error names every field at fault, as in fields[1].label.
func CheckFields(fields []MediatedField) error {
	var v violations
	checkFields(&v, "fields", fields)
	return v.err(problem.InvalidRequest)
}

func checkFields(v *violations, path string, fields []MediatedField) {
	checkCount(v, clauseMediatedFields, path, len(fields))
	if len(fields) == 0 {
		v.add(clauseMediatedFields, path, "is empty")
	}
	seen := map[string]bool{}
	for i, f := range fields {
		at := fmt.Sprintf("%s[%d]", path, i)
		checkText(v, clauseMediatedFields, at+".name", f.Name, maxLabelText)
		checkText(v, clauseMediatedFields, at+".label", f.Label, maxLabelText)
		if seen[f.Name] {
			v.add(clauseMediatedFields, at+".name", "is there twice")
		}
		seen[f.Name] = true
	}
}

func checkScopes(v *violations, id clause.ID, path string, scopes []string, custom map[string]string) {
	checkCount(v, id, path, len(scopes))
	if len(scopes) == 0 {
		v.add(id, path, "is empty")
	}
	for i, scope := range scopes {
		if !isGrantable(scope, custom) {
			v.add(id, fmt.Sprintf("%s[%d]", path, i), "is neither a scope of the protocol nor one of custom_scopes")
		}
		if slices.Contains(scopes[:i], scope) {
			v.add(id, fmt.Sprintf("%s[%d]", path, i), "is there twice")
		}
	}
}

// isGrantable reports whether a User can grant scope: one of the protocol's, or of the Company's own.
func isGrantable(scope string, custom map[string]string) bool {
	_, own := custom[scope]
	return own || scope == "poppy:read" || scope == "poppy:write"
}

func checkExtensions(v *violations, extensions map[string]json.RawMessage) {
	checkCount(v, clauseExtensionVersion, "extensions", len(extensions))
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		path, raw := "extensions."+name, extensions[name]
		checkExtensionName(v, path, name)
		if len(raw) > maxExtension {
			v.add(clauseExtensionVersion, path, "has more than %d bytes", maxExtension)
			continue
		}
		if err := jsonx.Check(raw, jsonx.MaxDepth-2); err != nil {
			v.add(clauseExtensionVersion, path, "is no sound JSON")
			continue
		}
		obj, err := jsonx.ParseObject(raw)
		if err != nil {
			v.add(clauseExtensionVersion, path, "is no JSON object")
			continue
		}
		checkExtensionEntry(v, path, name, membersOf(obj))
	}
}

// checkRequired asks for names out of extensions: agents can't list what they can't know.
func checkRequired(v *violations, s Settings) {
	checkCount(v, clauseExtensionRequired, "required_extensions", len(s.RequiredExtensions))
	for i, name := range s.RequiredExtensions {
		path := fmt.Sprintf("required_extensions[%d]", i)
		if _, ok := s.Extensions[name]; !ok {
			v.add(clauseExtensionRequired, path, "is no name of extensions")
		}
		if slices.Contains(s.RequiredExtensions[:i], name) {
			v.add(clauseExtensionRequired, path, "is there twice")
		}
	}
}

// operations is the one extension that is defined with draft 0.1.
const operations = "operations"

func checkExtensionName(v *violations, path, name string) {
	if name == operations {
		return
	}
	host, _, _ := strings.Cut(name, "/")
	if !strings.Contains(host, ".") || checkASCIIHost(host) != "" {
		v.add(clauseExtensionName, path,
			"is neither an extension of the protocol nor a name that starts with a domain, as example.com/gift-wrap does")
	}
}

func checkExtensionEntry(v *violations, path, name string, entry members) {
	if version := entry["version"]; version.Kind() != jsonx.String || version.Text() == "" {
		v.add(clauseExtensionVersion, path+".version", "is no string")
	}
	if name == operations {
		checkHTTPS(v, clauseOperations, path+".endpoint", entry["endpoint"].Text())
	}
}

// members are the members of one object by name. Names are unique, since
// jsonx refuses repeated ones; a missing one is the zero Value.
type members map[string]jsonx.Value

func membersOf(o jsonx.Object) members {
	m := members{}
	for name, value, ok := o.Next(); ok; name, value, ok = o.Next() {
		m[string(name)] = value
	}
	return m
}
