package conversation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// send wraps the members of a message into the body of a request.
func send(members string) []byte { return []byte(`{"message":{` + members + `}}`) }

const plain = `"id":"msg_1","sender":"agent","text":"Hi"`

func message(t require.TestingT, members string) conversation.Message {
	m, err := conversation.ParseSend(send(members))
	require.NoError(t, err)
	return m
}

// requireBytes compares byte for byte: spelling and order are part of what is promised.
func requireBytes(t testing.TB, want string, got []byte) {
	t.Helper()
	require.Equal(t, want, string(got))
}

func requireInvalid(t testing.TB, err error, msg ...any) {
	t.Helper()
	_ = invalidOf(t, err, msg...)
}

// invalidOf returns err, which has to be an invalid_request.
func invalidOf(t testing.TB, err error, msg ...any) *problem.Error {
	t.Helper()
	require.True(t, problem.Is(err, problem.InvalidRequest), append([]any{"%v: %v", err}, msg...)...)
	require.Equal(t, problem.Invalid, problem.As(err).Kind)
	return problem.As(err)
}

func TestParseStart_Whole(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.3#1", "poppy-0.1/7.4#2", "poppy-0.1/7.4#3", "poppy-0.1/7.4#5", "poppy-0.1/7.4#6", "poppy-0.1/7.4#7",
		"poppy-0.1/7.4#19", "poppy-0.1/7.4#22", "poppy-0.1/7.4#26", "poppy-0.1/7.8#2", "poppy-0.1/7.10#4")
	s, err := conversation.ParseStart([]byte(`{
		"parent_conversation_id": "cnv_8f3Kd2",
		"message": {
			"id": "msg_Yq3v8LrT0aWc5NkE", "sender": "human", "text": "Zurück <b>&\u2028",
			"data": { "b": 1.0, "a": [1e2, 12345678901234567890] },
			"context": { "locale": "en-US", "time_zone": "America/Los_Angeles", "user_available": true, "units": {"length": "m"}, "gone": null }
		}
	}`))
	require.NoError(t, err)
	require.Equal(t, "cnv_8f3Kd2", s.Parent())
	m := s.Message()
	require.Equal(t, "msg_Yq3v8LrT0aWc5NkE", m.ID())
	require.Equal(t, conversation.SenderHuman, m.Sender())
	require.Equal(t, "Zurück <b>&\u2028", m.Text())
	requireBytes(t, `{"b":1.0,"a":[1e2,12345678901234567890]}`, m.Data()) // spelled as it came
	requireBytes(t, `{"locale":"en-US","time_zone":"America/Los_Angeles","units":{"length":"m"},"user_available":true}`, m.Context())
	require.True(t, m.StartsTurn())

	s, err = conversation.ParseStart(send(plain))
	require.NoError(t, err)
	require.Empty(t, s.Parent())
	s, err = conversation.ParseStart([]byte(`{"message":{` + plain + `},"parent_conversation_id":null}`))
	require.NoError(t, err)
	require.Empty(t, s.Parent())
}

func TestParseStart_BadParent(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.2#16")
	for _, parent := range []string{`""`, `5`, `"a b"`, `{}`, `"cnv/../x"`, `"` + strings.Repeat("a", 257) + `"`} {
		_, err := conversation.ParseStart([]byte(`{"parent_conversation_id":` + parent + `,"message":{` + plain + `}}`))
		require.Equal(t, "parent_conversation_id", invalidOf(t, err, parent).Fields[0].Path)
	}
}

func TestParseSend_UnknownFieldsAreIgnored(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.3#11", "poppy-0.1/7.4#31")
	m, err := conversation.ParseSend([]byte(`{"later":[1],"message":{` + plain + `,"operation":{"x":1},"data":null,"context":null}}`))
	require.NoError(t, err)
	require.Equal(t, message(t, plain), m)
}

func TestCV05_ParseSend_RoleIsOurs(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#9")
	m := message(t, plain+`,"role":"company"`)
	require.Equal(t, conversation.RoleUser, m.Payload().Role)
}

func TestCV05_ParseSend_BadSender(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.4#3", "poppy-0.1/7.4#4", "poppy-0.1/7.8#2")
	for _, sender := range []string{`"company"`, `"robot"`, `"Agent"`, `""`, `null`, `1`, `["agent"]`} {
		_, err := conversation.ParseSend(send(`"id":"msg_1","text":"x","sender":` + sender))
		require.Equal(t, "message.sender", invalidOf(t, err, sender).Fields[0].Path)
	}
	_, err := conversation.ParseSend(send(`"id":"msg_1","text":"x"`))
	requireInvalid(t, err)
}

