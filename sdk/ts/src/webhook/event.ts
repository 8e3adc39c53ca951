// What webhooks say, as the catalogue of event types describes it. New members may be
// added to each; every one that stands here is always there.

/** A conversation as it was after what happened. */
export interface Conversation {
  readonly id: string
  readonly status: 'working' | 'idle' | 'queued' | 'closed'
  readonly responder: 'agent' | 'human'
  /** The User talks themselves. */
  readonly direct: boolean
  readonly parent: string | null
}

/** The Personal Agent. */
export interface Agent {
  readonly client_id: string
  readonly name: string
}

/** The User, as the agent names them: an id means something together with client_id only. */
export interface User {
  readonly id: string
}

/** A Session. */
export interface WebhookSession {
  readonly id: string
  readonly signed_in: boolean
  /** null while signed out. */
  readonly account: string | null
  readonly scopes: readonly string[]
}

interface OfCompany {
  /** companies/{company} */
  readonly company: string
}

interface OfConversation extends OfCompany {
  readonly conversation: Conversation
  /** Rises within the conversation and orders its events. */
  readonly sequence: number
  readonly agent: Agent
  readonly user: User
  /** Of the agent's newest message. */
  readonly session: WebhookSession
}

interface OfSession extends OfCompany {
  readonly session: WebhookSession
  readonly agent: Agent
  readonly user: User
}

/** Where the Company is reached: the backend, or an endpoint that listens. */
export interface Endpoint {
  readonly name: string
  readonly display_name: string
}

type Why = 'signed_out' | 'disconnected' | 'replaced_token_reused' | 'code_reused' | 'agent_revoked'
type Data = Readonly<Record<string, unknown>>

/** What listeners are told, by the event's type. */
export interface EventData {
  'conversation.started': OfConversation
  'conversation.message': OfConversation & {
    readonly message: { readonly id: string; readonly role: 'user' | 'company'; readonly sender: 'agent' | 'human'; readonly text: string; readonly data: Data }
  }
  'conversation.status_changed': OfConversation & { readonly previous: Pick<Conversation, 'status' | 'responder'> }
  'conversation.handoff_requested': OfConversation & { readonly reason: string }
  'conversation.person_joined': OfConversation & { readonly person: string }
  'conversation.handed_back': OfConversation & { readonly person: string }
  'conversation.user_requested': OfConversation & { readonly reason: string }
  'conversation.authorization_requested': OfConversation & {
    readonly authorization: { readonly error: 'sign_in_required' | 'insufficient_scope'; readonly scope: string }
  }
  'conversation.direct_opened': OfConversation & { readonly direct_conversation: { readonly id: string } }
  'conversation.direct_closed': OfConversation & { readonly direct_conversation: { readonly id: string } }
  'conversation.closed': OfConversation & { readonly closed_by: 'agent' | 'company' | 'inactivity' | 'parent' }
  'session.started': OfSession
  'session.signed_in': OfSession & { readonly sign_in: 'direct' | 'device' | 'mediated' | 'account_token' }
  'session.signed_out': OfSession & { readonly account: string; readonly reason: Why }
  'session.ended': OfSession & { readonly reason: Why | 'company' | 'idle' }
  'endpoint.disabled': OfCompany & { readonly endpoint: Endpoint; readonly reason: string }
  'endpoint.recovered': OfCompany & { readonly endpoint: Endpoint; readonly reason: string }
  'delivery.exhausted': OfCompany & {
    readonly endpoint: Endpoint
    readonly delivery: {
      readonly name: string
      readonly event: string
      readonly event_type: string
      readonly attempts: number
      readonly last_status: number
      readonly last_reason: string
    }
  }
  'secret.expiring': OfCompany & {
    readonly secret: { readonly name: string; readonly kind: 'hmac' | 'ed25519' | 'client_certificate'; readonly expire_time: string }
  }
  'test.ping': OfCompany & { readonly endpoint: Endpoint }
}

interface OfSignIn extends OfCompany {
  readonly sign_in: { readonly id: string; readonly type: 'direct' | 'device' | 'mediated'; readonly scopes: readonly string[] }
  readonly agent: Agent
  /** Of a Mediated Sign-In; null on Poppyfield's page. */
  readonly user: User | null
  readonly session: { readonly id: string } | null
}

/** What a backend is asked, by the webhook's type. */
export interface BackendData {
  'conversation.message': OfConversation & {
    readonly message: { readonly id: string; readonly sender: 'agent' | 'human'; readonly text: string; readonly data: Data }
    /** What the agent has shared so far: to use, not to trust. */
    readonly context: Data
    /** Set where a person handed the conversation back. */
    readonly handback: { readonly note: string } | null
    readonly expected: { readonly reply: boolean; readonly reply_by: string | null }
  }
  'sign_in.credentials': OfSignIn & { readonly credentials: Readonly<Record<string, string>> }
  'sign_in.code': OfSignIn & { readonly code: string; readonly state: string }
}

type Webhook<D> = {
  [T in keyof D]: {
    /** The same at every attempt: a webhook of an id that was handled before is done. */
    readonly id: string
    readonly type: T
    /** When it happened. */
    readonly timestamp: string
    readonly data: D[T]
  }
}[keyof D]

/** A webhook to a listener; its type says what its data is. */
export type WebhookEvent = Webhook<EventData>

/** A webhook to a backend. */
export type BackendWebhook = Webhook<BackendData>

/** A message that a backend is asked to answer. */
export type BackendMessage = Extract<BackendWebhook, { type: 'conversation.message' }>

/** A check of credentials, or of the code that was sent after one. */
export type SignInCheck = Exclude<BackendWebhook, { type: 'conversation.message' }>

/** The resource name of a webhook's conversation, for the admin API. */
export function conversationName(data: { readonly company: string; readonly conversation: { readonly id: string } }): string {
  return `${data.company}/conversations/${data.conversation.id}`
}
