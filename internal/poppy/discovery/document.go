package discovery

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// ProtocolPoppy is the type of the conversation protocol of section 7.
const ProtocolPoppy = "poppy"

// Document is a poppy.json that passed the checks an agent makes. It may still
// break rules that an agent steps over; Findings lists them.
type Document struct {
	ProtocolVersion string
	Name            string // organization.name
	Domain          Domain // organization.domain, in registered form
	Auth            *Auth  // nil in a web-only document
	HasAgent        bool
	Protocols       []Protocol // entries of every type
	HasWeb          bool
	// BrowserSessionEndpoint is empty where the website takes no Sessions.
	BrowserSessionEndpoint string
	APIs                   []API // entries of the known types only
	Extensions             map[string]Extension
	// Findings are rules that the publisher broke and a reader ignores.
	Findings []problem.Field

	findings violations
}

// Auth is the auth object of a document.
type Auth struct {
	Issuer       string // exactly as published
	Direct       *SignIn
	Device       *SignIn
	Mediated     *MediatedEndpoint
	CustomScopes map[string]string
}

// MediatedEndpoint is auth.mediated.
type MediatedEndpoint struct {
	Endpoint string
	Fields   []MediatedField
	Scopes   []string
}

// Protocol is an entry of agent.protocols.
type Protocol struct {
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	Resource string `json:"resource,omitempty"` // "": any Session Token of the Company
}

// Extension is an entry of extensions that has a usable version.
type Extension struct {
	Version string
	Raw     []byte // the whole entry, for the extension's own fields
}

// Conversation returns the first entry of the poppy conversation protocol.
func (d Document) Conversation() (Protocol, bool) {
	for _, p := range d.Protocols {
		if p.Type == ProtocolPoppy {
			return p, true
		}
	}
	return Protocol{}, false
}

// ParseDocument reads a poppy.json for the host that was asked for it, which is
// not the host that served it after a redirect. requestedHost has no port. Every
// broken rule that makes the document unusable for an agent is in the error;
// those that the protocol wants ignored are in Findings.
func ParseDocument(raw []byte, requestedHost string) (Document, error) {
	requested, err := ParseDomain(requestedHost)
	if err != nil {
		return Document{}, err
	}
	if len(raw) > MaxDocument {
		return Document{}, problem.New(problem.TooLarge, InvalidDocument, "", "poppy.json has more than %d bytes", MaxDocument)
	}
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return Document{}, problem.New(problem.Invalid, InvalidDocument, "poppy-0.1/3#8",
			"poppy.json is no sound JSON object: %s", faultOf(err)).WithCause(err)
	}
	top := membersOf(obj)
	p := docParser{}
	// The version comes first: what the members mean is known for our major version only.
	if err := p.version(top["protocol_version"]); err != nil {
		return Document{}, err
	}
	p.organization(top["organization"])
	p.auth(top["auth"])
	p.agent(top["agent"])
	p.web(top["web"])
	p.apis(top["apis"])
	p.extensions(top["extensions"])
	p.presence(top)
	if err := p.bad.err(InvalidDocument); err != nil {
		return Document{}, err
	}
	if p.doc.Domain != requested {
		return Document{}, problem.New(problem.Invalid, DomainMismatch, clauseDomain,
			"poppy.json was asked of %q and speaks for %q", requested, p.doc.Domain).
			WithField("organization.domain", "is not the domain that was asked")
	}
	p.doc.Findings = p.doc.findings.fields
	return p.doc, nil
}

// CheckPublished is for whoever publishes a document: it returns the Findings as
// an error, nil where there are none.
func CheckPublished(d Document) error { return d.findings.err(InvalidDocument) }

// faultOf names a JSON fault without quoting the document.
func faultOf(err error) string {
	var e *jsonx.Error
	if errors.As(err, &e) {
		return e.Fault.String()
	}
	return "malformed"
}

type docParser struct {
	doc Document
	bad violations
}

// note records a broken rule that readers ignore.
func (p *docParser) note(id clause.ID, path, format string, args ...any) {
	p.doc.findings.add(id, path, format, args...)
}

// version accepts major.minor of our major version, whatever the minor.
func (p *docParser) version(v jsonx.Value) error {
	text := v.Text()
	if !regexp.MustCompile(`^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})$`).MatchString(text) {
		return problem.New(problem.Invalid, InvalidDocument, clauseVersionForm,
			"protocol_version is no string of the form major.minor").
			WithField("protocol_version", "is no string of the form major.minor")
	}
	major, _, _ := strings.Cut(text, ".")
	if ours, _, _ := strings.Cut(ProtocolVersion, "."); major != ours {
		return problem.New(problem.Invalid, UnsupportedVersion, clauseVersionMajor,
			"protocol_version is %s, of which this reader knows only major version %s", text, ours).
			WithField("protocol_version", "has an unknown major version")
	}
	p.doc.ProtocolVersion = text
	return nil
}

