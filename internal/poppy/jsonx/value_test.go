package jsonx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

func TestParseObject_ReadsMembersInOrder(t *testing.T) {
	object, err := jsonx.ParseObject([]byte(` { "a" : "x\n" , "\u0062" : [ 1 , "]" , {"c":"}"} ] , "n" : -12 , "t":true,"z":null } `))
	require.NoError(t, err)
	var names []string
	var kinds []jsonx.Kind
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		names = append(names, string(name))
		kinds = append(kinds, v.Kind())
	}
	require.Equal(t, []string{"a", "b", "n", "t", "z"}, names)
	require.Equal(t, []jsonx.Kind{jsonx.String, jsonx.ArrayKind, jsonx.Number, jsonx.Bool, jsonx.Null}, kinds)
	_, _, ok := object.Next()
	require.False(t, ok)
}

func TestParseObject_RefusesOtherValues(t *testing.T) {
	for _, doc := range []string{`[]`, ` "x"`, `1`, `null`} {
		_, err := jsonx.ParseObject([]byte(doc))
		require.Equal(t, jsonx.NotObject, faultOf(err), doc)
	}
}

func TestValue_OtherKindsReadAsNothing(t *testing.T) {
	v := jsonx.NewChecked([]byte(`1`))
	require.Empty(t, v.Text())
	require.Nil(t, v.Bytes())
	_, ok := v.Bool()
	require.False(t, ok)
	_, ok = v.Object()
	require.False(t, ok)
	_, ok = v.Array()
	require.False(t, ok)
	require.True(t, jsonx.Value{}.IsZero())
	require.Equal(t, jsonx.Missing, jsonx.Value{}.Kind())
	_, ok = jsonx.NewChecked([]byte(`"1"`)).Int64()
	require.False(t, ok)
}

func TestValue_Numbers(t *testing.T) {
	for _, c := range []struct {
		doc    string
		i      int64
		okI    bool
		date   int64
		okDate bool
	}{
		{`0`, 0, true, 0, true},
		{`1790900000`, 1790900000, true, 1790900000, true},
		{`-5`, -5, true, 0, false},
		{`9223372036854775807`, 9223372036854775807, true, 0, false},
		{`9223372036854775808`, 0, false, 0, false},
		{`1790900000.75`, 0, false, 1790900000, true},
		{`1.7909e9`, 0, false, 1790900000, true},
		{`1e400`, 0, false, 0, false},
		{`253402300800`, 253402300800, true, 0, false},
		{`"1790900000"`, 0, false, 0, false},
		{`null`, 0, false, 0, false},
	} {
		v := jsonx.NewChecked([]byte(c.doc))
		i, ok := v.Int64()
		require.Equal(t, c.okI, ok, c.doc)
		if ok {
			require.Equal(t, c.i, i)
		}
		date, ok := v.NumericDate()
		require.Equal(t, c.okDate, ok, c.doc)
		if ok {
			require.Equal(t, c.date, date)
		}
	}
}

func TestAppendString_EscapesWhatHasTo(t *testing.T) {
	require.Equal(t, `"a\"\\\u0001\b\t\n\f\r\u001f</é`+"\u2028"+`"`, string(jsonx.AppendString(nil, "a\"\\\x01\b\t\n\f\r\x1f</é\u2028")))
}
