package webhook

import (
	"encoding/json"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// eventKind is a type of the catalogue. Its schema is made from the Go type of its
// example, and so is what BuildEvent takes.
type eventKind struct {
	name    string
	doc     string
	example any
}

// catalogue is every type there is.
var catalogue = []eventKind{
	{EventStarted, "A Personal Agent started a conversation, or a User a Direct Conversation.", StartedData{exampleFacts(conversation.Working, 1)}},
	{EventMessage, "A message was added to a conversation, of either side.", MessageData{exampleFacts(conversation.Working, 1), exampleMessage}},
	{EventStatusChanged, "A conversation's status or responder changed.", StatusChangedData{exampleFacts(conversation.Working, 2), exampleStatus}},
	{EventHandoffRequested, "A person at the Company is asked for.", HandoffRequestedData{exampleFacts(conversation.Queued, 4), "Wants to talk about a refund"}},
	{EventPersonJoined, "A person took a conversation over.", PersonData{exampleHuman(5), "mia@shop.example"}},
	{EventHandedBack, "A person gave a conversation back to the Company's agent.", PersonData{exampleFacts(conversation.Idle, 9), "mia@shop.example"}},
	{EventUserRequested, "The Company's side asked for the User themselves.", UserRequestedData{exampleFacts(conversation.Idle, 6), "We need you to confirm the address"}},
	{EventAuthorization, "The Company's side asked for a sign-in.", AuthorizationData{exampleFacts(conversation.Idle, 6), EventSignIn{"insufficient_scope", "poppy:write"}}},
	{EventDirectOpened, "A Direct Conversation opened below a conversation.", DirectData{exampleFacts(conversation.Idle, 7), EventID{exampleChild}}},
	{EventDirectClosed, "The Direct Conversation below a conversation closed.", DirectData{exampleFacts(conversation.Idle, 8), EventID{exampleChild}}},
	{EventClosed, "A conversation was closed, for good.", ClosedData{exampleFacts(conversation.Closed, 10), "agent"}},
	{EventSessionStarted, "A Personal Agent started a Session.", SessionStartedData{exampleSessionFacts(false)}},
	{EventSessionSignedIn, "A Session was signed in.", SessionSignedInData{exampleSessionFacts(true), "direct"}},
	{EventSessionSignedOut, "A Session lost its sign-in: the agent signed out, or access was taken away.", SessionSignedOutData{exampleSessionFacts(false), exampleAccount, "signed_out"}},
	{EventSessionEnded, "A Session ended: its tokens are good for nothing any more.", SessionEndedData{exampleSessionFacts(false), "company"}},
	{EventEndpointDisabled, "The backend or an endpoint was turned off by itself.", EndpointData{exampleEndpoint, "endpoint gone"}},
	{EventEndpointRecovered, "The backend or an endpoint that failed for a while takes what it is sent again.", EndpointData{exampleEndpoint, ""}},
	{EventDeliveryExhausted, "A delivery was given up after the last attempt of its schedule.", DeliveryExhaustedData{exampleEndpoint, exampleDelivery}},
	{EventSecretExpiring, "A secret or a client certificate ends soon.", SecretExpiringData{EventSecret{
		exampleEndpoint.Name + "/secrets/whs_01hxk5c4d3q2w1e0r9t8y7z6m5", "hmac", "2026-12-07T19:03:00.000Z",
	}}},
	{EventPing, "Somebody tried an endpoint. It is sent to that endpoint alone, whatever it listens to.", PingData{exampleEndpoint}},
}

const (
	exampleID      = "cnv_01hxk5c4d3q2w1e0r9t8y7z6m5"
	exampleChild   = "cnv_01hxk5c4d3q2w1e0r9t8y7z6m6"
	exampleAccount = "customer-1001"
)

var (
	exampleMessage = EventMessageBody{
		ID: "msg_01hxk5c4d3q2w1e0r9t8y7z6m5", Role: conversation.RoleUser, Sender: conversation.SenderAgent,
		Text: "Where is my order?", Data: json.RawMessage(`{"order":"1042"}`),
	}
	exampleStatus   = EventStatus{conversation.Idle, conversation.ResponderAgent}
	exampleEndpoint = EventEndpoint{exampleCompany + "/endpoints/wep_01hxk5c4d3q2w1e0r9t8y7z6m5", "CRM"}
	exampleDelivery = ExhaustedDelivery{
		Name:  exampleEndpoint.Name + "/deliveries/wdl_01hxk5c4d3q2w1e0r9t8y7z6m5",
		Event: "evt_01hxk5c4d3q2w1e0r9t8y7z6m5", EventType: EventClosed, Attempts: 10, LastStatus: 500, LastReason: "status 500",
	}
)

func exampleFacts(status conversation.Status, sequence int64) ConversationFacts {
	s := exampleSessionFacts(false)
	return ConversationFacts{
		Conversation: DeliveryConversation{ID: exampleID, Status: status, Responder: conversation.ResponderAgent},
		Sequence:     sequence, Agent: s.Agent, User: s.User, Session: s.Session,
	}
}

func exampleHuman(sequence int64) ConversationFacts {
	f := exampleFacts(conversation.Idle, sequence)
	f.Conversation.Responder = conversation.ResponderHuman
	return f
}

func exampleSessionFacts(signedIn bool) SessionFacts {
	f := SessionFacts{
		Session: DeliverySession{ID: "ses_01hxk5c4d3q2w1e0r9t8y7z6m5", Scopes: []string{}},
		Agent:   DeliveryAgent{ClientID: "https://agent.example/agent.json", Name: "Example Agent"},
		User:    EventUser{ID: "usr_1"},
	}
	if signedIn {
		account := exampleAccount
		f.Session.SignedIn, f.Session.Account, f.Session.Scopes = true, &account, []string{"poppy:read"}
	}
	return f
}
