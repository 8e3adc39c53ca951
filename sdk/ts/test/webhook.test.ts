import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import test from 'node:test'
import { create } from '@bufbuild/protobuf'
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect'
import { shop } from '../example/shop.js'
import {
  ConversationService, PostMessageResponseSchema, RespondResponseSchema, type PostMessageRequest, type RespondRequest,
} from '../src/gen/poppyfield/admin/v1/conversation_pb.js'
import { Conversations } from '../src/index.js'
import {
  backend, conversationName, later, listener, nothing, onNode, say, stream, Webhooks, type Backend, type BackendMessage, type WebhookEvent,
} from '../src/webhook/index.js'
import { COMPANY, NOW, Rig } from './rig.js'

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
const webhooks = new Webhooks([SECRET], () => NOW)

function data(text: string, account: string | null = null): BackendMessage['data'] {
  return {
    company: COMPANY,
    conversation: { id: 'cnv_1', status: 'working', responder: 'agent', direct: false, parent: null },
    sequence: 7,
    message: { id: 'msg_1', sender: 'human', text, data: {} },
    context: {},
    agent: { client_id: 'https://agent.example/agent.json', name: 'Example Agent' },
    user: { id: 'usr_1' },
    session: { id: 'ses_1', signed_in: account !== null, account, scopes: [] },
    handback: null,
    expected: { reply: true, reply_by: '2026-12-02T09:30:30.000Z' },
  }
}

function signed(type: string, content: object, now = NOW): Request {
  const body = JSON.stringify({ type, timestamp: '2026-12-02T09:30:00.000Z', data: content })
  return signedBody(body, now)
}

function signedBody(body: string, now = NOW): Request {
  const at = String(Math.floor(now / 1000))
  const signature = createHmac('sha256', Buffer.alloc(32, 7)).update(`dlv_1.${at}.${body}`).digest('base64')
  return new Request('https://shop.example/agent', {
    method: 'POST', body, headers: { 'webhook-id': 'dlv_1', 'webhook-timestamp': at, 'webhook-signature': `v1,${signature}` },
  })
}

const message = (text: string, account?: string | null): Request => signed('conversation.message', data(text, account))

test('keys that are none are refused, and not shown', () => {
  assert.throws(() => new Webhooks([]), TypeError)
  for (const key of ['', 'whsec_', 'whsec_c2hvcnQ=', `whsec_${SECRET}`, `whpk_${'A'.repeat(40)}`, `${SECRET}\n`, SECRET.replace('=', ''), SECRET.slice(6)]) {
    assert.throws(() => new Webhooks([key]), (error: Error) => error instanceof TypeError && (key.length < 10 || !error.message.includes(key)), key)
  }
})

test('two headers of one name are one too many', async () => {
  for (const name of ['webhook-id', 'webhook-timestamp', 'webhook-signature']) {
    const request = message('Hi')
    const body = new Uint8Array(await request.arrayBuffer())
    await webhooks.verify(request.headers, body)
    request.headers.append(name, request.headers.get(name) ?? '')
    await assert.rejects(webhooks.verify(request.headers, body), name)
  }
})

test('a backend gets what is genuine, typed, and nothing else', async () => {
  const seen: BackendMessage[] = []
  const errors: unknown[] = []
  const handle = backend(webhooks, { message: (m) => (seen.push(m), say('Hello')) }, (error) => errors.push(error))
  const answer = await handle(message('Hi'))
  assert.deepEqual([answer.status, await answer.json()], [200, { messages: [{ text: 'Hello' }] }])
  assert.deepEqual([seen[0]?.id, seen[0]?.data.message.text], ['dlv_1', 'Hi'])
  assert.equal(conversationName(seen[0]?.data ?? assert.fail()), `${COMPANY}/conversations/cnv_1`)

  const forged = message('Hi')
  forged.headers.set('webhook-signature', `v1,${Buffer.alloc(32).toString('base64')}`)
  assert.equal((await handle(forged)).status, 401)
  assert.equal((await handle(signed('conversation.message', data('Hi'), NOW - 301_000))).status, 401)
  const large = new Request('https://shop.example/agent', { method: 'POST', body: Buffer.alloc((4 << 20) + 1), headers: message('').headers })
  assert.equal((await handle(large)).status, 401)
  assert.equal((await handle(signedBody('{'))).status, 500)
  assert.deepEqual([seen.length, errors.length], [1, 4])
  assert.equal((await handle(signed('conversation.purred', {}))).status, 204)
})

