package conversation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

var noon = time.Date(2026, 10, 10, 14, 0, 4, 5_600_000, time.FixedZone("", 2*60*60))

func TestEncodeEvent_EveryType(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#9", "poppy-0.1/7.5#4", "poppy-0.1/7.5#5", "poppy-0.1/7.5#6", "poppy-0.1/7.5#7", "poppy-0.1/7.5#8",
		"poppy-0.1/7.5#9", "poppy-0.1/7.5#10", "poppy-0.1/7.5#11", "poppy-0.1/7.5#12", "poppy-0.1/7.7#15", "poppy-0.1/7.11#4")
	for _, c := range []struct {
		payload conversation.Payload
		members string
	}{
		{
			message(t, `"id":"msg_1","sender":"human","text":"<b> & \u2028","context":{"locale":"de"}`).Payload(),
			`"type":"message",*,"message":{"id":"msg_1","role":"user","sender":"human","text":"<b> & \u2028"}`,
		},
		{
			message(t, `"id":"msg_1","sender":"agent","context":{"user_available":false}`).Payload(),
			`"type":"message",*,"message":{"id":"msg_1","role":"user","sender":"agent"}`,
		},
		{
			companyMessage(t, "", `{"n":1.0}`).Payload("msg_c"),
			`"type":"message",*,"message":{"id":"msg_c","role":"company","sender":"agent","data":{"n":1.0}}`,
		},
		{
			conversation.StatePayload{Status: conversation.Queued, Responder: conversation.ResponderHuman},
			`"type":"state",*,"status":"queued","responder":"human"`,
		},
		{
			conversation.AuthorizationPayload{Error: "insufficient_scope", Scope: "poppy:read poppy:write"},
			`"type":"authorization",*,"error":"insufficient_scope","scope":"poppy:read poppy:write"`,
		},
		{conversation.AuthorizationPayload{Error: "sign_in_required"}, `"type":"authorization",*,"error":"sign_in_required"`},
		{conversation.UserRequestedPayload{Reason: "Please confirm."}, `"type":"user_requested",*,"reason":"Please confirm."`},
		{conversation.DirectOpenedPayload{ConversationID: "cnv_d"}, `"type":"direct_opened",*,"conversation_id":"cnv_d"`},
		{conversation.DirectClosedPayload{ConversationID: "cnv_d"}, `"type":"direct_closed",*,"conversation_id":"cnv_d"`},
	} {
		raw, err := conversation.EncodeEvent(conversation.Event{ID: "evt_1", CreatedAt: noon, Payload: c.payload})
		require.NoError(t, err)
		head, tail := cutStar(c.members)
		require.Equal(t, `{"id":"evt_1",`+head+`"created_at":"2026-10-10T12:00:04.005Z"`+tail+`}`, string(raw))

		stored, err := conversation.EncodePayload(c.payload)
		require.NoError(t, err)
		back, err := conversation.DecodePayload(c.payload.Type(), stored)
		require.NoError(t, err)
		require.Equal(t, c.payload, back)
	}
}

func cutStar(s string) (string, string) {
	for i := range len(s) {
		if s[i] == '*' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func companyMessage(t require.TestingT, text, data string) conversation.CompanyMessage {
	m, err := conversation.ParseCompanyMessage("", text, []byte(data))
	require.NoError(t, err)
	return m
}

func TestDecodePayload_Foreign(t *testing.T) {
	for _, c := range [][2]string{{"message", `[]`}, {"state", `{`}, {"direct_opened", `{"conversation_id":1}`}, {"poll", `{}`}} {
		_, err := conversation.DecodePayload(conversation.EventType(c[0]), []byte(c[1]))
		require.Equal(t, problem.Internal, problem.As(err).Kind)
	}
	_, err := conversation.EncodeEvent(conversation.Event{})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
	_, err = conversation.EncodeEvent(conversation.Event{Payload: conversation.MessagePayload{Data: json.RawMessage(`{`)}})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

// What the Operations extension adds stands in messages.
func TestDecodePayload_AnOperationIsNoEvent(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.5#13")
	for _, foreign := range []conversation.EventType{"operation", "operations", "Message"} {
		_, err := conversation.DecodePayload(foreign, []byte(`{}`))
		require.Equal(t, problem.Internal, problem.As(err).Kind, foreign)
	}
}

func TestGW02_EncodeRead_AllFieldsAlways(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.5#3", "poppy-0.1/7.5#22", "poppy-0.1/7.5#23", "poppy-0.1/7.5#24", "poppy-0.1/7.7#10")
	raw, err := conversation.EncodeRead(conversation.ReadResponse{
		ConversationID: "cnv_x1", Cursor: "evt_4", Status: conversation.Idle, Responder: conversation.ResponderAgent,
	})
	require.NoError(t, err)
	requireBytes(t, `{"conversation_id":"cnv_x1","events":[],"cursor":"evt_4","has_more":false,"status":"idle","responder":"agent"}`, raw)

	raw, err = conversation.EncodeRead(conversation.ReadResponse{
		ConversationID: "cnv_x1", Cursor: "evt_1", HasMore: true, Status: conversation.Working, Responder: conversation.ResponderHuman,
		Events: []conversation.Event{{ID: "evt_1", CreatedAt: noon, Payload: message(t, plain).Payload()}},
	})
	require.NoError(t, err)
	requireBytes(t, `{"conversation_id":"cnv_x1","events":[{"id":"evt_1","type":"message","created_at":"2026-10-10T12:00:04.005Z",`+
		`"message":{"id":"msg_1","role":"user","sender":"agent","text":"Hi"}}],"cursor":"evt_1","has_more":true,"status":"working","responder":"human"}`, raw)
}

func TestGW02_EncodePost(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.3#3", "poppy-0.1/7.3#5", "poppy-0.1/7.7#10", "poppy-0.1/7.12#4")
	raw, err := conversation.EncodePost(conversation.PostResponse{ConversationID: "cnv_x1", Status: conversation.Working, Responder: conversation.ResponderAgent})
	require.NoError(t, err)
	requireBytes(t, `{"conversation_id":"cnv_x1","status":"working","responder":"agent"}`, raw)
}
