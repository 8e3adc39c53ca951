/** A message of the Company: a text, data, or both. */
export interface ReplyMessage {
  readonly text?: string
  readonly data?: Readonly<Record<string, unknown>>
  /** "human" where a person wrote it. */
  readonly sender?: 'agent' | 'human'
}

/** A sign-in that is asked for; insufficient_scope names scopes. */
export type Authorization =
  | { readonly error: 'sign_in_required'; readonly scope?: string }
  | { readonly error: 'insufficient_scope'; readonly scope: string }

/** What a backend says and does. */
export interface Reply {
  readonly messages?: readonly ReplyMessage[]
  /** Asks the User to sign in, or to grant more. */
  readonly authorization?: Authorization
  /** Asks for the User themselves. */
  readonly request_user?: { readonly reason: string }
  /** Asks for a person at the Company. */
  readonly hand_off?: { readonly reason: string }
  readonly close?: boolean
}

/** A piece of a streamed answer: of the text, a whole message in the place of the pieces before it, or what else is said and done. */
export type Piece = string | { readonly message: ReplyMessage } | { readonly answer: Reply }

/** Answers with a text, or with all that a backend can say. */
export function say(reply: string | Reply): Response {
  return Response.json(typeof reply === 'string' ? { messages: [{ text: reply }] } : reply)
}

/** Takes the message over: the answer comes by the API. */
export function later(): Response {
  return new Response(null, { status: 202 })
}

/** Says nothing, or that a listener has taken an event. */
export function nothing(): Response {
  return new Response(null, { status: 204 })
}

/**
 * Answers piece by piece. When pieces ends the answer counts; when it throws, the attempt has
 * failed and the message comes again. keepAliveMs is after how long of silence a comment is sent.
 */
export function stream(pieces: AsyncIterable<Piece>, keepAliveMs = 20_000): Response {
  const encoder = new TextEncoder()
  const iterator = pieces[Symbol.asyncIterator]()
  let timer: NodeJS.Timeout | undefined
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      timer = setInterval(() => controller.enqueue(encoder.encode(':\n\n')), keepAliveMs)
    },
    async pull(controller) {
      const send = (event: string, data: unknown): void => controller.enqueue(encoder.encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`))
      try {
        const next = await iterator.next()
        if (!next.done) {
          send(...eventOf(next.value))
          return
        }
        send('done', {})
      } catch {
        send('error', {})
      }
      clearInterval(timer)
      controller.close()
    },
    async cancel() {
      clearInterval(timer)
      await iterator.return?.()
    },
  })
  return new Response(body, { headers: { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' } })
}

function eventOf(piece: Piece): [string, unknown] {
  if (typeof piece === 'string') return ['text-delta', { text: piece }]
  return 'message' in piece ? ['message', piece.message] : ['answer', piece.answer]
}

/** Answers a check of credentials. state comes back with the code. */
export type SignInAnswer =
  | { readonly result: 'complete'; readonly account: string; readonly account_label?: string }
  | { readonly result: 'code_required'; readonly sent_to?: string; readonly state?: string; readonly expires_in?: number }
  | { readonly result: 'failed' }
