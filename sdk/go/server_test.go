package poppy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// get sends a request through the handler; served is whether the API saw it.
func (r *rig) get(t testing.TB, path string, change func(*http.Request)) (w *httptest.ResponseRecorder, served *Session) {
	t.Helper()
	h := r.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		served, _ = SessionFrom(q.Context())
		_, _ = io.WriteString(w, "an order")
	}))
	q := httptest.NewRequest(http.MethodGet, "http://evil.example"+path, nil)
	proven := r.request(t, http.MethodGet, strings.Split(path, "?")[0])
	q.Header["Authorization"], q.Header["Dpop"] = proven.Authorization, proven.DPoP
	if change != nil {
		change(q)
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w, served
}

func TestHandler_ServesWithTheSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#10")
	r := newRig(t, nil)
	for range 2 { // judged by the server, and here
		w, s := r.get(t, orders+"?page=2", func(q *http.Request) { q.Header.Set("Poppy-Session", "forged") })
		require.Equal(t, []any{200, "an order", session}, []any{w.Code, w.Body.String(), s.Name})
	}
	require.Equal(t, baseURL+orders, r.server.asked[0].GetUrl(), "the Host field of a request counts for nothing")
	_, ok := SessionFrom(t.Context())
	require.False(t, ok)
}

func TestHandler_RefusesAsTheProtocolSays(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/6#10", "poppy-0.1/6#20")
	r := newRig(t, nil)
	r.get(t, orders, nil)
	w, s := r.get(t, orders, func(q *http.Request) { q.Header.Del("DPoP") })
	require.Nil(t, s)
	require.Equal(t, 401, w.Code)
	require.Equal(t, `DPoP error="invalid_dpop_proof", error_description="the request needs a DPoP proof", algs="ES256 ES384 EdDSA PS256 RS256"`, w.Header().Get("WWW-Authenticate"))
	require.JSONEq(t, `{"error":"invalid_dpop_proof","error_description":"the request needs a DPoP proof"}`, w.Body.String())
	require.Equal(t, []string{"application/json", "no-store"}, []string{w.Header().Get("Content-Type"), w.Header().Get("Cache-Control")})
	w, s = r.get(t, orders, func(q *http.Request) { q.Header.Add("Authorization", "DPoP another") })
	require.Nil(t, s)
	require.Equal(t, 400, w.Code)

	r.server.answer = &adminv1.VerifyRequestResponse{Allowed: true, Session: agentSession(), Headers: []*adminv1.HeaderField{{Name: "DPoP-Nonce", Value: "n1"}}}
	r.server.all()
	r.beat(t)
	w, s = r.get(t, orders, nil)
	require.NotNil(t, s)
	require.Equal(t, "n1", w.Header().Get("DPoP-Nonce"), "a nonce goes out with a served request, too")
}

func TestHandler_ServesNothingThatNobodyJudged(t *testing.T) {
	r := newRig(t, nil)
	r.server.answer, r.server.err = nil, status.Error(codes.Unavailable, "away: secret detail")
	w, s := r.get(t, orders, nil)
	require.Nil(t, s)
	require.Equal(t, []any{503, "1"}, []any{w.Code, w.Header().Get("Retry-After")})
	require.NotContains(t, w.Body.String(), "secret")
	r.server.err = status.Error(codes.InvalidArgument, "no such API")
	w, s = r.get(t, "/a/../b", nil)
	require.Nil(t, s)
	require.Equal(t, 400, w.Code)
}

func TestInterceptors_JudgeCallsAsPosts(t *testing.T) {
	r := newRig(t, nil)
	const method = "/shop.v1.Orders/Get"
	q := r.request(t, http.MethodPost, method)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", q.Authorization[0], "dpop", q.DPoP[0]))
	transport := &serverTransport{method: method}
	ctx = grpc.NewContextWithServerTransportStream(ctx, transport)
	var got *Session
	serve := func(ctx context.Context) { got, _ = SessionFrom(ctx) }
	_, err := r.UnaryInterceptor(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) { serve(ctx); return nil, nil })
	require.NoError(t, err)
	require.Equal(t, session, got.Name)
	asked := r.server.asked[0]
	require.Equal(t, []string{"POST", baseURL + method}, []string{asked.GetMethod(), asked.GetUrl()})
	require.Len(t, asked.GetHeaders(), 2)

	got = nil
	stream := &serverStream{ctx: ctx}
	require.NoError(t, r.StreamInterceptor(nil, stream, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error { serve(s.Context()); return nil }))
	require.Equal(t, session, got.Name)

	for want, answer := range map[codes.Code]*adminv1.VerifyRequestResponse{
		codes.Unauthenticated:   {Status: 401, Reason: "invalid_token", Headers: []*adminv1.HeaderField{{Name: "Www-Authenticate", Value: "DPoP"}}},
		codes.PermissionDenied:  {Status: 403, Reason: "sign_in_required"},
		codes.ResourceExhausted: {Status: 429, Reason: "rate_limited"},
		codes.InvalidArgument:   {Status: 400, Reason: "invalid_request"},
	} {
		r.server.answer = answer
		_, err := r.UnaryInterceptor(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, errors.New("was served") })
		require.Equal(t, want, status.Code(err))
		require.Equal(t, answer.GetReason(), status.Convert(err).Message())
		err = r.StreamInterceptor(nil, stream, &grpc.StreamServerInfo{FullMethod: method}, func(any, grpc.ServerStream) error { return errors.New("was served") })
		require.Equal(t, want, status.Code(err))
	}
	require.Equal(t, []string{"DPoP"}, transport.header.Get("www-authenticate"))
	for want, err := range map[codes.Code]error{codes.Unavailable: status.Error(codes.Internal, "x"), codes.Unimplemented: status.Error(codes.InvalidArgument, "x")} {
		r.server.err = err
		_, err := r.UnaryInterceptor(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, errors.New("was served") })
		require.Equal(t, want, status.Code(err))
	}
}

