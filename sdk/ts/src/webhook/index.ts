export { NotGenuine, Webhooks } from './verify.js'
export { backend, listener, onNode, type Backend } from './endpoint.js'
export { later, nothing, say, stream, type Authorization, type Piece, type Reply, type ReplyMessage, type SignInAnswer } from './reply.js'
export {
  conversationName,
  type Agent,
  type BackendData,
  type BackendMessage,
  type BackendWebhook,
  type Conversation,
  type Endpoint,
  type EventData,
  type SignInCheck,
  type User,
  type WebhookEvent,
  type WebhookSession,
} from './event.js'