test('what a backend throws is a failed attempt', async () => {
  const handle = backend(webhooks, { message: () => { throw new Error('secret') } })
  const answer = await handle(message('Hi'))
  assert.deepEqual([answer.status, await answer.text()], [500, 'the webhook was not handled'])
})

test('a check of credentials is answered', async () => {
  const b: Backend = {
    message: () => nothing(),
    signIn: (check) => check.type === 'sign_in.code'
      ? check.data.code === '123456' && check.data.state === 's' ? { result: 'complete', account: 'acc-1' } : { result: 'failed' }
      : check.data.credentials['password'] === 'right' ? { result: 'code_required', state: 's' } : { result: 'failed' },
  }
  const handle = backend(webhooks, b)
  const result = async (type: string, more: object): Promise<unknown> => (await handle(signed(type, { company: COMPANY, ...more }))).json()
  assert.deepEqual(await result('sign_in.credentials', { credentials: { password: 'wrong' } }), { result: 'failed' })
  assert.deepEqual(await result('sign_in.credentials', { credentials: { password: 'right' } }), { result: 'code_required', state: 's' })
  assert.deepEqual(await result('sign_in.code', { code: '123456', state: 's' }), { result: 'complete', account: 'acc-1' })
  assert.equal((await backend(webhooks, { message: () => nothing() })(signed('sign_in.code', {}))).status, 204)
})

test('a listener gets events, typed', async () => {
  const seen: WebhookEvent[] = []
  const handle = listener(webhooks, (event) => {
    seen.push(event)
    if (event.type === 'conversation.closed' && event.data.closed_by === 'company') throw new Error('not now')
  })
  assert.equal((await handle(signed('conversation.closed', { ...data(''), closed_by: 'agent' }))).status, 204)
  assert.equal((await handle(signed('conversation.closed', { ...data(''), closed_by: 'company' }))).status, 500)
  assert.deepEqual(seen.map((e) => e.type), ['conversation.closed', 'conversation.closed'])
})

test('an answer is streamed piece by piece, and counts when it ends', async () => {
  async function* whole() {
    yield 'It is on\n'
    yield 'its way.'
    yield { message: { text: 'It is here.', data: { order: '1' } } }
    yield { answer: { hand_off: { reason: 'damaged' } } }
  }
  const answer = stream(whole())
  assert.deepEqual([answer.status, answer.headers.get('content-type')], [200, 'text/event-stream'])
  assert.equal(await answer.text(), [
    'event: text-delta\ndata: {"text":"It is on\\n"}\n\n',
    'event: text-delta\ndata: {"text":"its way."}\n\n',
    'event: message\ndata: {"text":"It is here.","data":{"order":"1"}}\n\n',
    'event: answer\ndata: {"hand_off":{"reason":"damaged"}}\n\n',
    'event: done\ndata: {}\n\n',
  ].join(''))
  async function* broken() {
    yield 'It '
    throw new Error('secret')
  }
  assert.equal(await stream(broken()).text(), 'event: text-delta\ndata: {"text":"It "}\n\nevent: error\ndata: {}\n\n')
})

test('a stream that is slow sends comments, and one that nobody reads is ended', async () => {
  let release: () => void = () => undefined
  let returned = false
  async function* slow() {
    try {
      await new Promise<void>((resolve) => (release = resolve))
      yield 'at last'
    } finally {
      returned = true
    }
  }
  const reader = stream(slow(), 1).body?.getReader() ?? assert.fail()
  assert.equal(new TextDecoder().decode((await reader.read()).value), ':\n\n')
  const gone = reader.cancel()
  release()
  await gone
  assert.ok(returned)
})

test('later says nothing yet', () => assert.equal(later().status, 202))

/** A server of conversations that remembers what was said. */
function fakeConversations() {
  const posts: PostMessageRequest[] = []
  const responses: RespondRequest[] = []
  const transport = createRouterTransport(({ service }) => {
    service(ConversationService, {
      postMessage: (r) => (posts.push(r), create(PostMessageResponseSchema)),
      respond: (r) => (responses.push(r), create(RespondResponseSchema)),
      closeConversation: () => { throw new ConnectError('closed', Code.FailedPrecondition) },
    })
  })
  return { posts, responses, conversations: new Conversations(transport) }
}

