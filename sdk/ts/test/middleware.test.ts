import assert from 'node:assert/strict'
import { request as httpRequest, type RequestListener } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import test, { type TestContext } from 'node:test'
import { create } from '@bufbuild/protobuf'
import express from 'express'
import { Hono } from 'hono'
import { NextRequest } from 'next/server.js'
import { agents as expressAgents, sessionOf } from '../src/express.js'
import { VerifyRequestResponseSchema } from '../src/gen/poppyfield/admin/v1/access_pb.js'
import { agents as honoAgents } from '../src/hono.js'
import { agents as nextAgents } from '../src/next.js'
import { BASE, Rig, SESSION } from './rig.js'

interface Answer {
  status: number
  headers: Headers
  body: string
}
/** Sends a request to a server with an API at /orders/:id that says whose request it is. */
type Send = (method: string, target: string, headers: [string, string][]) => Promise<Answer>

const CHALLENGE = 'DPoP error="invalid_dpop_proof", error_description="the request needs a DPoP proof", algs="ES256 ES384 EdDSA PS256 RS256"'

async function listen(t: TestContext, handle: RequestListener): Promise<Send> {
  const server = createServer(handle)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  return (method, path, headers) => new Promise((resolve, reject) => {
    const request = httpRequest({ port, host: '127.0.0.1', method, path, headers: ['Host', 'evil.example', ...headers.flat()], agent: false }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('end', () => resolve({
        status: response.statusCode ?? 0, headers: new Headers(response.headers as Record<string, string>), body: Buffer.concat(parts).toString(),
      }))
    })
    request.on('error', reject)
    request.end()
  })
}

const answerOf = async (response: Response): Promise<Answer> => ({ status: response.status, headers: response.headers, body: await response.text() })

const SERVERS: Record<string, (t: TestContext, rig: Rig) => Promise<Send>> = {
  express: (t, rig) => {
    const app = express()
    app.get('/orders/:id', expressAgents(rig.verifier), (req, res) => void res.json({ order: req.params.id, session: sessionOf(req).name }))
    return listen(t, app)
  },
  hono: async (_, rig) => {
    const app = new Hono()
    app.get('/orders/:id', honoAgents(rig.verifier), (c) => c.json({ order: c.req.param('id'), session: c.get('agentSession').name }))
    return async (method, target, headers) => answerOf(await app.request(`http://evil.example${target}`, { method, headers }))
  },
  next: async (_, rig) => {
    const GET = nextAgents(rig.verifier, async (request: NextRequest, session, { params }: { params: Promise<{ id: string }> }) =>
      Response.json({ order: (await params).id, session: session.name, page: request.nextUrl.searchParams.get('page') ?? undefined }))
    return async (method, target, headers) => {
      const request = new NextRequest(`http://evil.example${target}`, { method, headers })
      return answerOf(await GET(request, { params: Promise.resolve({ id: request.nextUrl.pathname.split('/')[2] ?? '' }) }))
    }
  },
}

for (const [name, serve] of Object.entries(SERVERS)) {
  test(`${name}: a request that is allowed is served, with its Session and what goes on its answer`, async (t) => {
    const rig = await Rig.make(t)
    const send = await serve(t, rig)
    for (let i = 0; i < 2; i++) { // judged by the server, and here
      const got = await send('GET', '/orders/7', Object.entries({ ...(await rig.headers('GET', '/orders/7')), 'agent-session': 'forged' }))
      assert.deepEqual([got.status, JSON.parse(got.body)], [200, { order: '7', session: SESSION }])
    }
    assert.deepEqual(rig.server.asked.map((a) => a.url), [`${BASE}/orders/7`], 'the Host field of a request counts for nothing')
    const session = rig.server.tokens.values().next().value?.session ?? assert.fail()
    rig.server.answer = create(VerifyRequestResponseSchema, { allowed: true, session, headers: [{ name: 'DPoP-Nonce', value: 'n1' }] })
    rig.known.forgetAll()
    const got = await send('GET', '/orders/7', Object.entries(await rig.headers('GET', '/orders/7')))
    assert.deepEqual([got.status, got.headers.get('dpop-nonce')], [200, 'n1'])
  })

  test(`${name}: a refusal is answered as the protocol says`, async (t) => {
    const rig = await Rig.make(t)
    const send = await serve(t, rig)
    await rig.learn()
    const { authorization = '', dpop = '' } = await rig.headers('GET', '/orders/7')
    const got = await send('GET', '/orders/7', [['authorization', authorization]])
    assert.deepEqual(
      [got.status, got.body, got.headers.get('content-type'), got.headers.get('cache-control'), got.headers.get('www-authenticate')],
      [401, '{"error":"invalid_dpop_proof","error_description":"the request needs a DPoP proof"}', 'application/json', 'no-store', CHALLENGE],
    )
    assert.equal((await send('GET', '/orders/7', [['authorization', authorization], ['dpop', dpop], ['dpop', dpop]])).status, 400, 'two proofs')
    assert.equal((await send('GET', '/orders/7', [['authorization', authorization], ['authorization', authorization], ['dpop', dpop]])).status, 400, 'two tokens')
    assert.equal((await send('GET', '/orders/8', [['authorization', authorization], ['dpop', dpop]])).status, 401, 'a proof for another address')
    assert.equal((await send('GET', '/orders/7?page=2', [['authorization', authorization], ['dpop', dpop]])).status, 200, 'none of them has used it up')
  })

  test(`${name}: what nobody has judged is not served`, async (t) => {
    const rig = await Rig.make(t)
    const send = await serve(t, rig)
    rig.server.unavailable = true
    const got = await send('GET', '/orders/7', Object.entries(await rig.headers('GET', '/orders/7')))
    assert.deepEqual(
      [got.status, got.body, got.headers.get('retry-after'), got.headers.get('cache-control')],
      [503, '{"error":"temporarily_unavailable"}', '1', 'no-store'],
    )
  })
}

test('express: a target that is not a path is served to nobody', async (t) => {
  const rig = await Rig.make(t)
  const app = express()
  app.use(expressAgents(rig.verifier), (_, res) => void res.json({}))
  const send = await listen(t, app)
  for (const target of ['http://evil.example/orders/7', `${BASE}/orders/7`]) {
    const got = await send('GET', target, Object.entries(await rig.headers('GET', '/orders/7')))
    assert.deepEqual([got.status, got.body], [400, '{"error":"invalid_request"}'])
  }
  assert.equal(rig.server.asked.length, 0)
})

test('an address of none of the APIs is the Company\'s fault, and says nothing of tokens', async (t) => {
  const rig = await Rig.make(t, { baseUrl: 'https://elsewhere.example' })
  const send = await (SERVERS['hono'] ?? assert.fail())(t, rig)
  const got = await send('GET', '/orders/7', Object.entries(await rig.headers('GET', '/orders/7')))
  assert.deepEqual([got.status, got.body], [400, '{"error":"invalid_request"}'])
  assert.equal(rig.server.asked.length, 1)
})

test('next: headers that can\'t be changed are no hindrance', async (t) => {
  const rig = await Rig.make(t)
  const session = rig.server.tokens.values().next().value?.session ?? assert.fail()
  rig.server.answer = create(VerifyRequestResponseSchema, { allowed: true, session, headers: [{ name: 'DPoP-Nonce', value: 'n1' }] })
  const GET = nextAgents(rig.verifier, () => Response.redirect('https://shop.example/'))
  const got = await GET(new Request(`${BASE}/orders/7`, { headers: await rig.headers('GET', '/orders/7') }))
  assert.deepEqual([got.status, got.headers.get('dpop-nonce')], [302, 'n1'])
})
