package method

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Package is the protobuf package of the admin API.
const Package protoreflect.FullName = "poppyfield.admin.v1"

// Method is one method of the admin API.
type Method struct {
	// FullName is how gRPC calls it: /poppyfield.admin.v1.DomainService/GetDomain.
	FullName   string
	Service    protoreflect.FullName
	Desc       protoreflect.MethodDescriptor
	Permission string
	Audience   adminv1.Audience
	Mutates    bool
	// Checks says that it is called for every request of an agent.
	Checks bool
	HTTP   Route // the zero Route for a stream
	// Also are other ways to ask it: paths that Door finds, and methods of other gRPC services.
	Also []string
	// Stream says that either side sends any number of messages.
	Stream bool

	company   []protoreflect.FieldDescriptor // where the request names its Company; empty: nowhere
	requestID protoreflect.FieldDescriptor   // nil: the method takes none
	input     protoreflect.MessageType
	output    protoreflect.MessageType
}

// Table is every method there is.
type Table struct {
	methods  []*Method
	byName   map[string]*Method
	doors    map[string]*Method // by what is in Also
	services []protoreflect.FullName
}

// Load reads the methods of Package that are linked in. owners are the services that somebody answers for.
func Load(owners ...protoreflect.FullName) (*Table, error) {
	var services []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(Package, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			services = append(services, f.Services().Get(i))
		}
		return true
	})
	return Build(services, owners...)
}

// Build makes the table of services. It fails for a method without a rule, without
// an HTTP route, or whose Company can't be told from its request, for a service
// that isn't among owners, and for an owner of nothing.
func Build(services []protoreflect.ServiceDescriptor, owners ...protoreflect.FullName) (*Table, error) {
	t := &Table{byName: map[string]*Method{}}
	var errs []error
	for _, s := range services {
		if !slices.Contains(owners, s.FullName()) {
			errs = append(errs, fmt.Errorf("%s has no owner: add it to the table of owners", s.FullName()))
			continue
		}
		t.services = append(t.services, s.FullName())
		for i := range s.Methods().Len() {
			m, err := read(s.Methods().Get(i))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			t.methods = append(t.methods, m)
			t.byName[m.FullName] = m
		}
	}
	for _, o := range owners {
		if !slices.ContainsFunc(services, func(s protoreflect.ServiceDescriptor) bool { return s.FullName() == o }) {
			errs = append(errs, fmt.Errorf("%s has an owner and is no service of the API", o))
		}
	}
	errs = append(errs, t.open())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.Sort(t.services)
	slices.SortFunc(t.methods, func(a, b *Method) int { return strings.Compare(a.FullName, b.FullName) })
	return t, nil
}

// Methods returns all methods, by name.
func (t *Table) Methods() []*Method { return t.methods }

// Services returns the names of all services, sorted.
func (t *Table) Services() []protoreflect.FullName { return t.services }

// Of returns the methods of one service.
func (t *Table) Of(service protoreflect.FullName) []*Method {
	var out []*Method
	for _, m := range t.methods {
		if m.Service == service {
			out = append(out, m)
		}
	}
	return out
}

// Permissions returns the permissions that methods ask for: those that a Company's
// key can hold, and those that only operators have.
func (t *Table) Permissions() (company, operator []string) {
	for _, m := range t.methods {
		switch m.Audience {
		case adminv1.Audience_AUDIENCE_COMPANY:
			company = append(company, m.Permission)
		case adminv1.Audience_AUDIENCE_OPERATOR:
			operator = append(operator, m.Permission)
		case adminv1.Audience_AUDIENCE_SELF, adminv1.Audience_AUDIENCE_UNSPECIFIED:
		}
	}
	slices.Sort(company)
	slices.Sort(operator)
	return slices.Compact(company), slices.Compact(operator)
}

var permission = regexp.MustCompile(`^[a-z]+\.[a-z_]+$`)

func read(d protoreflect.MethodDescriptor) (*Method, error) {
	fail := func(format string, args ...any) (*Method, error) {
		return nil, fmt.Errorf("%s: %s", d.FullName(), fmt.Sprintf(format, args...))
	}
	rule, ok := proto.GetExtension(d.Options(), adminv1.E_Rule).(*adminv1.Rule)
	if !ok || rule == nil {
		return fail("has no rule")
	}
	if !permission.MatchString(rule.GetPermission()) {
		return fail("permission %q is not of the form resource.verb", rule.GetPermission())
	}
	var route Route
	variable := rule.GetStreamCompany()
	http, ok := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	routed := ok && http != nil
	stream := d.IsStreamingClient() || d.IsStreamingServer()
	var err error
	switch {
	case stream && (routed || variable == "" || rule.GetMutates()):
		return fail("a stream has no HTTP route, names its Company by stream_company, and changes nothing by itself")
	case stream:
	case variable != "":
		return fail("stream_company is for streams")
	case !routed:
		return fail("has no HTTP route")
	default:
		if route, variable, err = parseRoute(http); err != nil {
			return fail("%v", err)
		}
	}
	m := &Method{
		FullName:   "/" + string(d.Parent().FullName()) + "/" + string(d.Name()),
		Service:    d.Parent().FullName(),
		Desc:       d,
		Permission: rule.GetPermission(),
		Audience:   rule.GetAudience(),
		Mutates:    rule.GetMutates(),
		Checks:     rule.GetChecks(),
		HTTP:       route,
		Also:       rule.GetAlso(),
		Stream:     stream,
		input:      messageType(d.Input()),
		output:     messageType(d.Output()),
	}
	if variable != "" {
		if m.company, err = fieldPath(d.Input(), variable); err != nil {
			return fail("%v", err)
		}
	}
	switch m.Audience {
	case adminv1.Audience_AUDIENCE_COMPANY:
		if m.company == nil {
			return fail("is for Companies and doesn't name one in its route")
		}
	case adminv1.Audience_AUDIENCE_OPERATOR, adminv1.Audience_AUDIENCE_SELF:
	case adminv1.Audience_AUDIENCE_UNSPECIFIED:
		return fail("has no audience")
	default:
		return fail("has an unknown audience")
	}
	if f := d.Input().Fields().ByName("request_id"); f != nil {
		if !m.Mutates || f.Kind() != protoreflect.StringKind || f.IsList() {
			return fail("request_id is for methods that change something, and a string")
		}
		m.requestID = f
	}
	if b := route.Body; b != "" && b != "*" {
		if f := d.Input().Fields().ByName(protoreflect.Name(b)); f == nil || f.Message() == nil || f.IsList() || f.IsMap() {
			return fail("body %q is no message of the request", b)
		}
	}
	return m, nil
}

func messageType(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return t
	}
	return dynamicpb.NewMessageType(d)
}

// fieldPath resolves a path such as domain.name to string fields of single messages.
func fieldPath(d protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	var out []protoreflect.FieldDescriptor
	names := strings.Split(path, ".")
	for i, name := range names {
		f := d.Fields().ByName(protoreflect.Name(name))
		if f == nil || f.IsList() || f.IsMap() {
			return nil, fmt.Errorf("%s names no field of %s", path, d.FullName())
		}
		out = append(out, f)
		if i == len(names)-1 {
			if f.Kind() != protoreflect.StringKind {
				return nil, fmt.Errorf("%s is no string", path)
			}
			return out, nil
		}
		if d = f.Message(); d == nil {
			return nil, fmt.Errorf("%s goes through a field that is no message", path)
		}
	}
	return nil, fmt.Errorf("%s names no field", path)
}
