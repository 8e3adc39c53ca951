import { randomUUID } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { createClient, type Transport } from '@connectrpc/connect'
import { ConversationService } from './gen/poppyfield/admin/v1/conversation_pb.js'
import type { Reply, ReplyMessage } from './webhook/reply.js'

/** How something is said by the API. */
export interface SayOptions {
  /** This is not the last message: the conversation stays at work. */
  readonly more?: boolean
  /** A UUID; a repeat within a day says nothing twice. */
  readonly requestId?: string
}

/** Says and does things in conversations without being asked, or after later(). */
export class Conversations {
  private readonly client

  /** The transport's key needs the permission conversations.write. */
  constructor(transport: Transport) {
    this.client = createClient(ConversationService, transport)
  }

  /** Posts one message; conversation is its resource name, from conversationName(). */
  async post(conversation: string, message: string | ReplyMessage, options: SayOptions = {}): Promise<void> {
    const { text = '', data, sender = '' } = typeof message === 'string' ? { text: message } : message
    await this.client.postMessage({
      conversation,
      message: { text, sender, ...(data && { data: data as JsonObject }) },
      more: options.more ?? false,
      requestId: options.requestId ?? randomUUID(),
    })
  }

  /**
   * Says and does all that an answer to a webhook can. With delivery, the id of a webhook, it is
   * the answer to that one.
   */
  async respond(conversation: string, reply: Reply, options: SayOptions & { readonly delivery?: string } = {}): Promise<void> {
    await this.client.respond({
      conversation,
      messages: (reply.messages ?? []).map(({ text = '', data }) => ({ text, ...(data && { data: data as JsonObject }) })),
      ...(reply.authorization && { authorization: { error: reply.authorization.error, scope: reply.authorization.scope ?? '' } }),
      requestUser: reply.request_user?.reason ?? '',
      ...(reply.hand_off && { handOff: { reason: reply.hand_off.reason } }),
      close: reply.close ?? false,
      more: options.more ?? false,
      delivery: options.delivery ?? '',
      requestId: options.requestId ?? randomUUID(),
    })
  }

  /** Closes a conversation for good. */
  async close(conversation: string, requestId: string = randomUUID()): Promise<void> {
    await this.client.closeConversation({ name: conversation, requestId })
  }
}