func TestCV06_ParseSend_Content(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#1", "poppy-0.1/7.4#28", "poppy-0.1/7.4#d46")
	clausetest.Refuses(t, "poppy-0.1/7.4#1")
	const head = `"id":"msg_1","sender":"agent"`
	for content, turn := range map[string]bool{
		`"text":"x"`:                            true,
		`"data":{}`:                             true,
		`"text":"","data":{"a":1}`:              true,
		`"text":null,"data":{"a":1}`:            true,
		`"context":{"user_available":false}`:    false,
		`"context":{},"text":"","data":null`:    false,
		`"context":{"locale":null,"other":"x"}`: false,
		`"context":{"locale":"de"},"text":"x"`:  true,
	} {
		require.Equal(t, turn, message(t, head+","+content).StartsTurn(), content)
	}
	for _, content := range []string{``, `,"text":""`, `,"text":null`, `,"data":null`, `,"context":null`, `,"text":"","data":null,"context":null`} {
		_, err := conversation.ParseSend(send(head + content))
		require.Equal(t, "message", invalidOf(t, err, content).Fields[0].Path)
	}
}

func TestParseSend_WrongTypes(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.3#1", "poppy-0.1/7.4#2", "poppy-0.1/7.4#5", "poppy-0.1/7.4#6", "poppy-0.1/7.4#7", "poppy-0.1/7.4#d46",
		"poppy-0.1/7.2#16", "poppy-0.1/7.13#14")
	for _, c := range []struct{ path, body string }{
		{"message", `{}`},
		{"message", `{"message":null}`},
		{"message", `{"message":[]}`},
		{"message", `{"Message":{` + plain + `}}`},
		{"message.id", `{"message":{"sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":1,"sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":"","sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":"bad id!","sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":"msg.1","sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":"mségé","sender":"agent","text":"x"}}`},
		{"message.id", `{"message":{"id":"` + strings.Repeat("m", 257) + `","sender":"agent","text":"x"}}`},
		{"message.text", `{"message":{"id":"m","sender":"agent","text":7}}`},
		{"message.data", `{"message":{"id":"m","sender":"agent","data":[1]}}`},
		{"message.data", `{"message":{"id":"m","sender":"agent","data":"{}"}}`},
		{"message.data", `{"message":{"id":"m","sender":"agent","data":{"n":1e999}}}`},
		{"message.context", `{"message":{"id":"m","sender":"agent","context":true}}`},
		{"message.context.locale", `{"message":{"id":"m","sender":"agent","context":{"locale":"en_US"}}}`},
		{"message.context.locale", `{"message":{"id":"m","sender":"agent","context":{"locale":5}}}`},
		{"message.context.locale", `{"message":{"id":"m","sender":"agent","context":{"locale":""}}}`},
		{"message.context.time_zone", `{"message":{"id":"m","sender":"agent","context":{"time_zone":-7}}}`},
		{"message.context.user_available", `{"message":{"id":"m","sender":"agent","context":{"user_available":"yes"}}}`},
	} {
		_, err := conversation.ParseSend([]byte(c.body))
		require.Equal(t, c.path, invalidOf(t, err, c.body).Fields[0].Path, c.body)
		_, err = conversation.ParseStart([]byte(c.body))
		requireInvalid(t, err, c.body)
	}
	message(t, `"id":"`+strings.Repeat("m", 256)+`","sender":"agent","text":"x"`)
	message(t, `"id":"-_09azAZ","sender":"agent","text":"x"`)
}

