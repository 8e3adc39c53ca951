package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// SignIn is a User's way through the sign-in pages, or a Mediated Sign-In that waits
// for its one-time code: one row from the first request to the decision.
type SignIn struct{ ent.Schema }

// Mixin of the entity.
func (SignIn) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (SignIn) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Enum("kind").Values("direct", "device", "mediated").Immutable(),
		// stage is what comes next: login, one-time code, consent, or nothing.
		field.Enum("stage").Values("login", "code", "consent", "done").Default("login"),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default("").Immutable(),
		field.String("agent_logo_uri").Default("").Immutable(),
		// scope is what was asked for.
		field.String("scope").NotEmpty().Immutable(),
		field.String("ui_locale").Default("").Immutable(),

		// Direct Sign-In: what the redirect and the code need.
		field.String("redirect_uri").Default("").Immutable(),
		field.String("state").Default("").Immutable().Sensitive(),
		field.String("code_challenge").Default("").Immutable(),
		// resource is the MCP server that a client which knows nothing of Poppy signs in
		// for (Poppy 6); empty for a Personal Agent, which says so at the exchange.
		field.String("resource").Default("").Immutable(),
		// device_id is the DeviceAuthorization that is to be decided.
		field.String("device_id").Default("").Immutable(),
		// session_id and user_id are those of the Session that a Mediated Sign-In began in.
		field.String("session_id").Default("").Immutable(),
		field.String("user_id").Default("").Immutable(),

		// browser_hash is the hash of the cookie of the browser that began.
		field.String("browser_hash").Default("").Immutable(),
		// upstream_hash is the hash of what the Company's own login comes back with.
		field.String("upstream_hash").Optional().Nillable(),
		// sealed is what only this installation may read: nonce and verifier of the
		// upstream login, the state of a credential check, the user code.
		field.Bytes("sealed").Optional().Sensitive(),
		field.String("account").Default(""),
		field.String("account_label").Default(""),
		// code_sent_to says where the one-time code went, in the Company's words.
		field.String("code_sent_to").Default(""),
		field.Int("code_attempts").Default(0),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at"),
		field.Int64("version").Default(1),
	}
}

// Indexes of the entity.
func (SignIn) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "upstream_hash").Unique(), index.Fields("expires_at")}
}

// SignInAttempt counts what may be tried only so often, for every process at once.
type SignInAttempt struct{ ent.Schema }

// Mixin of the entity.
func (SignInAttempt) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (SignInAttempt) Fields() []ent.Field {
	return []ent.Field{
		// id is the hash of the Company's id, what is limited and by whom.
		identifier(),
		field.Int("count"),
		field.Time("window_ends_at"),
	}
}

// Indexes of the entity.
func (SignInAttempt) Indexes() []ent.Index { return []ent.Index{index.Fields("window_ends_at")} }

// SignInConnection is how a Company's Users prove who they are.
type SignInConnection struct{ ent.Schema }

// Mixin of the entity.
func (SignInConnection) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (SignInConnection) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.JSON("settings", json.RawMessage{}),
		// sealed_secret is the client secret at the Company's identity provider.
		field.Bytes("sealed_secret").Optional().Sensitive(),
		// sealed_accounts are the test accounts with their passwords.
		field.Bytes("sealed_accounts").Optional().Sensitive(),
	}
}

// Indexes of the entity.
func (SignInConnection) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id").Unique()}
}

// PageDesign is how a Company's sign-in pages look and what they say.
type PageDesign struct{ ent.Schema }

// Mixin of the entity.
func (PageDesign) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (PageDesign) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.JSON("settings", json.RawMessage{}),
		field.Bytes("logo").Optional(),
		field.String("logo_type").Default(""),
	}
}

// Indexes of the entity.
func (PageDesign) Indexes() []ent.Index { return []ent.Index{index.Fields("company_id").Unique()} }
