package jsonx_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

func canonical(t *testing.T, doc string) string {
	t.Helper()
	out, err := jsonx.Canonical([]byte(doc))
	require.NoError(t, err)
	return string(out)
}

// The sample of RFC 8785 §3.2.2 and §3.2.4.
func TestCanonical_SampleOfTheRFC(t *testing.T) {
	in := `{
	  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
	  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
	  "literals": [null, true, false]
	}`
	want := `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`
	require.Equal(t, want, canonical(t, in))
}

// The sorting sample of RFC 8785 §3.2.3: U+1F600 sorts before U+FB33 by UTF-16.
func TestCanonical_SortsByUTF16(t *testing.T) {
	in := `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`
	want := "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"
	require.Equal(t, want, canonical(t, in))
	require.Equal(t, `{"a":1,"aa":2,"ab":3}`, canonical(t, `{"ab":3,"aa":2,"a":1}`))
}

// Values of RFC 8785 Appendix B.
func TestCanonical_Numbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555555: "333333333.3333333",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		doc := strconv.FormatFloat(math.Float64frombits(bits), 'e', -1, 64)
		require.Equal(t, want, canonical(t, doc))
	}
	require.Equal(t, canonical(t, `1`), canonical(t, `1.0`))
	require.Equal(t, `[1,100,0.001,1e-7]`, canonical(t, ` [ 1.0 , 1e2, 1E-3, 0.0000001 ] `))
	require.Equal(t, `0`, canonical(t, `1e-999`))
}

func TestCanonical_Refuses(t *testing.T) {
	for doc, want := range map[string]jsonx.Fault{
		`{"a":1,"a":1}`: jsonx.DuplicateKey,
		`"\ud800"`:      jsonx.LoneSurrogate,
		`[1,-1e400]`:    jsonx.NumberRange,
		`{`:             jsonx.Malformed,
	} {
		_, err := jsonx.Canonical([]byte(doc))
		require.Equal(t, want, faultOf(err), doc)
	}
	_, err := jsonx.Canonical([]byte(`{"a":[1,-1e400]}`))
	require.EqualError(t, err, "number out of range at byte 8")
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":1.0,"a":[1e21,1e-7,"\u0001\ud83d\ude00é"],"\ufb33":0,"\ud83d\ude00":-0}`, `"\u20ac"`, `[]`, `123456789012345678901234567890`, `1e999`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := jsonx.Canonical(raw)
		if err != nil {
			return
		}
		twice, err := jsonx.Canonical(once)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice), "not idempotent")
	})
}