func TestGW08_CO04_ParseSend_UnsoundJSON(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.13#14")
	for _, body := range []string{
		``, `null`, `[]`, `{`, string(send(plain)) + `x`,
		`{"message":{` + plain + `},"message":{` + plain + `}}`,
		`{"message":{` + plain + `,"sender":"human"}}`,
		`{"message":{` + plain + `,"data":{"a":1,"\u0061":2}}}`,
		`{"message":{"id":"m","sender":"agent","text":"a\u0000b"}}`,
		`{"message":{"id":"m","sender":"agent","data":{"k\u0000":1}}}`,
		`{"message":{"id":"m","sender":"agent","text":"\ud800"}}`,
		"{\"message\":{\"id\":\"m\",\"sender\":\"agent\",\"text\":\"\xff\"}}",
		"{\"message\":{\"id\":\"m\",\"sender\":\"agent\",\"text\":\"a\x00b\"}}",
		`{"message":{"id":"m","sender":"agent","data":` + nest(40) + `}}`,
		`{"message":{"id":"m","sender":"agent","data":` + nest(conversation.MaxDepth+1) + `}}`,
	} {
		_, err := conversation.ParseSend([]byte(body))
		requireInvalid(t, err, body)
		_, err = conversation.ParseStart([]byte(body))
		requireInvalid(t, err, body)
	}
	message(t, `"id":"m","sender":"agent","data":`+nest(conversation.MaxDepth))
	require.Equal(t, "a\\u0000", message(t, `"id":"m","sender":"agent","text":"a\\u0000"`).Text()) // a backslash, not a NUL
}

func nest(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + `{}` + strings.Repeat(`}`, depth-1)
}

func TestParseSend_Sizes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#10")
	object := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }
	m := message(t, `"id":"m","sender":"agent","text":"`+strings.Repeat("é", conversation.MaxText)+`","data": `+object(conversation.MaxObject))
	require.Len(t, m.Data(), conversation.MaxObject)
	for path, members := range map[string]string{
		"message.text":    `"text":"` + strings.Repeat("é", conversation.MaxText+1) + `"`,
		"message.data":    `"data":` + object(conversation.MaxObject+1),
		"message.context": `"context":` + object(conversation.MaxObject+1),
		"body":            `"text":"x","other":"` + strings.Repeat("x", conversation.MaxBody) + `"`,
	} {
		_, err := conversation.ParseSend(send(`"id":"m","sender":"agent",` + members))
		require.True(t, problem.Is(err, problem.RequestTooLarge), "%s: %v", path, err)
		require.Equal(t, problem.TooLarge, problem.As(err).Kind)
		require.Equal(t, path, problem.As(err).Fields[0].Path)
	}
}

func TestParseEmptyBody(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.12#1")
	clausetest.Refuses(t, "poppy-0.1/7.12#1")
	require.NoError(t, conversation.ParseEmptyBody([]byte(`{}`)))
	require.NoError(t, conversation.ParseEmptyBody([]byte(` {"why":"done"} `)))
	for _, body := range []string{``, `null`, `[]`, `{"a":1,"a":1}`} {
		requireInvalid(t, conversation.ParseEmptyBody([]byte(body)), body)
	}
	require.True(t, problem.Is(conversation.ParseEmptyBody(make([]byte, conversation.MaxBody+1)), problem.RequestTooLarge))
}

func TestParseSend_Locale(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#19", "poppy-0.1/7.4#d46")
	clausetest.Refuses(t, "poppy-0.1/7.4#d46")
	for _, tag := range []string{
		"en", "en-US", "EN-us", "zh-Hant-TW", "zh-cmn-Hans-CN", "sr-Latn-RS", "sl-rozaj-biske", "de-CH-1901", "hy-Latn-IT-arevela", "es-419",
		"de-DE-u-co-phonebk", "en-a-myext-b-another", "x-whatever", "de-x-goethe", "qaa-Qaaa-QM-x-southern", "i-klingon", "sgn-BE-FR",
		"en-GB-oed", "art-lojban", "und", "en-u-ca", "abcd", "xx-QQ",
	} {
		m := message(t, fmt.Sprintf(`"id":"m","sender":"agent","context":{"locale":%q}`, tag))
		require.Contains(t, string(m.Context()), tag)
	}
	for _, tag := range []string{
		"e", "en_US", "en-", "-en", "en--US", "a-DE", "en-US-", "de-419-DE", "en-u", "en-x", "x", "english-language!", "toolonglanguage", "ar-a-aaa-b",
		"en US", "en-ü", "123", "en-Latn-Latn", "i-unknown", strings.Repeat("a", 9), "en-x-" + strings.Repeat("a-", 200) + "a",
	} {
		_, err := conversation.ParseSend(send(fmt.Sprintf(`"id":"m","sender":"agent","context":{"locale":%q}`, tag)))
		requireInvalid(t, err, tag)
	}
}

