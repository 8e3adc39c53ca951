// Drives a running server as foreign software does: oauth4webapi as the agent's OAuth
// client, standardwebhooks as the verifier of the Company's backend. It knows the
// public interfaces and the ready file, nothing else.
//
//   node interop.mjs READY_FILE PORT CERT KEY
//
// The server must have been started with --dev-host agent.interop.test=127.0.0.1:PORT
// and backend.interop.test likewise, and --trust-ca with the issuer of CERT.
import assert from 'node:assert/strict'
import { createPublicKey, randomBytes, verify as verifySignature } from 'node:crypto'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import * as oauth from 'oauth4webapi'
import { Webhook } from 'standardwebhooks'
import { newAgent } from './agent.mjs'
import { foreignFetch } from './net.mjs'
import { serve } from './servers.mjs'

const [readyFile, port, certFile, keyFile] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const fetch = foreignFetch({ hosts: ready.hosts, ca: readFileSync(ready.ca_file) })
const via = { [oauth.customFetch]: fetch }

// A domain as documents name it; the ready file's may have the port to reach it at.
const domain = ready.demo_domain.replace(/:\d+$/, '')

const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const USER = `usr_${randomBytes(12).toString('base64url')}`

const agent = await newAgent('https://agent.interop.test')
const client = { client_id: agent.clientId }
const authentication = oauth.PrivateKeyJwt(agent.signingKey)
const dpop = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
const backend = await serve({
  port: Number(port),
  cert: readFileSync(certFile),
  key: readFileSync(keyFile),
  documents: agent.documents,
  reply: (webhook) => ({ messages: [{ text: `You said: ${webhook.data.message.text}` }] }),
})

// What one step finds and the next ones use.
const found = {}

// tokenRequest sends the JWT bearer grant and returns the answer as oauth4webapi
// judges it, or throws its error.
async function tokenRequest(parameters, options = { DPoP: dpop }) {
  const answer = await oauth.genericTokenEndpointRequest(
    found.as, client, authentication, JWT_BEARER, parameters, { ...options, ...via },
  )
  return oauth.processGenericTokenEndpointResponse(found.as, client, answer)
}

const assertion = () => agent.sessionAssertion(found.as.token_endpoint, USER)

// call sends a request with the Session Token and a proof, once more when the answer
// asks for a nonce.
async function call(method, url, body) {
  const headers = new Headers(body ? { 'content-type': 'application/json' } : {})
  const send = () =>
    oauth.protectedResourceRequest(
      found.session.access_token, method, new URL(url), headers, body ? JSON.stringify(body) : null, { DPoP: dpop, ...via },
    )
  return send().catch((error) => {
    if (oauth.isDPoPNonceError(error)) return send()
    throw error
  })
}

// admin calls the admin API as the demo Company.
async function admin(method, path, body) {
  const answer = await fetch(`${ready.api_origin}/v1/${ready.demo_company}${path}`, {
    method,
    headers: { authorization: `Bearer ${ready.demo_company_api_key}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  assert.equal(answer.status, 200, `${method} ${path}: ${await answer.clone().text()}`)
  return answer.json()
}

// refused asserts that a token request fails with an OAuth error.
async function refused(request, status, code) {
  const error = await request.then(
    () => assert.fail(`expected ${code}`),
    (caught) => caught,
  )
  const seen = error instanceof oauth.WWWAuthenticateChallengeError ? error.cause[0].parameters.error : error.error
  assert.equal(seen, code, error)
  assert.equal(error.status, status)
}

await test('a domain leads to its document', async () => {
  let url = `https://${ready.demo_domain}/.well-known/poppy.json`
  let answer
  for (let hops = 0; hops < 5; hops++) {
    answer = await fetch(url)
    if (answer.status < 300 || answer.status > 399) break
    url = new URL(answer.headers.get('location'), url).href
    assert.ok(url.startsWith('https://'), url)
  }
  assert.equal(answer.status, 200)
  found.document = await answer.json()
  assert.equal(found.document.protocol_version, '0.1')
  assert.equal(found.document.organization.domain, domain)
})

await test('the issuer publishes RFC 8414 metadata', async () => {
  const issuer = new URL(found.document.auth.issuer)
  const answer = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...via })
  found.as = await oauth.processDiscoveryResponse(issuer, answer)
  assert.equal(found.as.issuer, found.document.auth.issuer)
  assert.ok(found.as.poppy_domains.includes(domain))
  assert.ok(found.as.token_endpoint_auth_methods_supported.includes('private_key_jwt'))
  assert.ok(found.as.grant_types_supported.includes(JWT_BEARER))
  assert.ok(found.as.dpop_signing_alg_values_supported.includes('ES256'))
})

await test('the JWT bearer grant starts a Session', async () => {
  found.session = await tokenRequest({ assertion: await assertion() })
  assert.equal(found.session.token_type, 'dpop')
  assert.equal(found.session.scope, '')
  assert.equal(found.session.signed_in, false)
  assert.ok(found.session.expires_in > 0)
  assert.match(found.session.session_id, /^ses_/)
})

await test('a Session is renewed under its session_id', async () => {
  const renewed = await tokenRequest({ assertion: await assertion(), session_id: found.session.session_id })
  assert.equal(renewed.session_id, found.session.session_id)
  assert.notEqual(renewed.access_token, found.session.access_token)
  found.session = renewed
})

await test('an unknown session_id is refused', async () => {
  await refused(tokenRequest({ assertion: await assertion(), session_id: 'ses_unknown' }), 400, 'invalid_session')
})

await test('a Session assertion works once', async () => {
  const once = await assertion()
  await tokenRequest({ assertion: once })
  await refused(tokenRequest({ assertion: once }), 400, 'invalid_grant')
})

