package web

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// maxDepth is how deep JSON may nest; message data has the most of it.
const maxDepth = 64

const updateMask = "update_mask"

// check reads the request of m and returns one that the gateway can only understand
// in one way. The gateway itself drops unknown parameters and tells of mistakes in
// the words of Go's parsers.
func (h *Handler) check(w http.ResponseWriter, r *http.Request, m *method.Method) (*http.Request, error) {
	query, err := checkQuery(m, r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	body, err := httpx.ReadBody(w, r, gate.MaxRequest)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		if err := checkBody(m, r.Header.Get("Content-Type"), body); err != nil {
			return nil, err
		}
	}
	if masks(m) && !query.Has(updateMask) {
		mask, err := maskOf(m, body)
		if err != nil {
			return nil, err
		}
		if mask != "" {
			query.Set(updateMask, mask)
		}
	}
	out := r.Clone(r.Context())
	out.URL.RawQuery = query.Encode()
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.ContentLength = int64(len(body))
	// How long a call may take isn't the caller's to stretch.
	out.Header.Del("Grpc-Timeout")
	return out, nil
}

// checkQuery refuses parameters that the method doesn't have, that the path or the
// body hold, that come twice, or whose value is of the wrong kind.
func checkQuery(m *method.Method, raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the query can't be read")
	}
	out := url.Values{}
	for key, values := range query {
		name, f := parameter(m, key)
		if f == nil {
			return nil, resource.Invalid(clip(key), "there is no such parameter")
		}
		if out.Has(name) || len(values) > 1 && !f.IsList() {
			return nil, resource.Invalid(name, "comes more than once")
		}
		if name == updateMask && (values[0] == "" || strings.Contains(values[0], " ")) {
			return nil, resource.Invalid(name, "is no list of field names with commas between them")
		}
		// One at a time, so that the one at fault is known.
		if (&runtime.DefaultQueryParser{}).Parse(m.NewInput(), url.Values{name: values}, utilities.NewDoubleArray(nil)) != nil {
			return nil, resource.Invalid(name, "is no "+kindName(f))
		}
		out[name] = values
	}
	return out, nil
}

// parameter finds the field that a query parameter sets: one of the request itself.
func parameter(m *method.Method, key string) (string, protoreflect.FieldDescriptor) {
	if m.HTTP.Body == "*" {
		return "", nil
	}
	f := m.Desc.Input().Fields().ByName(protoreflect.Name(key))
	if f == nil {
		f = m.Desc.Input().Fields().ByJSONName(key)
	}
	if f == nil {
		return "", nil
	}
	name := string(f.Name())
	first, _, _ := strings.Cut(m.HTTP.Variable, ".")
	if name == m.HTTP.Body || name == first || f.IsMap() {
		return "", nil
	}
	return name, f
}

func checkBody(m *method.Method, contentType string, body []byte) error {
	if m.HTTP.Body == "" {
		return problem.New(problem.Invalid, problem.InvalidRequest, "", "this request takes no body")
	}
	if t, _, err := mime.ParseMediaType(contentType); err != nil || t != "application/json" {
		return problem.New(problem.Invalid, problem.UnsupportedMediaType, "", "the body has to be application/json")
	}
	if err := jsonx.Check(body, maxDepth); err != nil {
		return problem.New(problem.Invalid, problem.InvalidRequest, "", "the body is no sound JSON: %v", err)
	}
	msg, prefix := bodyMessage(m), ""
	if m.HTTP.Body != "*" {
		prefix = m.HTTP.Body
	}
	v := jsonx.NewChecked(body)
	if _, ok := v.Object(); !ok {
		return problem.New(problem.Invalid, problem.InvalidRequest, "", "the body is no JSON object")
	}
	err := protojson.Unmarshal(body, msg)
	if err == nil {
		return nil
	}
	if at := explain(msg.ProtoReflect().Type(), v, prefix); at != nil {
		return at
	}
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "the body is not what this request takes").WithCause(err)
}

// bodyMessage returns an empty message of the type that the body holds.
func bodyMessage(m *method.Method) proto.Message {
	in := m.NewInput()
	if m.HTTP.Body == "*" {
		return in
	}
	f := m.Desc.Input().Fields().ByName(protoreflect.Name(m.HTTP.Body))
	return in.ProtoReflect().NewField(f).Message().Interface()
}

func masks(m *method.Method) bool {
	return m.HTTP.Verb == http.MethodPatch && m.Desc.Input().Fields().ByName(updateMask) != nil
}

// describing are fields that say which resource it is and in what state it was read.
// A caller may send them along; they are nothing to change.
var describing = map[string]bool{"name": true, "uid": true, "etag": true, "create_time": true, "update_time": true, "creator": true}

// maskOf makes the update mask of a PATCH that has none: the members of its body,
// so that false and "" can be set too.
func maskOf(m *method.Method, body []byte) (string, error) {
	if len(body) == 0 {
		return "", nil
	}
	o, ok := jsonx.NewChecked(body).Object()
	if !ok {
		return "", nil
	}
	fields := bodyMessage(m).ProtoReflect().Descriptor().Fields()
	var paths []string
	seen := false
	for key, _, more := o.Next(); more; key, _, more = o.Next() {
		seen = true
		f := fieldOf(fields, string(key))
		if f == nil || describing[string(f.Name())] {
			continue
		}
		paths = append(paths, string(f.Name()))
	}
	if seen && len(paths) == 0 {
		return "", resource.Invalid(updateMask, "the body holds nothing that can be changed")
	}
	slices.Sort(paths)
	return strings.Join(paths, ","), nil
}
