package conversation

import (
	"mime"
	"strconv"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// EventStream is the media type of a stream of events (7.6).
const EventStream = "text/event-stream"

// AppendEvent appends a recorded event as it stands in a stream: its id, by which the
// agent resumes, and the JSON that a read has (7.6). Nothing else in a stream has an id.
func AppendEvent(dst []byte, e Event) ([]byte, error) {
	raw, err := EncodeEvent(e) // compact JSON: control characters are escaped, so it is one line
	if err != nil {
		return dst, err
	}
	dst = append(dst, "id: "...)
	dst = append(dst, e.ID...)
	dst = append(dst, "\ndata: "...)
	dst = append(dst, raw...)
	return append(dst, "\n\n"...), nil
}

// AppendDelta appends a piece of a message that is still being written (7.6). It is no
// event: it has no id, and no other reader sees it.
func AppendDelta(dst []byte, messageID, text string) []byte {
	dst = append(dst, "event: text-delta\ndata: {\"message_id\":"...)
	dst = jsonx.AppendString(dst, strings.ToValidUTF8(messageID, "\uFFFD"))
	dst = append(dst, ",\"text\":"...)
	dst = jsonx.AppendString(dst, strings.ToValidUTF8(text, "\uFFFD"))
	return append(dst, "}\n\n"...)
}

// AppendComment appends a line that says nothing, which keeps a quiet stream open.
func AppendComment(dst []byte) []byte { return append(dst, ": \n\n"...) }

// WithLastEventID returns q as a stream that reconnects means it: the header goes before
// the cursor, and an empty one counts as none (7.6#d42). What is in it is judged like a
// cursor, with the conversation at hand.
func (q ReadQuery) WithLastEventID(values []string) (ReadQuery, error) {
	switch {
	case len(values) > 1:
		return ReadQuery{}, invalid(clauseMalformed, "Last-Event-ID", "is there more than once")
	case len(values) == 1 && values[0] != "":
		q.Cursor = values[0]
	}
	return q, nil
}

// AcceptsStream reports whether the Accept header fields of a read ask for a stream (7.6):
// by its name, since */* is what clients send that know of no streams. A field that
// can't be read asks for nothing.
func AcceptsStream(accept []string) bool {
	for _, field := range accept {
		for field != "" {
			var entry string
			entry, field = cutEntry(field)
			name, params, err := mime.ParseMediaType(entry)
			if err != nil || name != EventStream {
				continue
			}
			q, weighed := params["q"]
			if weight, err := strconv.ParseFloat(q, 64); !weighed || err == nil && weight > 0 && weight <= 1 {
				return true
			}
		}
	}
	return false
}

// cutEntry cuts a list of media types at its first comma outside of a quoted string.
func cutEntry(list string) (entry, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch {
		case quoted && list[i] == '\\':
			i++
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return strings.TrimSpace(list[:i]), list[i+1:]
		}
	}
	return strings.TrimSpace(list), ""
}