await test("another Company's Session assertion is refused", async () => {
  const foreign = await agent.sessionAssertion('https://other.example/oauth/token', USER)
  await refused(tokenRequest({ assertion: foreign }), 400, 'invalid_grant')
})

await test('a token request without a proof is refused', async () => {
  const error = await tokenRequest({ assertion: await assertion() }, {}).catch((caught) => caught)
  assert.ok(error instanceof Error, 'a token without a proof')
  assert.equal(error.status, 400)
})

await test('a client that is not whom it says is refused', async () => {
  const stranger = await newAgent('https://agent.interop.test')
  const answer = await oauth.genericTokenEndpointRequest(
    found.as, client, oauth.PrivateKeyJwt(stranger.signingKey), JWT_BEARER,
    { assertion: await assertion() }, { DPoP: dpop, ...via },
  )
  assert.equal(answer.status, 401)
  assert.equal((await answer.json()).error, 'invalid_client')
})

await test('a conversation gets the answer of the backend', async () => {
  await admin('PATCH', '/backend', { url: 'https://backend.interop.test/webhook' })
  found.secret = (await admin('POST', '/backend:rotateSecret', { kind: 'SECRET_KIND_HMAC' })).secret
  const endpoint = found.document.agent.protocols.find((p) => p.type === 'poppy').endpoint
  const start = await call('POST', endpoint, {
    message: { id: `msg_${randomBytes(12).toString('base64url')}`, sender: 'agent', text: 'Is the soup vegan?' },
  })
  assert.equal(start.status, 201)
  const { conversation_id: id } = await start.json()
  const texts = []
  let cursor = ''
  const deadline = Date.now() + 30_000
  while (!texts.includes('You said: Is the soup vegan?')) {
    assert.ok(Date.now() < deadline, `no answer among ${JSON.stringify(texts)}`)
    const read = await call('GET', `${endpoint}/${id}/events?wait=10${cursor && `&cursor=${encodeURIComponent(cursor)}`}`)
    assert.equal(read.status, 200)
    const page = await read.json()
    cursor = page.cursor
    texts.push(...page.events.flatMap((event) => event.message?.text ?? []))
  }
})

await test('standardwebhooks accepts the signature', async () => {
  const webhook = await backend.webhook('Is the soup vegan?')
  const verifier = new Webhook(found.secret)
  const event = verifier.verify(webhook.body, webhook.headers)
  assert.equal(event.type, 'conversation.message')
  assert.equal(event.data.message.text, 'Is the soup vegan?')
  assert.equal(event.data.user.id, USER)
  assert.throws(() => verifier.verify(webhook.body.replace('soup', 'soap'), webhook.headers))
  assert.throws(() => new Webhook(`whsec_${randomBytes(32).toString('base64')}`).verify(webhook.body, webhook.headers))
})

await test('the published key verifies the v1a signature', async () => {
  const { keys } = await (await fetch(`${found.as.issuer}/poppy/webhook-keys.json`)).json()
  const { headers, body } = await backend.webhook('Is the soup vegan?')
  const signatures = headers['webhook-signature'].split(' ').filter((s) => s.startsWith('v1a,'))
  const signed = Buffer.from(`${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`)
  const verified = keys.some(({ public_key: key }) => {
    assert.match(key, /^whpk_/)
    const x = Buffer.from(key.slice('whpk_'.length), 'base64').toString('base64url')
    const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
    return signatures.some((s) => verifySignature(null, signed, publicKey, Buffer.from(s.slice(4), 'base64')))
  })
  assert.ok(verified, `none of ${keys.length} keys verifies ${headers['webhook-signature']}`)
})

// The setting reaches the token endpoint within moments, so the first requests may
// still pass.
await test('a Company that asks for nonces gets them', async () => {
  await admin('PATCH', '/admission', { require_dpop_nonce: true })
  const fresh = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
  const start = async () => tokenRequest({ assertion: await assertion() }, { DPoP: fresh })
  const deadline = Date.now() + 10_000
  let error
  while (!error) {
    assert.ok(Date.now() < deadline, 'no nonce was asked for')
    error = await start().then(() => undefined, (caught) => caught)
  }
  assert.ok(oauth.isDPoPNonceError(error), String(error))
  assert.equal(error.status, 400)

  const session = await start()
  assert.equal(session.token_type, 'dpop')
  const renewed = await tokenRequest(
    { assertion: await assertion(), session_id: session.session_id }, { DPoP: fresh },
  )
  assert.equal(renewed.session_id, session.session_id)
})

await test('a resource asks for a nonce with 401', async () => {
  const endpoint = found.document.agent.protocols.find((p) => p.type === 'poppy').endpoint
  const keys = await oauth.generateKeyPair('ES256')
  const first = oauth.DPoP(client, keys)
  const start = async () => tokenRequest({ assertion: await assertion() }, { DPoP: first })
  const session = await start().catch((error) => {
    assert.ok(oauth.isDPoPNonceError(error), String(error))
    return start()
  })
  const second = oauth.DPoP(client, keys) // the same key, and no nonce yet
  const body = JSON.stringify({
    message: { id: `msg_${randomBytes(12).toString('base64url')}`, sender: 'agent', text: 'Still open?' },
  })
  const post = () =>
    oauth.protectedResourceRequest(
      session.access_token, 'POST', new URL(endpoint), new Headers({ 'content-type': 'application/json' }), body,
      { DPoP: second, ...via },
    )
  const error = await post().then(() => assert.fail('accepted without a nonce'), (caught) => caught)
  assert.ok(oauth.isDPoPNonceError(error), String(error))
  assert.equal(error.status, 401)
  assert.equal((await post()).status, 201)
})

backend.close()
