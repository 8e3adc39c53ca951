// Signs Users in as foreign software does: oauth4webapi as the agent's OAuth client,
// node-oidc-provider as a Company's identity provider, and a browser without scripts.
//
//   node sign-in.mjs READY_FILE PORT PROVIDER_PORT CERT KEY CA
//
// The server must have been started with --dev-host agent.interop.test=127.0.0.1:PORT,
// --dev-host accounts.interop.test=127.0.0.1:PROVIDER_PORT, and --trust-ca CA, the issuer of CERT.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import * as oauth from 'oauth4webapi'
import { newAgent } from './agent.mjs'
import { newBrowser } from './browser.mjs'
import { foreignFetch } from './net.mjs'
import { newOperator } from './operator.mjs'
import { serveProvider } from './provider.mjs'
import { serve } from './servers.mjs'

const [readyFile, port, providerPort, certFile, keyFile, caFile] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const certificate = { cert: readFileSync(certFile), key: readFileSync(keyFile) }
const fetch = foreignFetch({
  hosts: { ...ready.hosts, 'accounts.interop.test': `127.0.0.1:${providerPort}` },
  ca: [readFileSync(ready.ca_file), readFileSync(caFile)],
})
const via = { [oauth.customFetch]: fetch }

const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const PROVIDER = 'https://accounts.interop.test'
const READ_WRITE = 'poppy:read poppy:write'

const agent = await newAgent('https://agent.interop.test')
const client = { client_id: agent.clientId }
const authentication = oauth.PrivateKeyJwt(agent.signingKey)
const callback = agent.documents['/agent.json'].redirect_uris[0]
const atAgent = (url) => url.href.startsWith(callback)
const documents = await serve({ port: Number(port), ...certificate, documents: agent.documents, reply: () => ({}) })

const { api, company: newCompany } = newOperator(ready, fetch)
const offered = { direct_scopes: READ_WRITE.split(' '), device_scopes: READ_WRITE.split(' ') }
const company = (slug, connection) => newCompany(slug, slug, connection, offered)

// An errand is one User's agent at one Company, with a key and a Session of its own.
async function errand(at) {
  const user = `usr_${randomBytes(12).toString('base64url')}`
  const dpop = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
  // again sends once more when the answer asks for a nonce, as the protocol says.
  const again = (send) =>
    send().catch((error) => {
      if (oauth.isDPoPNonceError(error)) return send()
      throw error
    })
  const options = (session) => ({ DPoP: dpop, ...(session && { additionalParameters: { session_id: session } }), ...via })
  const self = {
    user,
    start: () =>
      again(async () => {
        const assertion = await agent.sessionAssertion(at.as.token_endpoint, user)
        const answer = await oauth.genericTokenEndpointRequest(at.as, client, authentication, JWT_BEARER, { assertion }, options())
        return oauth.processGenericTokenEndpointResponse(at.as, client, answer)
      }),
    exchange: (parameters, verifier, session) =>
      again(async () => {
        const answer = await oauth.authorizationCodeGrantRequest(at.as, client, authentication, parameters, callback, verifier, options(session))
        return oauth.processAuthorizationCodeResponse(at.as, client, answer)
      }),
    poll: (code, session) =>
      again(async () => {
        const answer = await oauth.deviceCodeGrantRequest(at.as, client, authentication, code, options(session))
        return oauth.processDeviceCodeResponse(at.as, client, answer)
      }),
    refresh: (token, session, scope) =>
      again(async () => {
        const { additionalParameters, ...rest } = options(session)
        const answer = await oauth.refreshTokenGrantRequest(at.as, client, authentication, token, {
          ...rest, additionalParameters: { ...additionalParameters, ...(scope && { scope }) },
        })
        return oauth.processRefreshTokenResponse(at.as, client, answer)
      }),
    revoke: async (token) =>
      oauth.processRevocationResponse(await oauth.revocationRequest(at.as, client, authentication, token, via)),
    // authorize opens the authorization URL and gives what the exchange needs.
    async authorize(browser, scope = READ_WRITE) {
      const verifier = oauth.generateRandomCodeVerifier()
      const state = oauth.generateRandomState()
      const url = new URL(at.as.authorization_endpoint)
      for (const [name, value] of Object.entries({
        response_type: 'code', client_id: client.client_id, redirect_uri: callback, scope, state,
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
      })) url.searchParams.set(name, value)
      return { verifier, state, page: await browser.open(url) }
    },
    validate: (left, state) => oauth.validateAuthResponse(at.as, client, left, state),
  }
  return self
}

