package a2a_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/services/relay/a2a"
)

func TestParseCard_BothVersions(t *testing.T) {
	got, err := a2a.ParseCard([]byte(`{"name":"x","supportedInterfaces":[
		{"url":"https://a.example/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},
		{"url":"https://a.example/old","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
		{"url":"https://a.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t"}],"capabilities":{"streaming":true}}`))
	require.NoError(t, err)
	require.Equal(t, []a2a.Interface{
		{URL: "https://a.example/rpc", Version: a2a.V1, Tenant: "t", Stream: true}, {URL: "https://a.example/old", Version: a2a.V03, Stream: true},
	}, got)
	got, err = a2a.ParseCard([]byte(`{"protocolVersion":"0.3.0","url":"https://a.example/grpc","preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://a.example/rpc","transport":"JSONRPC"}]}`))
	require.NoError(t, err)
	require.Equal(t, []a2a.Interface{{URL: "https://a.example/rpc", Version: a2a.V03}}, got)
	for _, bad := range []string{``, `[]`, `{}`, `{"url":"https://a.example","protocolVersion":"2.0"}`, `{"url":"https://a.example","preferredTransport":"GRPC"}`} {
		_, err := a2a.ParseCard([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestIsCard(t *testing.T) {
	for raw, want := range map[string]bool{"https://a.example/.well-known/agent-card.json?x=1": true, "https://a.example/agent.json": true, "https://a.example/a2a": false, "https://a.example": false} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, want, a2a.IsCard(u), raw)
	}
}

func TestBuildSend(t *testing.T) {
	m := a2a.Message{ID: "dlv_1", Context: "cnv_1", Text: "Hello <b>", Data: json.RawMessage(`{"a":1}`), Metadata: json.RawMessage(`{"sender":"agent"}`)}
	got, err := a2a.Interface{Version: a2a.V1, Tenant: "t"}.BuildSend(m, true)
	require.NoError(t, err)
	require.JSONEq(t, `{"jsonrpc":"2.0","id":"dlv_1","method":"SendStreamingMessage","params":{"tenant":"t","message":{"messageId":"dlv_1","contextId":"cnv_1","role":"ROLE_USER",
		"parts":[{"text":"Hello <b>"},{"data":{"a":1}}],"metadata":{"poppyfield":{"sender":"agent"}}},"configuration":{"acceptedOutputModes":["text/plain","application/json"]}}}`, string(got))
	got, err = a2a.Interface{Version: a2a.V03}.BuildSend(m, false)
	require.NoError(t, err)
	require.JSONEq(t, `{"jsonrpc":"2.0","id":"dlv_1","method":"message/send","params":{"message":{"kind":"message","messageId":"dlv_1","contextId":"cnv_1","role":"user",
		"parts":[{"kind":"text","text":"Hello <b>"},{"kind":"data","data":{"a":1}}],"metadata":{"poppyfield":{"sender":"agent"}}},
		"configuration":{"acceptedOutputModes":["text/plain","application/json"],"blocking":true}}}`, string(got))
	got, err = a2a.Interface{Version: a2a.V03}.BuildGet("dlv_1", "task-1")
	require.NoError(t, err)
	require.JSONEq(t, `{"jsonrpc":"2.0","id":"dlv_1","method":"tasks/get","params":{"id":"task-1"}}`, string(got))
}

// took is what an Answer holds after responses with these results.
func took(t *testing.T, results ...string) (*a2a.Answer, []string, []string) {
	t.Helper()
	var pieces, said []string
	a := a2a.NewAnswer(func(p string) { pieces = append(pieces, p) })
	for _, r := range results {
		require.NoError(t, a.Take([]byte(`{"jsonrpc":"2.0","id":"1","result":`+r+`}`)), r)
	}
	messages, err := a.Messages()
	require.NoError(t, err)
	for _, m := range messages {
		said = append(said, m.Text()+string(m.Data()))
	}
	return a, pieces, said
}

func TestAnswer_ChunksOfArtifacts(t *testing.T) {
	for name, r := range map[string][]string{
		"1.0": {
			`{"task":{"id":"t","status":{"state":"TASK_STATE_SUBMITTED"}}}`,
			`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING","message":{"role":"ROLE_AGENT","parts":[{"text":"Looking"}]}}}}`,
			`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"It is "}]}}}`,
			`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"there."},{"data":{"x":1}}]},"append":true}}`,
			`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"b","parts":[{"url":"https://a.example/f.pdf","filename":"f.pdf","mediaType":"application/pdf"}]}}}`,
			`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`,
		},
		"0.3": {
			`{"kind":"task","id":"t","status":{"state":"submitted"}}`,
			`{"kind":"status-update","taskId":"t","status":{"state":"working","message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"Looking"}]}},"final":false}`,
			`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"It is "}]}}`,
			`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"there."},{"kind":"data","data":{"x":1}}]},"append":true}`,
			`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"b","parts":[{"kind":"file","file":{"uri":"https://a.example/f.pdf","name":"f.pdf","mimeType":"application/pdf"}}]}}`,
			`{"kind":"status-update","taskId":"t","status":{"state":"completed"},"final":true}`,
		},
	} {
		a, pieces, said := took(t, r...)
		require.Equal(t, a2a.Completed, a.State, name)
		require.Equal(t, "t", a.Task)
		require.Equal(t, []string{"It is ", "there."}, pieces, name)
		require.Equal(t, []string{`It is there.{"x":1}`, `{"files":[{"url":"https://a.example/f.pdf","name":"f.pdf","media_type":"application/pdf"}]}`}, said, name)
	}
}

func TestAnswer_WholeTasksAndMessages(t *testing.T) {
	for result, want := range map[string][]string{
		`{"message":{"role":"ROLE_AGENT","parts":[{"text":"One."},{"text":"Two."}]}}`:                                                                                                    {"One.\nTwo."},
		`{"kind":"message","role":"agent","parts":[{"kind":"text","text":"Hi."}]}`:                                                                                                       {"Hi."},
		`{"message":{"role":"ROLE_AGENT","parts":[{"data":[1]},{"data":{"a":1}}]}}`:                                                                                                      {`{"items":[[1],{"a":1}]}`},
		`{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"Same."}]}},"artifacts":[{"artifactId":"a","parts":[{"text":"Sa"},{"text":"me."}]}]}}`:   {"Same."},
		`{"id":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[{"text":"Which?"}]}}}`:                                                                              {"Which?"},
		`{"kind":"task","id":"t","status":{"state":"completed"},"history":[{"role":"user","parts":[{"kind":"text","text":"Q"}]},{"role":"agent","parts":[{"kind":"text","text":"A"}]}]}`: {"A"},
		`{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"history":[{"role":"ROLE_USER","parts":[{"text":"Q"}]}]}}`:                                                          nil,
		`{"message":{"role":"ROLE_AGENT","parts":[{"raw":"AAAA","filename":"x"}]}}`:                                                                                                      nil,
	} {
		a, _, said := took(t, result)
		require.True(t, a.Over(), result)
		require.Equal(t, want, said, result)
	}
}

func TestAnswer_AReplacedArtifactTellsNoPieces(t *testing.T) {
	_, pieces, said := took(t,
		`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"Draft"}]}}}`,
		`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"Final"}]}}}`,
		`{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"b","parts":[{"text":"Other"}]}}}`,
		`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`)
	require.Equal(t, []string{"Draft"}, pieces)
	require.Equal(t, []string{"Final", "Other"}, said)
}

func TestAnswer_States(t *testing.T) {
	for state, want := range map[string]a2a.State{
		"TASK_STATE_WORKING": a2a.Open, "submitted": a2a.Open, "unheard-of": a2a.Open, "": a2a.Open, "auth-required": a2a.AuthRequired, "TASK_STATE_AUTH_REQUIRED": a2a.AuthRequired,
		"rejected": a2a.Rejected, "TASK_STATE_CANCELED": a2a.Canceled, "TASK_STATE_FAILED": a2a.Failed, "input-required": a2a.InputRequired,
	} {
		a, _, _ := took(t, `{"kind":"task","id":"t","status":{"state":"`+state+`"}}`)
		require.Equal(t, want, a.State, state)
	}
}

func TestAnswer_ErrorsAndRubbish(t *testing.T) {
	a := a2a.NewAnswer(nil)
	var reported *a2a.Error
	require.ErrorAs(t, a.Take([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"words"}}`)), &reported)
	require.True(t, reported.NotSpoken())
	require.True(t, reported.NotStreamed())
	require.NotContains(t, reported.Error(), "words")
	for _, bad := range []string{``, `[]`, `{}`, `{"result":[]}`, `{"result":{}}`, `{"result":null}`, `{"result":{"kind":"task","status":7}}`} {
		require.Error(t, a.Take([]byte(bad)), bad)
	}
}

func TestStream_EndsWithTheTask(t *testing.T) {
	a := a2a.NewAnswer(nil)
	s := a2a.NewStream(a)
	event := func(r string) []byte { return []byte("data: {\"jsonrpc\":\"2.0\",\"result\":" + r + "}\n\n") }
	for _, b := range event(`{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`) {
		require.NoError(t, s.Write([]byte{b}))
	}
	require.False(t, s.Done())
	require.NoError(t, s.Write(event(`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"Done."}]}}}}`)))
	require.True(t, s.Done())
	require.NoError(t, s.Write(event(`"late"`)), "what comes later is nobody's")
	messages, err := a.Messages()
	require.NoError(t, err)
	require.Equal(t, "Done.", messages[0].Text())
	require.Error(t, a2a.NewStream(a2a.NewAnswer(nil)).Write([]byte("data: x\n\n")))
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(`data: {"result":{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"append":true}}}` + "\n\n"))
	f.Add([]byte(`data: {"result":{"kind":"task","id":"t","status":{"state":"completed"}}}` + "\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got strings.Builder
		a := a2a.NewAnswer(func(p string) { got.WriteString(p) })
		_ = a2a.NewStream(a).Write(raw)
		_, _ = a.Messages()
		require.LessOrEqual(t, got.Len(), 4*len(raw)) // an escape such as \ufffd never grows
	})
}
