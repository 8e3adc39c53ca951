package jsonx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

func faultOf(err error) jsonx.Fault {
	var e *jsonx.Error
	if errors.As(err, &e) {
		return e.Fault
	}
	return 0
}

// members returns an object with n members, the last of them named last.
func members(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n - 1 {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	return b.String() + `"` + last + `":0}`
}

func TestCheck_SoundDocuments(t *testing.T) {
	for _, doc := range []string{
		`null`, `true`, ` false `, `0`, `-0`, `-12.5e+10`, `1E400`, `""`, `"é 😀 \ud83d\ude00 \/"`, "\t[]\r\n",
		`{}`, `[1,[2,{"a":[]}],"x"]`, `{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`,
		members(60, "last"), "\"\x7f\"", `"\ufffe"`,
		strings.Repeat("[", 32) + strings.Repeat("]", 32),
	} {
		require.NoError(t, jsonx.Check([]byte(doc), jsonx.MaxDepth), doc)
	}
}

func TestCheck_Faults(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		want      jsonx.Fault
	}{
		{"empty", ``, jsonx.Malformed},
		{"space alone", ` `, jsonx.Malformed},
		{"trailing data", `{} {}`, jsonx.Malformed},
		{"trailing comma", `[1,]`, jsonx.Malformed},
		{"trailing comma in object", `{"a":1,}`, jsonx.Malformed},
		{"open array", `[1`, jsonx.Malformed},
		{"open object", `{"a":1`, jsonx.Malformed},
		{"open string", `"a`, jsonx.Malformed},
		{"open escape", `"\`, jsonx.Malformed},
		{"bare word", `nul`, jsonx.Malformed},
		{"comment", `/**/1`, jsonx.Malformed},
		{"single quotes", `{'a':1}`, jsonx.Malformed},
		{"name not a string", `{1:1}`, jsonx.Malformed},
		{"leading zero", `01`, jsonx.Malformed},
		{"plus", `+1`, jsonx.Malformed},
		{"no fraction", `1.`, jsonx.Malformed},
		{"no exponent", `1e`, jsonx.Malformed},
		{"minus alone", `-`, jsonx.Malformed},
		{"NaN", `NaN`, jsonx.Malformed},
		{"raw control", "\"a\nb\"", jsonx.Malformed},
		{"unknown escape", `"\x41"`, jsonx.Malformed},
		{"short escape", `"\u12"`, jsonx.Malformed},
		{"byte order mark", "\ufeff{}", jsonx.Malformed},
		{"repeated name", `{"a":1,"a":1}`, jsonx.DuplicateKey},
		{"repeated name, escaped", `{"a":1,"\u0061":2}`, jsonx.DuplicateKey},
		{"repeated name, nested", `[{"x":{"b":1,"c":2,"b":3}}]`, jsonx.DuplicateKey},
		{"repeated name after nesting", `{"a":{"z":1},"b":2,"a":3}`, jsonx.DuplicateKey},
		{"repeated name, many members", members(60, "k7"), jsonx.DuplicateKey},
		{"repeated name, at the switch to a set", members(25, "k23"), jsonx.DuplicateKey},
		{"bad UTF-8", "\"\xff\"", jsonx.InvalidUTF8},
		{"bad UTF-8 outside strings", "[\xc3]", jsonx.InvalidUTF8},
		{"overlong UTF-8", "\"\xc0\x80\"", jsonx.InvalidUTF8},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", jsonx.InvalidUTF8},
		{"high surrogate alone", `"\ud800"`, jsonx.LoneSurrogate},
		{"high surrogate, then text", `"\ud800abcdef"`, jsonx.LoneSurrogate},
		{"high surrogate twice", `"\ud800\ud800"`, jsonx.LoneSurrogate},
		{"low surrogate alone", `"\udc00"`, jsonx.LoneSurrogate},
		{"surrogate in a name", `{"\udfff":1}`, jsonx.LoneSurrogate},
		{"escaped NUL", `"a\u0000b"`, jsonx.NUL},
		{"escaped NUL in a name", `{"k\u0000":1}`, jsonx.NUL},
		{"raw NUL in a string", "\"a\x00\"", jsonx.NUL},
		{"raw NUL outside strings", "{}\x00", jsonx.NUL},
		{"nested too deeply", strings.Repeat("[", 33) + strings.Repeat("]", 33), jsonx.TooDeep},
		{"nested endlessly", strings.Repeat(`{"a":`, 100_000), jsonx.TooDeep},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := jsonx.Check([]byte(c.doc), jsonx.MaxDepth)
			require.Equal(t, c.want, faultOf(err), "%v", err)
		})
	}
}

func TestCheck_ManyMembersOfMixedDepth(t *testing.T) {
	inner := members(40, "x")
	doc := `{"k0":` + inner + `,"k1":[` + inner + `,` + inner + `],"k2":1}`
	require.NoError(t, jsonx.Check([]byte(doc), 4))
	require.Equal(t, jsonx.DuplicateKey, faultOf(jsonx.Check([]byte(doc[:len(doc)-1]+`,"k1":0}`), 4)))
}

func TestError_TellsFaultAndPlaceOnly(t *testing.T) {
	err := jsonx.Check([]byte(`{"secret":1,"secret":2}`), jsonx.MaxDepth)
	require.EqualError(t, err, "repeated member name at byte 12")
	require.Equal(t, "unknown fault", jsonx.Fault(0).String())
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e-3,"x\u00e9\ud83d\ude00",null,true],"b":{}}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\x00\"", `[[[[]]]]`, `-0`, `1e999`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := jsonx.Check(raw, jsonx.MaxDepth)
		if err != nil {
			require.NotZero(t, faultOf(err))
			return
		}
		require.True(t, json.Valid(raw), "accepted, but not JSON")
		walk(t, jsonx.NewChecked(raw), decoded(t, raw))
	})
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	require.NoError(t, dec.Decode(&v))
	return v
}

// walk checks that v reads as the value that encoding/json read.
func walk(t *testing.T, v jsonx.Value, want any) {
	t.Helper()
	switch want := want.(type) {
	case nil:
		require.Equal(t, jsonx.Null, v.Kind())
	case bool:
		got, ok := v.Bool()
		require.True(t, ok)
		require.Equal(t, want, got)
	case json.Number:
		require.Equal(t, want.String(), string(v.Raw()))
	case string:
		require.Equal(t, jsonx.String, v.Kind())
		require.Equal(t, want, v.Text())
	case []any:
		list, ok := v.Array()
		require.True(t, ok)
		for _, w := range want {
			e, ok := list.Next()
			require.True(t, ok)
			walk(t, e, w)
		}
		_, ok = list.Next()
		require.False(t, ok)
	case map[string]any:
		object, ok := v.Object()
		require.True(t, ok)
		n := 0
		for name, e, ok := object.Next(); ok; name, e, ok = object.Next() {
			w, known := want[string(name)]
			require.True(t, known)
			walk(t, e, w)
			n++
		}
		require.Len(t, want, n)
	}
}