type serverTransport struct {
	method string
	header metadata.MD
}

func (s *serverTransport) Method() string { return s.method }
func (s *serverTransport) SetHeader(md metadata.MD) error {
	s.header = metadata.Join(s.header, md)
	return nil
}
func (s *serverTransport) SendHeader(md metadata.MD) error { return s.SetHeader(md) }
func (s *serverTransport) SetTrailer(metadata.MD) error    { return nil }

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context    { return s.ctx }
func (s *serverStream) SetHeader(metadata.MD) error { return nil }

var told = time.Unix(1796203800, 0).UTC()

// deliver signs a body and posts it.
func deliver(t testing.TB, h http.Handler, signer webhook.Signer, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	signed, err := webhook.Sign("dlv_1", told, body, signer)
	require.NoError(t, err)
	q := httptest.NewRequest(http.MethodPost, "/agent", strings.NewReader(string(body)))
	q.Header.Set(webhook.HeaderID, signed.ID)
	q.Header.Set(webhook.HeaderTimestamp, signed.Timestamp)
	q.Header.Set(webhook.HeaderSignature, signed.Signature)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w
}

func newWebhooks(t testing.TB) (*Webhooks, webhook.Signer) {
	t.Helper()
	secret, err := webhook.NewSecret([]byte("a secret of thirty-two bytes ..."))
	require.NoError(t, err)
	w, err := NewWebhooks(func() time.Time { return told }, secret.Reveal())
	require.NoError(t, err)
	return w, secret
}

func delivery(t testing.TB) []byte {
	t.Helper()
	account := "acc-1"
	body, err := webhook.BuildBody(webhook.Delivery{
		OccurredAt: told, Company: company, Conversation: webhook.DeliveryConversation{ID: "cnv_1", Status: conversation.Working, Responder: conversation.ResponderAgent},
		Sequence: 3, Message: conversation.MessagePayload{ID: "msg_1", Sender: conversation.SenderAgent, Text: "Where is it?", Data: json.RawMessage(`{"order":"7"}`)},
		Context: json.RawMessage(`{"locale":"en"}`), Agent: webhook.DeliveryAgent{ClientID: "https://agent.example/agent.json", Name: "Agent"}, UserID: "usr_1",
		Session: webhook.DeliverySession{ID: "ses_1", SignedIn: true, Account: &account, Scopes: []string{"poppy:read"}}, Handback: &webhook.DeliveryHandback{Note: "a note"},
		ReplyBy: told.Add(30 * time.Second),
	})
	require.NoError(t, err)
	return body
}

func TestMessage_ReadsWholeDeliveries(t *testing.T) {
	hooks, signer := newWebhooks(t)
	var got *Message
	var event *Event
	w := deliver(t, hooks.Backend(func(_ context.Context, e *Event, m *Message) (Reply, error) {
		got, event = m, e
		return Reply{}, nil
	}), signer, delivery(t))
	require.Equal(t, 200, w.Code)
	require.Equal(t, []any{"dlv_1", MessageReceived, told, company}, []any{event.ID, event.Type, event.At, event.Company})
	require.Equal(t, company+"/conversations/cnv_1", got.ConversationName())
	var sent struct{ Data map[string]any }
	require.NoError(t, json.Unmarshal(delivery(t), &sent))
	again, err := json.Marshal(got)
	require.NoError(t, err)
	var read map[string]any
	require.NoError(t, json.Unmarshal(again, &read))
	for name, value := range sent.Data {
		if name != "expected" {
			require.Equal(t, value, read[name], name)
		}
	}
	require.True(t, got.Expected.Reply)
	require.Equal(t, told.Add(30*time.Second), *got.Expected.ReplyBy)
}

func TestBackend_RefusesWhatIsNotGenuine(t *testing.T) {
	hooks, _ := newWebhooks(t)
	other, err := webhook.NewSecret([]byte("another secret of some bytes ..."))
	require.NoError(t, err)
	h := hooks.Backend(func(context.Context, *Event, *Message) (Reply, error) { return Reply{}, errors.New("was asked") })
	require.Equal(t, 401, deliver(t, h, other, delivery(t)).Code)
	q := httptest.NewRequest(http.MethodPost, "/agent", strings.NewReader(string(delivery(t))))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	require.Equal(t, 401, w.Code)
	_, err = NewWebhooks(nil)
	require.Error(t, err)
	_, err = NewWebhooks(nil, "whsec_short")
	require.Error(t, err)
}