async function refused(request, code, status = 400) {
  const error = await request.then(() => assert.fail(`expected ${code}`), (caught) => caught)
  assert.equal(error.error, code, error)
  assert.equal(error.status, status)
}

const users = [
  { account: 'acc-mia', label: 'mia@shop.example', username: 'mia', password: 'noodles' },
  { account: 'acc-ken', label: 'ken@shop.example', username: 'ken', password: 'dumplings' },
]

const login = (browser, page, who) =>
  browser.submit(page, { button: 'login', values: { 'field.username': who.username, 'field.password': who.password } })

const testCompany = await company('accounts', { method: 'SIGN_IN_METHOD_TEST_ACCOUNTS', test_accounts: users })

// The same with and without nonces: they change every token request.
for (const nonce of [false, true]) {
  const mode = nonce ? 'with nonces' : 'without nonces'

  await test(`setting up, ${mode}`, async () => {
    await api('PATCH', `${testCompany.name}/admission`, { require_dpop_nonce: nonce })
    const deadline = Date.now() + 10_000
    for (;;) { // the setting reaches the token endpoint within moments
      const probe = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
      const answer = await oauth.genericTokenEndpointRequest(testCompany.as, client, authentication, JWT_BEARER,
        { assertion: await agent.sessionAssertion(testCompany.as.token_endpoint, 'usr_probe_probe_probe') }, { DPoP: probe, ...via })
      if ((answer.status === 400) === nonce) break
      assert.ok(Date.now() < deadline)
    }
  })

  await test(`Direct Sign-In: code, PKCE and RFC 9207, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const session = await mia.start()
    assert.equal(session.signed_in, false)
    const browser = newBrowser(fetch)
    const { verifier, state, page } = await mia.authorize(browser)
    const consent = await login(browser, page, users[0])
    assert.match(consent.text, /Interop Agent/)
    assert.match(consent.text, /agent\.interop\.test/)
    const { left } = await browser.submit(consent, { button: 'approve' }, atAgent)
    const parameters = mia.validate(left, state)
    const tokens = await mia.exchange(parameters, verifier, session.session_id)
    assert.equal(tokens.session_id, session.session_id)
    assert.equal(tokens.signed_in, true)
    assert.equal(tokens.scope, READ_WRITE)
    assert.ok(tokens.refresh_token)
    assert.ok(tokens.refresh_token_expires_in > 0)

    // Account Tokens: for this Session, for a new one, narrower.
    const renewed = await mia.refresh(tokens.refresh_token, session.session_id)
    assert.equal(renewed.session_id, session.session_id)
    assert.equal(renewed.refresh_token, undefined)
    const fresh = await mia.refresh(tokens.refresh_token)
    assert.notEqual(fresh.session_id, session.session_id)
    assert.equal(fresh.signed_in, true)
    assert.equal((await mia.refresh(tokens.refresh_token, undefined, 'poppy:read')).scope, 'poppy:read')
    await refused(mia.refresh(tokens.refresh_token, undefined, 'poppy:read addresses'), 'invalid_scope')

    await mia.revoke(tokens.refresh_token)
    await mia.revoke(tokens.refresh_token)
    await mia.revoke('pat_never_was')
    await refused(mia.refresh(tokens.refresh_token), 'invalid_grant')
  })

  await test(`Direct Sign-In: a scope unticked, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const session = await mia.start()
    const browser = newBrowser(fetch)
    const { verifier, state, page } = await mia.authorize(browser)
    const consent = await login(browser, page, users[0])
    const { left } = await browser.submit(consent, { button: 'approve', without: ['poppy:write'] }, atAgent)
    const tokens = await mia.exchange(mia.validate(left, state), verifier, session.session_id)
    assert.equal(tokens.scope, 'poppy:read')
  })

  await test(`Direct Sign-In: declined, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const browser = newBrowser(fetch)
    const { state, page } = await mia.authorize(browser)
    const { left } = await browser.submit(page, { button: 'decline' }, atAgent)
    assert.throws(() => mia.validate(left, state), (error) => error.error === 'access_denied')
    assert.equal(left.searchParams.get('iss'), testCompany.as.issuer)
    assert.equal(left.searchParams.get('state'), state)
  })

  await test(`Direct Sign-In: a code works once, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const session = await mia.start()
    const browser = newBrowser(fetch)
    const { verifier, state, page } = await mia.authorize(browser)
    const { left } = await browser.submit(await login(browser, page, users[0]), { button: 'approve' }, atAgent)
    const parameters = mia.validate(left, state)
    await refused(mia.exchange(parameters, oauth.generateRandomCodeVerifier(), session.session_id), 'invalid_grant')
    const tokens = await mia.exchange(parameters, verifier, session.session_id)
    await refused(mia.exchange(parameters, verifier, session.session_id), 'invalid_grant')
    await refused(mia.refresh(tokens.refresh_token), 'invalid_grant')
  })

  await test(`a Session keeps its account, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const session = await mia.start()
    for (const [who, expected] of [[users[0], 'signed in'], [users[1], 'account_mismatch']]) {
      const browser = newBrowser(fetch)
      const { verifier, state, page } = await mia.authorize(browser)
      const { left } = await browser.submit(await login(browser, page, who), { button: 'approve' }, atAgent)
      const request = mia.exchange(mia.validate(left, state), verifier, session.session_id)
      if (expected === 'signed in') assert.equal((await request).signed_in, true)
      else await refused(request, expected)
    }
  })

  await test(`Device Sign-In, ${mode}`, async () => {
    const mia = await errand(testCompany)
    const session = await mia.start()
    const started = await oauth.processDeviceAuthorizationResponse(testCompany.as, client,
      await oauth.deviceAuthorizationRequest(testCompany.as, client, authentication, { scope: READ_WRITE }, via))
    assert.ok(started.interval >= 1)
    await refused(mia.poll(started.device_code, session.session_id), 'authorization_pending')
    await refused(mia.poll(started.device_code, session.session_id), 'slow_down')
    const browser = newBrowser(fetch)
    const page = await browser.open(started.verification_uri)
    const loginPage = await browser.submit(page, { values: { user_code: started.user_code.toLowerCase().replace('-', ' ') } })
    const consent = await login(browser, loginPage, users[1])
    assert.ok(consent.text.includes(started.user_code))
    const done = await browser.submit(consent, { button: 'approve' })
    assert.equal(done.status, 200)
    const tokens = await mia.poll(started.device_code, session.session_id)
    assert.equal(tokens.signed_in, true)
    assert.ok(tokens.refresh_token)
  })
}

await test('OpenID Connect at a foreign provider', async () => {
  const secret = randomBytes(32).toString('base64url')
  const shop = await company('oidc', {
    method: 'SIGN_IN_METHOD_OIDC', oidc: { issuer: PROVIDER, client_id: 'poppyfield', client_secret: secret, scopes: ['email'] },
  })
  assert.equal(shop.set.oidc.client_secret, '')
  assert.equal(shop.set.oidc.has_client_secret, true)
  const provider = await serveProvider({
    issuer: PROVIDER, port: Number(providerPort), ...certificate, client: { id: 'poppyfield', secret }, redirectURI: shop.set.oidc.callback_url,
  })
  try {
    const checked = await api('POST', `${shop.name}/signInConnection:check`, {})
    assert.ok(checked.ok, JSON.stringify(checked))
    const mia = await errand(shop)
    const session = await mia.start()
    const browser = newBrowser(fetch)
    const { verifier, state, page } = await mia.authorize(browser)
    assert.equal(new URL(page.url).origin, PROVIDER)
    let next = await browser.submit(page, { values: { login: 'mia', password: 'anything' } })
    if (new URL(next.url).origin === PROVIDER) next = await browser.submit(next) // the provider's own consent
    assert.match(next.text, /mia@shop\.example/)
    const { left } = await browser.submit(next, { button: 'approve' }, atAgent)
    const tokens = await mia.exchange(mia.validate(left, state), verifier, session.session_id)
    assert.equal(tokens.signed_in, true)
    const { connected_agents: connected } = await api('GET', `${shop.name}/connectedAgents?account=mia`)
    assert.equal(connected.length, 1)
    assert.equal(connected[0].user, mia.user)
    assert.deepEqual(connected[0].scopes, READ_WRITE.split(' '))
  } finally {
    provider.close()
  }
})

documents.close()