func (p *docParser) organization(v jsonx.Value) {
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseName, "organization", "is missing or no object")
		return
	}
	m := membersOf(obj)
	if p.doc.Name = m["name"].Text(); strings.TrimSpace(p.doc.Name) == "" {
		p.bad.add(clauseName, "organization.name", "is missing or no string")
	}
	raw := m["domain"].Text()
	if raw == "" {
		p.bad.add(clauseDomain, "organization.domain", "is missing or no string")
		return
	}
	d, err := ParseDomain(raw)
	if err != nil {
		p.bad.add(clauseDomain, "organization.domain", "%s", problem.As(err).Detail)
		return
	}
	if p.doc.Domain = d; d.String() != raw {
		p.note(clauseDomainForm, "organization.domain", "is %q, in registered form %q", raw, d)
	}
}

func (p *docParser) auth(v jsonx.Value) {
	if v.IsZero() {
		return
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseAuth, "auth", "is no object")
		return
	}
	m := membersOf(obj)
	a := &Auth{Issuer: m["issuer"].Text()}
	p.doc.Auth = a
	if u, detail := parseHTTPS(a.Issuer); detail != "" {
		p.bad.add(clauseIssuer, "auth.issuer", "%s", detail)
	} else if u.RawQuery != "" {
		p.bad.add(clauseIssuer, "auth.issuer", "the URL has a query")
	}
	a.Direct = p.signIn(clauseDirect, "auth.direct", m["direct"])
	a.Device = p.signIn(clauseDevice, "auth.device", m["device"])
	p.mediated(a, m["mediated"])
	p.customScopes(a, m["custom_scopes"])
}

func (p *docParser) signIn(id clause.ID, path string, v jsonx.Value) *SignIn {
	if v.IsZero() {
		return nil
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(id, path, "is no object")
		return nil
	}
	return &SignIn{Scopes: p.strings(id, path+".scopes", membersOf(obj)["scopes"])}
}

// strings reads a required list of strings.
func (p *docParser) strings(id clause.ID, path string, v jsonx.Value) []string {
	list, ok := v.Array()
	if !ok {
		p.bad.add(id, path, "is missing or no list")
		return nil
	}
	out := []string{}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		if item.Kind() != jsonx.String {
			p.bad.add(id, path, "has an entry that is no string")
			return nil
		}
		out = append(out, item.Text())
	}
	return out
}

func (p *docParser) mediated(a *Auth, v jsonx.Value) {
	if v.IsZero() {
		return
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseMediated, "auth.mediated", "is no object")
		return
	}
	m := membersOf(obj)
	out := &MediatedEndpoint{Endpoint: m["endpoint"].Text()}
	a.Mediated = out
	checkHTTPS(&p.bad, clauseMediated, "auth.mediated.endpoint", out.Endpoint)
	out.Scopes = p.strings(clauseMediatedScopes, "auth.mediated.scopes", m["scopes"])
	list, ok := m["fields"].Array()
	if !ok {
		p.bad.add(clauseMediatedFields, "auth.mediated.fields", "is missing or no list")
		return
	}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		var f members
		if o, isObject := item.Object(); isObject {
			f = membersOf(o)
		}
		secret, isBool := f["secret"].Bool()
		field := MediatedField{Name: f["name"].Text(), Label: f["label"].Text(), Secret: secret}
		if field.Name == "" || field.Label == "" || !isBool {
			p.bad.add(clauseMediatedFields, fmt.Sprintf("auth.mediated.fields[%d]", len(out.Fields)),
				"is not {name, label, secret} with secret a boolean")
		}
		out.Fields = append(out.Fields, field)
	}
}

func (p *docParser) customScopes(a *Auth, v jsonx.Value) {
	if v.IsZero() {
		return
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseCustomScopes, "auth.custom_scopes", "is no object")
		return
	}
	a.CustomScopes = map[string]string{}
	for name, value, ok := obj.Next(); ok; name, value, ok = obj.Next() {
		path := "auth.custom_scopes." + string(name)
		switch {
		case value.Kind() != jsonx.String:
			p.bad.add(clauseCustomScopes, path, "is no string")
		case strings.HasPrefix(string(name), reservedScopePrefix):
			// The meaning of poppy: scopes is the protocol's; the entry can't change it.
			p.note(clauseReservedScope, path, "names that start with poppy: belong to the protocol")
		default:
			a.CustomScopes[string(name)] = value.Text()
		}
	}
}

