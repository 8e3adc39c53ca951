package schema

import (
	"encoding/json"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Endpoint is where a Company's own systems are reached: its one backend, which
// answers conversations, and any number of listeners, which are told of events.
type Endpoint struct{ ent.Schema }

// Mixin of the entity.
func (Endpoint) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Endpoint) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Enum("role").Values("answers", "listens").Immutable(),
		// kind says what is spoken there: our webhooks, an OpenAI-compatible chat endpoint,
		// an A2A agent, or nothing, since the backend opens a stream to us.
		field.Enum("kind").Values("webhook", "openai_chat", "a2a", "stream").Default("webhook"),
		field.String("display_name").Default(""),
		field.String("url").Default(""),
		field.Bool("enabled").Default(true),
		// disable_reason is why it is off: what it answered, or what somebody wrote.
		field.String("disable_reason").Default(""),
		field.Time("disabled_at").Optional().Nillable(),
		field.Int64("ack_timeout_ms").Default(0),
		field.Int64("attempt_timeout_ms").Default(0),
		field.Bool("deliver_late").Default(true),
		// settings are the policy: schedule, concurrency, rate, headers, event types, model, …
		field.JSON("settings", json.RawMessage{}).Optional(),
		// sealed_credentials hold the API key, secret header values and client certificate.
		field.Bytes("sealed_credentials").Sensitive().Optional(),
		// Health, as attempts left it. failing_since is the first failure after the last success.
		field.Int("failures").Default(0),
		field.Time("failing_since").Optional().Nillable(),
		field.Time("last_success_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (Endpoint) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id").Unique().StorageKey("endpoint_backend").Annotations(entsql.IndexWhere("role = 'answers'")),
		index.Fields("company_id", "created_at", "id"),
	}
}

// WebhookSecret signs the webhooks of a Company. The secret is sealed.
type WebhookSecret struct{ ent.Schema }

// Mixin of the entity.
func (WebhookSecret) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (WebhookSecret) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Enum("kind").Values("hmac", "ed25519").Immutable(),
		// endpoint_id is the listener that it signs for; empty for the backend, and for
		// ed25519 keys, which sign for all.
		field.String("endpoint_id").Default("").Immutable(),
		field.Bytes("sealed").Sensitive().Immutable(),
		field.String("public_key").Default("").Immutable(),
		field.String("prefix").Default("").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (WebhookSecret) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "created_at")}
}

// CompanyEvent is something that happened at a Company which listeners are told of. It
// is committed with what happened, and stays for as long as it may be sent again.
type CompanyEvent struct{ ent.Schema }

// Mixin of the entity.
func (CompanyEvent) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (CompanyEvent) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("type").NotEmpty().Immutable(),
		// subject is the resource it is about, such as "conversations/cnv_…".
		field.String("subject").Default("").Immutable(),
		// body is the webhook's body, made once.
		field.Bytes("body").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		// routed_at is when deliveries were made for the listeners of that moment.
		field.Time("routed_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (CompanyEvent) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("created_at").StorageKey("company_event_unrouted").Annotations(entsql.IndexWhere("routed_at IS NULL")),
		index.Fields("company_id", "created_at", "id"),
	}
}

// EndpointDelivery is an event on its way to a listener.
type EndpointDelivery struct{ ent.Schema }

// Mixin of the entity.
func (EndpointDelivery) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (EndpointDelivery) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("endpoint_id").NotEmpty().Immutable(),
		// event_id is the webhook-id too: the same at every attempt, and when sent again by a person.
		field.String("event_id").NotEmpty().Immutable(),
		field.String("event_type").NotEmpty().Immutable(),
		field.Enum("origin").Values("event", "resend", "test").Default("event").Immutable(),
		field.Enum("state").Values("pending", "delivered", "failed", "canceled").Default("pending"),
		field.Int("attempts").Default(0),
		field.Time("next_attempt_at").Default(now),
		field.String("lease_owner").Default(""),
		field.Time("lease_until").Optional().Nillable(),
		field.Int("last_status").Default(0),
		field.String("last_reason").Default(""),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("done_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (EndpointDelivery) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("next_attempt_at").StorageKey("endpoint_delivery_due").Annotations(entsql.IndexWhere("state = 'pending'")),
		index.Fields("company_id", "endpoint_id", "next_attempt_at").StorageKey("endpoint_delivery_queue").Annotations(entsql.IndexWhere("state = 'pending'")),
		index.Fields("company_id", "created_at", "id"),
		index.Fields("company_id", "endpoint_id", "created_at", "id"),
		// Whether an endpoint has got an event.
		index.Fields("company_id", "endpoint_id", "event_id").StorageKey("endpoint_delivery_event"),
	}
}

// Attempt is one try at a delivery, of either role, as the Company may see it.
type Attempt struct{ ent.Schema }

// Mixin of the entity.
func (Attempt) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Attempt) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("delivery_id").NotEmpty().Immutable(),
		field.String("endpoint_id").NotEmpty().Immutable(),
		field.Int("status").Default(0).Immutable(),
		field.String("outcome").NotEmpty().Immutable(),
		field.String("reason").Default("").Immutable(),
		field.Int64("duration_us").Immutable().GoType(time.Duration(0)),
		// evidence is the redacted request and response, and where the time went.
		field.JSON("evidence", json.RawMessage{}).Optional().Immutable(),
		field.Time("created_at").Default(now).Immutable(),
	}
}

// Indexes of the entity.
func (Attempt) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "delivery_id", "created_at"),
		index.Fields("company_id", "endpoint_id", "created_at"),
		index.Fields("created_at"),
	}
}
