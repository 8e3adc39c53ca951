package web

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// explain finds the first member of a JSON object that a message of type t can't
// take, and names it by its path; nil where it finds none.
func explain(t protoreflect.MessageType, v jsonx.Value, path string) *problem.Error {
	o, ok := v.Object()
	if !ok {
		return resource.Invalid(path, "is no object")
	}
	fields := t.Descriptor().Fields()
	for key, member, more := o.Next(); more; key, member, more = o.Next() {
		at := join(path, clip(string(key)))
		f := fieldOf(fields, string(key))
		if f == nil {
			return resource.Invalid(at, "there is no such field")
		}
		if member.Kind() == jsonx.Null || fits(t, f, member) {
			continue
		}
		return explainField(t, f, member, at)
	}
	return nil
}

func explainField(t protoreflect.MessageType, f protoreflect.FieldDescriptor, v jsonx.Value, at string) *problem.Error {
	whole := resource.Invalid(at, "is no "+kindName(f))
	if f.Message() == nil || wellKnown(f.Message()) && !f.IsMap() {
		return whole
	}
	empty := t.New()
	switch {
	case f.IsMap():
		o, ok := v.Object()
		if !ok || f.MapValue().Message() == nil {
			return whole
		}
		of := empty.Mutable(f).Map().NewValue().Message().Type()
		for key, member, more := o.Next(); more; key, member, more = o.Next() {
			if p := explain(of, member, at+"["+strconv.Quote(clip(string(key)))+"]"); p != nil {
				return p
			}
		}
	case f.IsList():
		a, ok := v.Array()
		if !ok {
			return whole
		}
		of := empty.Mutable(f).List().NewElement().Message().Type()
		i := 0
		for member, more := a.Next(); more; member, more = a.Next() {
			if p := explain(of, member, at+"["+strconv.Itoa(i)+"]"); p != nil {
				return p
			}
			i++
		}
	default:
		if p := explain(empty.NewField(f).Message().Type(), v, at); p != nil {
			return p
		}
	}
	return whole
}

// fits reports whether the field takes the value.
func fits(t protoreflect.MessageType, f protoreflect.FieldDescriptor, v jsonx.Value) bool {
	doc := append([]byte(`{`+strconv.Quote(f.JSONName())+`:`), v.Raw()...)
	return protojson.Unmarshal(append(doc, '}'), t.New().Interface()) == nil
}

func fieldOf(fields protoreflect.FieldDescriptors, key string) protoreflect.FieldDescriptor {
	if f := fields.ByJSONName(key); f != nil {
		return f
	}
	return fields.ByTextName(key)
}

func wellKnown(d protoreflect.MessageDescriptor) bool {
	return d.FullName().Parent() == "google.protobuf"
}

// kindName says what a field takes, with the word that follows "no".
func kindName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "object of " + scalarName(f.MapValue()) + "s"
	case f.IsList():
		return "list of " + scalarName(f) + "s"
	}
	return scalarName(f)
}

func scalarName(f protoreflect.FieldDescriptor) string {
	if d := f.Message(); d != nil {
		switch d.FullName() {
		case "google.protobuf.Timestamp":
			return `RFC 3339 time such as "2026-01-02T15:04:05Z"`
		case "google.protobuf.Duration":
			return `duration in seconds such as "30s"`
		case "google.protobuf.FieldMask":
			return "list of field names with commas between them"
		default:
			return "object"
		}
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return "boolean"
	case protoreflect.StringKind:
		return "string"
	case protoreflect.BytesKind:
		return "base64 string"
	case protoreflect.EnumKind:
		return "value of " + string(f.Enum().Name())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "number"
	default:
		return "integer in range"
	}
}

// clip keeps a caller's own name in an error short.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
