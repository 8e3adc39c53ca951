package webhook

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// schema is the part of JSON Schema that the catalogue needs.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a name, or several
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Format      string             `json:"format,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
}

// EventSchema returns the JSON Schema (draft 2020-12) of the bodies of a type. Other
// members are allowed: some may be added.
func EventSchema(name string) ([]byte, error) {
	k, ok := kindOf(name)
	if !ok {
		return nil, problem.New(problem.NotFound, problem.NotFoundReason, "", "no event has such a type")
	}
	data := schemaOf(reflect.TypeOf(k.example))
	data.Properties[companyMember] = &schema{Type: "string", Description: companyDoc}
	data.Required = append([]string{companyMember}, data.Required...)
	return json.Marshal(&schema{
		Dialect: schemaDialect, Title: k.name, Description: k.doc, Type: "object",
		Properties: map[string]*schema{
			"type":      {Type: "string", Const: k.name, Description: typeDoc},
			"timestamp": {Type: "string", Format: "date-time", Description: timestampDoc},
			"data":      data,
		},
		Required: []string{"type", "timestamp", "data"},
	})
}

func schemaOf(t reflect.Type) *schema {
	if t == reflect.TypeFor[json.RawMessage]() {
		return &schema{Type: "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem())
		s.Type = []any{s.Type, "null"}
		return s
	case reflect.Struct:
		s := &schema{Type: "object", Properties: map[string]*schema{}}
		s.addFields(t)
		return s
	case reflect.Slice:
		return &schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer"}
	default: // strings, in types of their own too
		return &schema{Type: "string"}
	}
}

func (s *schema) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			s.addFields(f.Type)
			continue
		}
		name := f.Tag.Get("json")
		one := schemaOf(f.Type)
		one.Description, one.Format = f.Tag.Get("doc"), f.Tag.Get("format")
		if enum := f.Tag.Get("enum"); enum != "" {
			one.Enum = strings.Split(enum, ",")
		}
		s.Properties[name] = one
		s.Required = append(s.Required, name)
	}
}