func TestMergeContext(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#27", "poppy-0.1/7.4#28", "poppy-0.1/7.4#d46")
	for _, c := range []struct{ old, update, want string }{
		{``, ``, ``},
		{``, `{}`, ``},
		{`{}`, ``, ``},
		{``, `{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{`{"locale":"en","user_available":true}`, `{"user_available":false}`, `{"locale":"en","user_available":false}`},
		{`{"locale":"en","x":{"a":1}}`, `{"locale":null,"x":{"b":2}}`, `{"locale":"en","x":{"b":2}}`},
		{`{"a":1.0}`, `{"b":10000000000000000001}`, `{"a":1.0,"b":10000000000000000001}`},
		{`{"q\"\u00e9":1}`, `{"q\"é":2}`, `{"q\"é":2}`},
	} {
		got, err := conversation.MergeContext([]byte(c.old), []byte(c.update))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), "%+v", c)
		again, err := conversation.MergeContext(got, []byte(c.update))
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	}
	big := func(name string) json.RawMessage {
		return json.RawMessage(`{"` + name + `":"` + strings.Repeat("x", conversation.MaxObject/2) + `"}`)
	}
	_, err := conversation.MergeContext(big("a"), big("b"))
	require.True(t, problem.Is(err, problem.RequestTooLarge))
	_, err = conversation.MergeContext(nil, []byte(`[]`))
	requireInvalid(t, err)
}

func TestID01_ContentHash(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.3#d17", "poppy-0.1/7.3#8")
	clausetest.Refuses(t, "poppy-0.1/7.3#d17", "poppy-0.1/7.3#11", "poppy-0.1/7.3#d16")
	hash := func(members string, target conversation.Target) [32]byte {
		h, err := conversation.ContentHash(message(t, members), target)
		require.NoError(t, err)
		return h
	}
	const whole = `"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"de"}`
	here := conversation.ConversationTarget("cnv_1")
	want := hash(whole, here)
	for _, same := range []string{
		`"context":{"locale":"de"},"data":{"b":[1.5,{"c":"x"}],"a":1},"text":"H\u00e9","sender":"agent","id":"msg_1"`,
		`"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1.0,"b":[15e-1,{"c":"\u0078"}]},"context":{"locale":"de"}`,
		` "id" : "msg_1","sender":"agent","text":"Hé","data":{ "a":1, "b":[1.5,{"c":"x"}]},"context":{"locale":"de","user_available":null}`,
		whole + `,"unknown":{"a":1},"role":"company"`,
	} {
		require.Equal(t, want, hash(same, here), same)
	}
	seen := map[[32]byte]string{want: whole}
	for _, other := range []string{
		`"id":"msg_2","sender":"agent","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"de"}`,
		`"id":"msg_1","sender":"human","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"de"}`,
		`"id":"msg_1","sender":"agent","text":"He","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"de"}`,
		`"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1,"b":[{"c":"x"},1.5]},"context":{"locale":"de"}`,
		`"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}],"n":null},"context":{"locale":"de"}`,
		`"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"fr"}`,
		`"id":"msg_1","sender":"agent","text":"Hé","data":{"a":1,"b":[1.5,{"c":"x"}]}`,
		`"id":"msg_1","sender":"agent","text":"Hé","context":{"locale":"de"}`,
		`"id":"msg_1","sender":"agent","data":{"a":1,"b":[1.5,{"c":"x"}]},"context":{"locale":"de"}`,
	} {
		h := hash(other, here)
		require.NotContains(t, seen, h, other)
		seen[h] = other
	}
	for _, target := range []conversation.Target{
		conversation.NewTarget(""), conversation.NewTarget("cnv_1"), conversation.ConversationTarget("cnv_2"), conversation.NewTarget("cnv_2"),
	} {
		h := hash(whole, target)
		require.NotContains(t, seen, h)
		seen[h] = "target"
	}
	require.Equal(t, hash(plain, conversation.NewTarget("")), hash(`"id":"msg_1","sender":"agent","text":"Hi","data":null`, conversation.NewTarget("")))
}

func TestCV05_ParseCompanyMessage(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#8", "poppy-0.1/7.4#29", "poppy-0.1/7.4#30", "poppy-0.1/7.7#15", "poppy-0.1/7.7#16")
	m, err := conversation.ParseCompanyMessage("", "Hi", []byte(` {"a": 1} `))
	require.NoError(t, err)
	require.Equal(t, conversation.MessagePayload{
		ID: "msg_c", Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: "Hi", Data: json.RawMessage(`{"a":1}`),
	}, m.Payload("msg_c"))
	m, err = conversation.ParseCompanyMessage("human", "", []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, conversation.SenderHuman, m.Sender())
	require.Empty(t, m.Text())
	require.Equal(t, `{}`, string(m.Data()))
	m, err = conversation.ParseCompanyMessage("agent", "x", []byte(`null`))
	require.NoError(t, err)
	require.Nil(t, m.Data())
	for _, c := range []struct{ sender, text, data string }{
		{"company", "x", ""},
		{"user", "x", ""},
		{"", "", ""},
		{"", "", "null"},
		{"", "a\x00b", ""},
		{"", "\xff", ""},
		{"", "x", "[]"},
		{"", "x", "1"},
		{"", "x", `{"a":1,"a":1}`},
		{"", "x", `{}{}`},
		{"", "x", `{},"b":{}`},
		{"", "x", `{"n":1e999}`},
		{"", "x", " "},
		{"", "x", nest(conversation.MaxDepth + 1)},
	} {
		_, err := conversation.ParseCompanyMessage(c.sender, c.text, []byte(c.data))
		requireInvalid(t, err, fmt.Sprintf("%+v", c))
	}
	for _, c := range [][2]string{
		{strings.Repeat("x", conversation.MaxText+1), ""},
		{"x", `{"a":"` + strings.Repeat("x", conversation.MaxObject) + `"}`},
		{"x", strings.Repeat(" ", conversation.MaxBody+1)},
	} {
		_, err := conversation.ParseCompanyMessage("", c[0], []byte(c[1]))
		require.True(t, problem.Is(err, problem.RequestTooLarge))
	}
}

func TestCheckOwner(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.2#12", "poppy-0.1/7.2#13", "poppy-0.1/7.2#14", "poppy-0.1/7.11#d21", "poppy-0.1/7.11#15")
	clausetest.Refuses(t, "poppy-0.1/7.2#15", "poppy-0.1/7.13#3", "poppy-0.1/7.13#d21", "poppy-0.1/7.11#d21")
	owner := func(client, user, account string) conversation.Owner {
		return conversation.Owner{ClientID: client, UserID: user, AccountID: account}
	}
	for _, ok := range [][2]conversation.Owner{
		{owner("c", "u", ""), owner("c", "u", "")},
		{owner("c", "u", ""), owner("c", "u", "a")},
		{owner("c", "u", "a"), owner("c", "u", "a")},
	} {
		require.NoError(t, conversation.CheckOwner(ok[0], ok[1]))
	}
	require.True(t, problem.Is(conversation.CheckOwner(owner("c", "u", "a"), owner("c", "u", "")), problem.SignInRequired))
	for _, foreign := range [][2]conversation.Owner{
		{owner("c", "u", ""), owner("d", "u", "")},
		{owner("c", "u", ""), owner("c", "v", "")},
		{owner("c", "u", "a"), owner("c", "v", "")},
		{owner("c", "u", "a"), owner("c", "v", "a")},
		{owner("c", "u", "a"), owner("d", "u", "a")},
		{owner("c", "u", "a"), owner("c", "u", "b")},
	} {
		err := problem.As(conversation.CheckOwner(foreign[0], foreign[1]))
		require.Equal(t, problem.ConversationNotFound, err.Reason)
		require.Equal(t, conversation.NotFound("").Detail, err.Detail) // not to be told from an id that never was
		require.Empty(t, err.Fields)
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add(send(plain))
	f.Add([]byte(`{"parent_conversation_id":"cnv_1","message":{` + plain + `,"data":{"a":[1.0,null]},"context":{"locale":"en-US","time_zone":"UTC","user_available":true,"x":null}}}`))
	f.Add([]byte(`{"message":{"id":"m","sender":"human","context":{}}}`))
	f.Add([]byte(`{"message":{"id":"m","sender":"agent","text":"\u0000"}}`))
	f.Add([]byte(`{"message":{},"message":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := conversation.ParseStart(body)
		if err != nil {
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		m := s.Message()
		require.NoError(t, conversation.CheckID("id", m.ID()))
		_, err = conversation.ContentHash(m, conversation.NewTarget(s.Parent()))
		require.NoError(t, err)
		_, err = conversation.MergeContext(nil, m.Context())
		require.NoError(t, err)
		raw, err := conversation.EncodePayload(m.Payload())
		require.NoError(t, err)
		require.True(t, json.Valid(raw))
		require.NotContains(t, string(raw), `\u0000`)
	})
}
