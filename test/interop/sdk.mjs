// The SDK for TypeScript as a Company has it: its example, on Express, serves an API and
// answers messages; oauth4webapi is the agent. It knows the public interfaces and the
// ready file, nothing else.
//
//   node sdk.mjs READY_FILE PORT CERT KEY CA
//
// The server must have been started with --dev-host agent.interop.test=127.0.0.1:PORT
// and backend.interop.test likewise, and --trust-ca CA, the issuer of CERT.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import https from 'node:https'
import test from 'node:test'
import * as oauth from 'oauth4webapi'
import { shop } from '../../sdk/ts/dist/example/shop.js'
import { Conversations, dial, Verifier } from '../../sdk/ts/dist/src/index.js'
import { Webhooks } from '../../sdk/ts/dist/src/webhook/index.js'
import { newAgent } from './agent.mjs'
import { foreignFetch } from './net.mjs'

const [readyFile, port, certFile, keyFile, caFile] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const ca = readFileSync(ready.ca_file)
const API = 'https://api.interop.test'
const ORDER = `${API}/orders/ord_1`
const fetch = foreignFetch({ hosts: { ...ready.hosts, 'api.interop.test': `127.0.0.1:${port}` }, ca: [ca, readFileSync(caFile)] })

async function admin(method, path, body) {
  const answer = await fetch(`${ready.api_origin}/v1/${ready.demo_company}${path}`, {
    method,
    headers: { authorization: `Bearer ${ready.demo_company_api_key}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  assert.equal(answer.status, 200, `${method} ${path}: ${await answer.clone().text()}`)
  return answer.json()
}

// The Company.
await admin('PATCH', '/backend', { url: 'https://backend.interop.test/agent' })
const { secret } = await admin('POST', '/backend:rotateSecret', { kind: 'SECRET_KIND_HMAC' })
const listing = { type: 'openapi', url: `${API}/openapi.json`, base_urls: [API] }
await admin('PATCH', '/discoverySettings', { apis: [listing] })
const transport = dial(ready.grpc_address, ready.demo_company_api_key, { ca })
const counted = { verifyRequest: 0 }
const asked = {
  ...transport,
  unary(method, ...rest) {
    if (method.localName in counted) counted[method.localName]++
    return transport.unary(method, ...rest)
  },
  stream: (...rest) => transport.stream(...rest),
}
const verifier = new Verifier({ company: ready.demo_company, transport: asked, baseUrl: API, local: true })
const app = shop(verifier, new Webhooks([secret]), new Conversations(transport))
const agent = await newAgent('https://agent.interop.test')
const server = https.createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, (request, response) => {
  const document = agent.documents[request.url]
  if (!document) return app(request, response)
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document))
})
await once(server.listen(Number(port), '127.0.0.1'), 'listening')

// The agent.
const client = { client_id: agent.clientId }
const user = `usr_${randomBytes(12).toString('base64url')}`
const dpop = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
const metadata = await oauth.discoveryRequest(new URL(ready.demo_issuer), { algorithm: 'oauth2', [oauth.customFetch]: fetch })
const as = await oauth.processDiscoveryResponse(new URL(ready.demo_issuer), metadata)
const grant = await oauth.genericTokenEndpointRequest(
  as, client, oauth.PrivateKeyJwt(agent.signingKey), 'urn:ietf:params:oauth:grant-type:jwt-bearer',
  { assertion: await agent.sessionAssertion(as.token_endpoint, user) }, { DPoP: dpop, [oauth.customFetch]: fetch },
)
const session = await oauth.processGenericTokenEndpointResponse(as, client, grant)

// call returns what a request was answered, and sends it again.
async function call(url, { method = 'GET', body, token = session.access_token } = {}) {
  let sent
  const keep = (address, options) => fetch(...(sent = [address, options]))
  const headers = new Headers(body ? { 'content-type': 'application/json' } : {})
  const text = body ? JSON.stringify(body) : null
  const answer = await oauth.protectedResourceRequest(token, method, new URL(url), headers, text, { DPoP: dpop, [oauth.customFetch]: keep })
    .catch((error) => {
      if (error instanceof oauth.WWWAuthenticateChallengeError) return error.response
      throw error
    })
  return { status: answer.status, challenge: answer.headers.get('www-authenticate'), body: await answer.json(), again: () => fetch(...sent) }
}

// eventually calls until the answer is as wanted.
async function eventually(wanted, send) {
  const deadline = Date.now() + 20_000
  for (;;) {
    const answer = await send()
    if (wanted(answer)) return answer
    assert.ok(Date.now() < deadline, JSON.stringify(answer))
  }
}

await test('the server judges until what it said is known, and then nobody is asked', async () => {
  const served = (answer) => answer.status === 404 && answer.body.error === 'not_found' // nobody's order
  await eventually((answer) => served(answer) && counted.verifyRequest > 0, () => call(ORDER))
  await eventually((before) => before === counted.verifyRequest, async () => {
    const before = counted.verifyRequest
    assert.ok(served(await call(ORDER)))
    return before
  })
})

await test('a proof is good once, and for its own address', async () => {
  const first = await call(ORDER)
  assert.equal(first.status, 404)
  const second = await first.again()
  assert.equal(second.status, 401)
  assert.match(second.headers.get('www-authenticate'), /^DPoP error="invalid_dpop_proof"/)
})

await test('a token that is none is refused', async () => {
  const refused = await call(ORDER, { token: 'st_AAAAAAAAAAAAAAAAAAAAAAAA' })
  assert.deepEqual([refused.status, refused.body.error], [401, 'invalid_token'])
})

await test('rules that were changed hold at once, and are refused alike by both', async () => {
  await admin('PATCH', '/discoverySettings', { apis: [{ ...listing, rules: [{ methods: ['GET'], path: '/orders/**', scopes: ['poppy:read'] }] }] })
  const challenge = 'DPoP error="sign_in_required", error_description="the User has to sign in for this", scope="poppy:read", algs="ES256 ES384 EdDSA PS256 RS256"'
  const refused = (answer) => answer.status === 403
  const first = await eventually(refused, () => call(ORDER))
  const here = await eventually((answer) => answer.here, async () => {
    const before = counted.verifyRequest
    const answer = await call(ORDER)
    return { ...answer, here: before === counted.verifyRequest }
  })
  for (const answer of [first, here]) {
    assert.equal(answer.challenge, challenge)
    assert.deepEqual(answer.body, { error: 'sign_in_required', error_description: 'the User has to sign in for this', scope: 'poppy:read' })
  }
})

await test('the backend answers at once, later, and piece by piece', async () => {
  const document = await eventually((answer) => answer.agent, async () => {
    let url = `https://${ready.demo_domain}/.well-known/poppy.json`
    let answer = await fetch(url)
    while (answer.status > 299 && answer.status < 400) answer = await fetch((url = new URL(answer.headers.get('location'), url).href))
    return answer.json()
  })
  const { endpoint } = document.agent.protocols.find((p) => p.type === 'poppy')
  const said = []
  for (const [text, answer] of [['Hello', 'You said: Hello'], ['Tell me a story', 'Once upon a time there was a parcel.'], ['Look in the kitchen', 'It is in the oven.']]) {
    const message = { id: `msg_${randomBytes(12).toString('base64url')}`, sender: 'agent', text }
    const start = await call(endpoint, { method: 'POST', body: { message } })
    assert.equal(start.status, 201, JSON.stringify(start.body))
    await eventually((texts) => texts.includes(answer), async () => {
      const page = await call(`${endpoint}/${start.body.conversation_id}/events?wait=10`)
      return page.body.events.flatMap((event) => event.message?.text ?? [])
    })
    said.push(answer)
  }
  assert.equal(said.length, 3)
})

await test('a Session that was ended is refused at once', async () => {
  await admin('POST', `/sessions/${session.session_id}:end`, {})
  const refused = await eventually((answer) => answer.status === 401, () => call(ORDER))
  assert.equal(refused.body.error, 'invalid_token')
})

await verifier.close()
server.closeAllConnections()
server.close()
