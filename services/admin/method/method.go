package method

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// NewInput returns an empty request.
func (m *Method) NewInput() proto.Message { return m.input.New().Interface() }

// NewOutput returns an empty answer.
func (m *Method) NewOutput() proto.Message { return m.output.New().Interface() }

// NamesCompany reports whether requests name a Company.
func (m *Method) NamesCompany() bool { return len(m.company) > 0 }

// CompanyID returns the id in the request's resource name, whatever it looks like;
// empty for a name that doesn't begin with companies/.
func (m *Method) CompanyID(req proto.Message) string {
	rest, ok := strings.CutPrefix(m.resource(req), "companies/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}

func (m *Method) resource(req proto.Message) string {
	if !m.NamesCompany() {
		return ""
	}
	at := req.ProtoReflect()
	for _, f := range m.company[:len(m.company)-1] {
		at = at.Get(f).Message()
	}
	return at.Get(m.company[len(m.company)-1]).String()
}

// SetResource puts a resource name where requests of the method have it.
func (m *Method) SetResource(req proto.Message, name string) {
	if !m.NamesCompany() {
		return
	}
	at := req.ProtoReflect()
	for _, f := range m.company[:len(m.company)-1] {
		at = at.Mutable(f).Message()
	}
	at.Set(m.company[len(m.company)-1], protoreflect.ValueOfString(name))
}

// RequestID returns the request_id of a request; empty where there is none, in the
// one spelling that UUIDs have.
func (m *Method) RequestID(req proto.Message) string {
	if m.requestID == nil {
		return ""
	}
	return strings.ToLower(req.ProtoReflect().Get(m.requestID).String())
}

// TakesRequestID reports whether the method repeats its first answer.
func (m *Method) TakesRequestID() bool { return m.requestID != nil }

// UnknownField returns the path of the first field of msg that its type doesn't
// have, such as "domain.#77"; empty if there is none.
func UnknownField(msg proto.Message) string { return unknown(msg.ProtoReflect()) }

func unknown(m protoreflect.Message) string {
	if raw := m.GetUnknown(); len(raw) > 0 {
		return "#" + number(raw)
	}
	found := ""
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() == nil {
				return true
			}
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				found = unknown(v.Message())
				return found == ""
			})
		case f.Message() == nil:
			return true
		case f.IsList():
			for i := 0; i < v.List().Len() && found == ""; i++ {
				found = unknown(v.List().Get(i).Message())
			}
		default:
			found = unknown(v.Message())
		}
		if found != "" {
			found = string(f.Name()) + "." + found
		}
		return found == ""
	})
	return found
}
