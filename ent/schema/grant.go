package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Grant is what a User granted a Personal Agent by one sign-in (Poppy 4.4): the
// record behind an Account Token, and behind its successors where tokens rotate.
type Grant struct{ ent.Schema }

// Mixin of the entity.
func (Grant) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Grant) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default("").Immutable(),
		field.String("user_id").NotEmpty().Immutable(),
		field.String("account").NotEmpty().Immutable(),
		// account_label is what the account's owner knows it by.
		field.String("account_label").Default("").Immutable(),
		field.String("scope").NotEmpty().Immutable(),
		field.Enum("sign_in").Values("direct", "device", "mediated").Immutable(),
		// resource is the one MCP server that the Grant is good for, when a client which knows
		// nothing of Poppy got it (Poppy 6); empty for a Personal Agent's.
		field.String("resource").Default("").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		// expires_at is unset where the Company sets no lifetime; use never moves it (Poppy 4.8).
		field.Time("expires_at").Optional().Nillable().Immutable(),
		field.Time("last_used_at").Default(now),
		// ended_at is when it was revoked or disconnected; end_reason says by what.
		field.Time("ended_at").Optional().Nillable(),
		field.String("end_reason").Default(""),
	}
}

// Indexes of the entity.
func (Grant) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "created_at", "id"),
		index.Fields("company_id", "account", "created_at"),
		index.Fields("company_id", "client_id"),
		index.Fields("expires_at"),
		index.Fields("ended_at"),
	}
}

// AccountToken is an issued Account Token (Poppy 4.8), known by the hash that is its id.
type AccountToken struct{ ent.Schema }

// Mixin of the entity.
func (AccountToken) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (AccountToken) Fields() []ent.Field {
	return []ent.Field{
		// id is the base64url SHA-256 of the Company's id and the token.
		identifier(),
		field.String("grant_id").NotEmpty().Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		// replaced_at is when its successor was first given out; set only where tokens rotate.
		field.Time("replaced_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (AccountToken) Indexes() []ent.Index { return []ent.Index{index.Fields("company_id", "grant_id")} }

// AuthorizationCode is what Direct Sign-In sends to the agent's redirect_uri (Poppy 4.5).
type AuthorizationCode struct{ ent.Schema }

// Mixin of the entity.
func (AuthorizationCode) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (AuthorizationCode) Fields() []ent.Field {
	return []ent.Field{
		// id is the base64url SHA-256 of the Company's id and the code.
		identifier(),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default("").Immutable(),
		field.String("redirect_uri").NotEmpty().Immutable(),
		// code_challenge is that of PKCE S256.
		field.String("code_challenge").NotEmpty().Immutable(),
		// resource as the Grant will have it.
		field.String("resource").Default("").Immutable(),
		field.String("scope").NotEmpty().Immutable(),
		field.String("account").NotEmpty().Immutable(),
		field.String("account_label").Default("").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Immutable(),
		field.Time("consumed_at").Optional().Nillable(),
		// grant_id is what the code gave; a second use ends it.
		field.String("grant_id").Default(""),
	}
}

// Indexes of the entity.
func (AuthorizationCode) Indexes() []ent.Index { return []ent.Index{index.Fields("expires_at")} }

// DeviceAuthorization is a Device Sign-In under way (Poppy 4.6, RFC 8628).
type DeviceAuthorization struct{ ent.Schema }

// Mixin of the entity.
func (DeviceAuthorization) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (DeviceAuthorization) Fields() []ent.Field {
	return []ent.Field{
		// id is the base64url SHA-256 of the Company's id and the device_code.
		identifier(),
		// user_code_hash is keyed: a user code has too few bits for a plain hash.
		field.String("user_code_hash").NotEmpty().Immutable(),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default("").Immutable(),
		field.String("scope").NotEmpty().Immutable(),
		field.Enum("state").Values("pending", "approved", "denied", "consumed").Default("pending"),
		field.String("approved_scope").Default(""),
		field.String("account").Default(""),
		field.String("account_label").Default(""),
		// poll_interval, in seconds, grows with every slow_down and never shrinks.
		field.Int("poll_interval"),
		field.Time("polled_at").Optional().Nillable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Immutable(),
		field.String("grant_id").Default(""),
	}
}

// Indexes of the entity.
func (DeviceAuthorization) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "user_code_hash").Unique(), index.Fields("expires_at")}
}