test('what is said by the API says all of it, once', async () => {
  const { posts, responses, conversations } = fakeConversations()
  await conversations.post('c', 'Found it.', { more: true })
  await conversations.post('c', { data: { n: 1 }, sender: 'human' }, { requestId: '6f1e0d3c-4a0f-4a0e-9f0e-2b8a7d1c5e42' })
  assert.deepEqual(posts.map((p) => [p.conversation, p.message?.text, p.message?.data, p.message?.sender, p.more]), [
    ['c', 'Found it.', undefined, '', true], ['c', '', { n: 1 }, 'human', false],
  ])
  assert.match(posts[0]?.requestId ?? '', /^[0-9a-f-]{36}$/)
  assert.equal(posts[1]?.requestId, '6f1e0d3c-4a0f-4a0e-9f0e-2b8a7d1c5e42')
  await conversations.respond('c', {
    messages: [{ text: 'a' }], authorization: { error: 'insufficient_scope', scope: 's' }, request_user: { reason: 'r' }, hand_off: { reason: 'h' }, close: true,
  }, { delivery: 'dlv_1' })
  const [r] = responses
  assert.deepEqual(
    [r?.messages[0]?.text, r?.authorization?.error, r?.authorization?.scope, r?.requestUser, r?.handOff?.reason, r?.close, r?.delivery],
    ['a', 'insufficient_scope', 's', 'r', 'h', true, 'dlv_1'],
  )
  await assert.rejects(conversations.close('c'), ConnectError)
})

test('the example serves orders and answers messages', async (t) => {
  const rig = await Rig.make(t)
  Object.assign(rig.server.tokens.values().next().value?.session ?? {}, { signedIn: true, account: 'acc-1' })
  const { responses, conversations } = fakeConversations()
  const server = createServer(shop(rig.verifier, webhooks, conversations))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const get = async (path: string, signed = path): Promise<Response> => fetch(origin + path, { headers: await rig.headers('GET', signed) })
  assert.deepEqual(await (await get('/orders/ord_1')).json(), { id: 'ord_1', account: 'acc-1', status: 'on its way' })
  assert.equal((await get('/orders/ord_2')).status, 404, "it is another account's")
  assert.equal((await get('/orders/ord_1', '/orders/ord_2')).status, 401)
  assert.equal((await fetch(`${origin}/orders/ord_1`)).status, 401)
  assert.equal((await get('/ORDERS/ord_1')).status, 404)

  const ask = async (text: string, account?: string): Promise<Response> => {
    const request = message(text, account ?? null)
    return fetch(`${origin}/agent`, { method: 'POST', headers: request.headers, body: await request.text() })
  }
  assert.deepEqual(await (await ask('Hi')).json(), { messages: [{ text: 'You said: Hi' }] })
  assert.deepEqual(await (await ask('Where is my order?')).json(), { authorization: { error: 'sign_in_required' } })
  assert.deepEqual((await (await ask('Where is my order?', 'acc-1')).json() as { messages: { text: string }[] }).messages[0]?.text, 'ord_1 is on its way.')
  assert.deepEqual((await (await ask('A person, please')).json() as { hand_off: unknown }).hand_off, { reason: 'A person, please' })
  assert.match(await (await ask('Tell me a story')).text(), /^event: text-delta\ndata: \{"text":"Once .*event: done\ndata: \{\}\n\n$/s)
  assert.equal((await ask('Is the kitchen open?')).status, 202)
  assert.deepEqual([responses[0]?.conversation, responses[0]?.delivery], [`${COMPANY}/conversations/cnv_1`, 'dlv_1'])
  assert.equal((await fetch(`${origin}/agent`, { method: 'POST', body: '{}' })).status, 401)
})

test('a handler on node sees what came', async (t) => {
  const server = createServer((req, res) => void onNode(async (request) => new Response(await request.text(), { status: 201, headers: { 'X-Was': request.headers.get('x-is') ?? '' } }))(req, res))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const got = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, { method: 'POST', body: 'é', headers: { 'X-Is': 'here' } })
  assert.deepEqual([got.status, await got.text(), got.headers.get('x-was')], [201, 'é', 'here'])
})
