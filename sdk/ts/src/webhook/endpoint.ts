import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream as WebStream } from 'node:stream/web'
import type { BackendMessage, BackendWebhook, SignInCheck, WebhookEvent } from './event.js'
import { nothing, say, type Reply, type SignInAnswer } from './reply.js'
import { NotGenuine, type Webhooks } from './verify.js'

/** More than any webhook has, in bytes. */
const MAX_BODY = 4 << 20

type Handle = (request: Request) => Promise<Response>

/** How a backend answers. What it throws is a failed attempt: the webhook comes again, with the same id. */
export interface Backend {
  /** A string, a Reply, or a Response: later(), nothing(), stream(). */
  message(webhook: BackendMessage): Promise<string | Reply | Response> | string | Reply | Response
  /** Only of a Company with a credential check. */
  signIn?(webhook: SignInCheck): Promise<SignInAnswer> | SignInAnswer
}

/** The endpoint of a backend: a handler of the Fetch API. What isn't genuine gets 401 and reaches nobody. */
export function backend(webhooks: Webhooks, b: Backend, log: (error: unknown) => void = () => undefined): Handle {
  return receive(webhooks, log, async (event) => {
    const webhook = event as unknown as BackendWebhook
    if (webhook.type === 'conversation.message') {
      const answer = await b.message(webhook)
      return answer instanceof Response ? answer : say(answer)
    }
    if (b.signIn && (webhook.type === 'sign_in.credentials' || webhook.type === 'sign_in.code')) return Response.json(await b.signIn(webhook))
    return nothing() // a type that is newer than this
  })
}

/** An endpoint that listens. */
export function listener(webhooks: Webhooks, handle: (event: WebhookEvent) => Promise<void> | void, log: (error: unknown) => void = () => undefined): Handle {
  return receive(webhooks, log, async (event) => {
    await handle(event as unknown as WebhookEvent)
    return nothing()
  })
}

function receive(webhooks: Webhooks, log: (error: unknown) => void, handle: (event: object) => Promise<Response>): Handle {
  return async (request) => {
    try {
      const body = await read(request)
      await webhooks.verify(request.headers, body)
      const parsed: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body))
      return await handle({ ...(parsed as object), id: request.headers.get('webhook-id') })
    } catch (error) {
      log(error)
      return error instanceof NotGenuine
        ? new Response('the webhook is not genuine', { status: 401 })
        : new Response('the webhook was not handled', { status: 500 })
    }
  }
}

async function read(request: Request): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of (request.body as WebStream<Uint8Array> | null) ?? []) {
    size += part.length
    if (size > MAX_BODY) throw new NotGenuine('it is too large')
    parts.push(part)
  }
  return Buffer.concat(parts)
}

/** Serves a handler of the Fetch API from node:http or Express. Mount it before anything that parses bodies: what is signed is the bytes. */
export function onNode(handle: Handle): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  return async (req, res) => {
    const headers = new Headers()
    for (const [name, values] of Object.entries(req.headersDistinct)) for (const value of values ?? []) headers.append(name, value)
    const init: RequestInit & { duplex: 'half' } = { method: req.method ?? 'POST', headers, duplex: 'half' }
    if (req.method !== 'GET' && req.method !== 'HEAD') init.body = Readable.toWeb(req) as ReadableStream<Uint8Array>
    const response = await handle(new Request('https://webhook.invalid/', init)) // the address counts for nothing
    res.writeHead(response.status, Object.fromEntries(response.headers))
    if (!response.body) {
      res.end()
      return
    }
    // Who has gone needs no answer.
    await pipeline(Readable.fromWeb(response.body as WebStream), res).catch(() => undefined)
  }
}
