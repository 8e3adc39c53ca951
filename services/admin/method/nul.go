package method

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// NULField returns the path of the first text of msg that holds a NUL character,
// which PostgreSQL can't store and SQLite can; "" when there is none.
func NULField(msg proto.Message) string {
	found := ""
	err := protorange.Range(msg.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		text, _ := last.Value.Interface().(string)
		key := ""
		if last.Step.Kind() == protopath.MapIndexStep {
			key, _ = last.Step.MapIndex().Interface().(string)
		}
		if !strings.Contains(text, "\x00") && !strings.Contains(key, "\x00") {
			return nil
		}
		// The first step names the message's type.
		found = strings.TrimPrefix(p.Path[1:].String(), ".")
		return protorange.Terminate
	})
	if err != nil {
		return "#"
	}
	return found
}