func (p *docParser) agent(v jsonx.Value) {
	if v.IsZero() {
		return
	}
	p.doc.HasAgent = true
	var m members
	if obj, ok := v.Object(); ok {
		m = membersOf(obj)
	}
	list, ok := m["protocols"].Array()
	if !ok {
		p.bad.add(clauseProtocols, "agent.protocols", "is missing or no list")
		return
	}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		path := fmt.Sprintf("agent.protocols[%d]", len(p.doc.Protocols))
		var e members
		if o, isObject := item.Object(); isObject {
			e = membersOf(o)
		}
		entry := Protocol{Type: e["type"].Text(), Endpoint: e["endpoint"].Text(), Resource: e["resource"].Text()}
		p.doc.Protocols = append(p.doc.Protocols, entry)
		if entry.Type == "" {
			p.bad.add(clauseProtocols, path+".type", "is missing or no string")
		}
		// Types of later versions may have other rules for their fields: only ours are checked.
		if entry.Type == ProtocolPoppy {
			checkHTTPS(&p.bad, clauseProtocols, path+".endpoint", entry.Endpoint)
			p.resource(clauseProtocols, path+".resource", e["resource"])
		}
	}
	if len(p.doc.Protocols) == 0 {
		p.note(clauseProtocolCount, "agent.protocols", "is empty")
	}
}

func (p *docParser) resource(id clause.ID, path string, v jsonx.Value) {
	if !v.IsZero() {
		checkHTTPS(&p.bad, id, path, v.Text())
	}
}

func (p *docParser) web(v jsonx.Value) {
	if v.IsZero() {
		return
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseWeb, "web", "is no object")
		return
	}
	p.doc.HasWeb = true
	if endpoint, ok := membersOf(obj)["browser_session_endpoint"]; ok {
		p.doc.BrowserSessionEndpoint = endpoint.Text()
		checkHTTPS(&p.bad, clauseWeb, "web.browser_session_endpoint", endpoint.Text())
	}
}

func (p *docParser) apis(v jsonx.Value) {
	if v.IsZero() {
		return
	}
	list, ok := v.Array()
	if !ok {
		p.bad.add(clauseAPIs, "apis", "is no list")
		return
	}
	n := 0
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		path := fmt.Sprintf("apis[%d]", n)
		n++
		var e members
		if o, isObject := item.Object(); isObject {
			e = membersOf(o)
		}
		api := API{
			Type: APIType(e["type"].Text()), URL: e["url"].Text(),
			Description: e["description"].Text(), Resource: e["resource"].Text(),
		}
		switch api.Type {
		case OpenAPI, MCP:
			checkHTTPS(&p.bad, clauseAPIs, path+".url", api.URL)
			p.resource(clauseAPIs, path+".resource", e["resource"])
			p.doc.APIs = append(p.doc.APIs, api)
		case "":
			p.bad.add(clauseAPIs, path+".type", "is missing or no string")
		default:
			// Agents skip types they don't know, so that later versions can add some (6#8).
			p.note(clauseAPIType, path+".type", "is neither openapi nor mcp")
		}
	}
}

func (p *docParser) extensions(v jsonx.Value) {
	if v.IsZero() {
		return
	}
	obj, ok := v.Object()
	if !ok {
		p.bad.add(clauseExtensionVersion, "extensions", "is no object")
		return
	}
	p.doc.Extensions = map[string]Extension{}
	for name, value, ok := obj.Next(); ok; name, value, ok = obj.Next() {
		path := "extensions." + string(name)
		checkExtensionName(&p.doc.findings, path, string(name))
		var entry members
		if o, isObject := value.Object(); isObject {
			entry = membersOf(o)
		}
		before := len(p.doc.findings.fields)
		checkExtensionEntry(&p.doc.findings, path, string(name), entry)
		// An entry without a usable version is one the reader can't support, so it ignores it (3.3#10).
		if len(p.doc.findings.fields) == before {
			p.doc.Extensions[string(name)] = Extension{Version: entry["version"].Text(), Raw: value.Raw()}
		}
	}
}

// presence applies the rules about which members have to be there.
func (p *docParser) presence(top members) {
	_, hasAPIs := top["apis"]
	if !p.doc.HasAgent && !p.doc.HasWeb && !hasAPIs {
		p.bad.add(clauseSomething, "agent", "at least one of agent, apis and web has to be there")
	}
	_, hasAuth := top["auth"]
	if !hasAuth && (p.doc.HasAgent || hasAPIs || p.doc.BrowserSessionEndpoint != "") {
		p.bad.add(clauseAuth, "auth", "is missing; only a document with nothing but web pages omits it")
	}
}
