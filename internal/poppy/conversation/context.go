package conversation

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// parseContext reads an optional context object and drops members that are null.
func parseContext(path string, v jsonx.Value) (json.RawMessage, error) {
	raw, err := parseObject(clauseContext, path, v)
	if raw == nil || err != nil {
		return nil, err
	}
	fields, err := contextFields(raw)
	if err != nil {
		return nil, malformed(path, err)
	}
	if v := fields["locale"]; isThere(v) && !isLanguageTag(v.Text()) {
		return nil, invalid(clauseContextFields, path+".locale", "is no well-formed language tag (RFC 5646)")
	}
	if v := fields["time_zone"]; isThere(v) && (v.Kind() != jsonx.String || v.Text() == "") {
		return nil, invalid(clauseContextFields, path+".time_zone", "is no time zone name")
	}
	if v := fields["user_available"]; isThere(v) && v.Kind() != jsonx.Bool {
		return nil, invalid(clauseContextFields, path+".user_available", "is no boolean")
	}
	return appendContext(nil, fields), nil
}

func contextFields(raw []byte) (members, error) {
	if len(raw) == 0 {
		return members{}, nil
	}
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	return membersOf(obj), nil
}

// appendContext writes the members that are there, sorted by name.
func appendContext(dst []byte, fields members) json.RawMessage {
	dst = append(dst, '{')
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !isThere(fields[name]) {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, name), ':')
		dst = append(dst, fields[name].Raw()...)
	}
	return append(dst, '}')
}

// MergeContext lays the context of a new message over what is known: fields the
// message leaves out, or gives as null, keep their value; a field it has replaces
// the old one whole (7.4). Either may be nil; the result is nil when there is
// nothing in it. A result above MaxObject is refused, so that a conversation's
// context can't be grown without end.
func MergeContext(old, update json.RawMessage) (json.RawMessage, error) {
	merged, err := contextFields(old)
	if err != nil {
		return nil, malformed("context", err)
	}
	fields, err := contextFields(update)
	if err != nil {
		return nil, malformed("context", err)
	}
	for name, value := range fields {
		if isThere(value) {
			merged[name] = value
		}
	}
	out := appendContext(nil, merged)
	if len(out) == len("{}") {
		return nil, nil
	}
	if len(out) > MaxObject {
		return nil, tooLarge("message.context", "makes the conversation's context larger than %d bytes", MaxObject)
	}
	return out, nil
}