func TestReply_SaysWhatABackendMaySay(t *testing.T) {
	hooks, signer := newWebhooks(t)
	answer := func(r Reply, err error) (webhook.Answer, int) {
		w := deliver(t, hooks.Backend(func(context.Context, *Event, *Message) (Reply, error) { return r, err }), signer, delivery(t))
		if w.Code >= 300 {
			return webhook.Answer{}, w.Code
		}
		a, err := webhook.ParseAnswer(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
		require.NoError(t, err, w.Body.String())
		return a, w.Code
	}
	a, _ := answer(Say("It is on its way."), nil)
	require.Equal(t, "It is on its way.", a.Messages[0].Text())
	a, _ = answer(Reply{Messages: []ReplyMessage{{Data: map[string]any{"eta": "19:40"}, Sender: "human"}}}, nil)
	require.JSONEq(t, `{"eta":"19:40"}`, string(a.Messages[0].Data()))
	require.Equal(t, conversation.SenderHuman, a.Messages[0].Sender())
	a, _ = answer(Reply{}, nil)
	require.Empty(t, a.Messages)
	a, _ = answer(Reply{Authorization: &Authorization{Error: "insufficient_scope", Scope: "poppy:write"}}, nil)
	require.NotNil(t, a.Authorization)
	a, _ = answer(Reply{HandOff: &Because{Reason: "a refund"}}, nil)
	require.True(t, a.HandOff)
	a, _ = answer(Reply{RequestUser: &Because{Reason: "the address"}}, nil)
	require.NotNil(t, a.UserRequested)
	a, _ = answer(Reply{Close: true}, nil)
	require.True(t, a.Close)
	a, code := answer(Reply{Later: true}, nil)
	require.Equal(t, []any{true, 202}, []any{a.Later, code})
	_, code = answer(Reply{}, errors.New("no"))
	require.Equal(t, 500, code)
}

func TestStream_IsAnAnswerOnceItHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*Stream) error
		want  string
	}{
		"pieces": {func(s *Stream) error {
			return errors.Join(s.Text("It is on "), s.Text("its\nway."), s.End(Reply{HandOff: &Because{Reason: "damaged"}}))
		}, "It is on its\nway."},
		"a whole message": {func(s *Stream) error {
			return errors.Join(s.Text("It"), s.Message(ReplyMessage{Text: "It is on its way."}), s.End(Reply{}))
		}, "It is on its way."},
		"given up": {(*Stream).Fail, ""},
		"cut off":  {func(s *Stream) error { return s.Text("It") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s, err := NewStream(w)
			require.NoError(t, err)
			require.NoError(t, c.write(s))
			require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
			got, err := streamed(w.Body.Bytes())
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Messages[0].Text())
			require.Equal(t, name == "pieces", got.HandOff)
		})
	}
}

func TestDataOf_ReadsEveryEventOfTheCatalogue(t *testing.T) {
	readers := map[string]func(*Event) (any, error){
		EventStarted: reader[StartedData], EventMessage: reader[EventMessageData], EventStatusChanged: reader[StatusChangedData],
		EventHandoffRequested: reader[HandoffRequestedData], EventPersonJoined: reader[PersonData], EventHandedBack: reader[PersonData],
		EventUserRequested: reader[UserRequestedData], EventAuthorization: reader[AuthorizationData], EventDirectOpened: reader[DirectData],
		EventDirectClosed: reader[DirectData], EventClosed: reader[ClosedData], EventSessionStarted: reader[SessionStartedData],
		EventSessionSignedIn: reader[SessionSignedInData], EventSessionSignedOut: reader[SessionSignedOutData], EventSessionEnded: reader[SessionEndedData],
		EventEndpointDisabled: reader[EndpointData], EventEndpointRecover: reader[EndpointData], EventExhausted: reader[DeliveryExhaustedData],
		EventSecretExpiring: reader[SecretExpiringData], EventPing: reader[PingData],
	}
	hooks, signer := newWebhooks(t)
	for _, name := range webhook.EventTypes() {
		body, err := webhook.ExampleEvent(name, told)
		require.NoError(t, err)
		var e *Event
		require.Equal(t, 204, deliver(t, hooks.Listen(func(w http.ResponseWriter, _ *http.Request, got *Event) error {
			e = got
			w.WriteHeader(http.StatusNoContent)
			return nil
		}), signer, body).Code)
		data, err := readers[name](e)
		require.NoError(t, err)
		again, err := webhook.BuildEvent(name, e.Company, e.At, data)
		require.NoError(t, err)
		require.JSONEq(t, string(body), string(again), name)
	}
}

func reader[T any](e *Event) (any, error) {
	data, err := DataOf[T](e)
	if err != nil {
		return nil, err
	}
	return *data, nil
}

// streamed is what the product makes of an answer's stream.
func streamed(raw []byte) (webhook.Answer, error) {
	s := webhook.NewStreamAnswer(func(string) {})
	if err := s.Write(raw); err != nil {
		return webhook.Answer{}, err
	}
	return s.Close()
}
