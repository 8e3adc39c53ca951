// A User in a real browser, on the sign-in pages of a running server: consent in part,
// declining, a device, wrong and late codes, another account, disconnecting. The agent
// beside them is oauth4webapi.
//
//   node sign-in.mjs READY_FILE PORT CERT KEY CA CHROMIUM
//
// The server must have been started with --dev-host agent.interop.test=127.0.0.1:PORT,
// --dev-host accounts.interop.test=127.0.0.1:PORT, and --trust-ca CA, the issuer of CERT.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import https from 'node:https'
import { createRequire } from 'node:module'
import test from 'node:test'
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'
import { newAgent } from '../interop/agent.mjs'
import { foreignFetch } from '../interop/net.mjs'
import { newOperator } from '../interop/operator.mjs'

// The OAuth client is the one of the foreign clients.
const interop = createRequire(new URL('../interop/', import.meta.url))
const oauth = await import(pathToFileURL(interop.resolve('oauth4webapi')).href)

const [readyFile, port, certFile, keyFile, caFile, executablePath] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const fetch = foreignFetch({ hosts: ready.hosts, ca: [readFileSync(ready.ca_file), readFileSync(caFile)] })
const via = { [oauth.customFetch]: fetch }
const SCOPES = ['poppy:read', 'poppy:write', 'addresses']

const agent = await newAgent('https://agent.interop.test')
const client = { client_id: agent.clientId }
const authentication = oauth.PrivateKeyJwt(agent.signingKey)
const callback = agent.documents['/agent.json'].redirect_uris[0]

// What the Company's credential check answers, in turn; the last one stays.
const verdicts = []

const outside = https.createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, async (request, response) => {
  const path = new URL(request.url, 'https://any').pathname
  let body = ''
  for await (const chunk of request) body += chunk
  const answer = agent.documents[path] ?? (path === '/check' && (verdicts.length > 1 ? verdicts.shift() : verdicts[0])(JSON.parse(body)))
  if (answer) {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  } else if (path === new URL(callback).pathname) {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<title>Back</title><h1>Back at the agent</h1>')
  } else {
    response.writeHead(404).end()
  }
})
outside.listen(Number(port), '127.0.0.1')
await once(outside, 'listening')

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', `--host-resolver-rules=MAP agent.interop.test:443 127.0.0.1:${port}, MAP *.localhost 127.0.0.1`],
})

const { api, company: newCompany } = newOperator(ready, fetch)
const company = (slug, connection) =>
  newCompany(slug, 'Noodles & Sons', connection, {
    custom_scopes: { addresses: 'See and change your delivery addresses' }, direct_scopes: SCOPES, device_scopes: SCOPES,
  })

const shop = await company('browser', {
  method: 'SIGN_IN_METHOD_TEST_ACCOUNTS',
  test_accounts: [
    { account: 'acc-mia', label: 'mia@shop.example', username: 'mia', password: 'noodles' },
    { account: 'acc-ken', label: 'ken@shop.example', username: 'ken', password: 'dumplings' },
  ],
})

// newUser is a User with a browser of their own, without scripts, and their agent with a Session.
async function newUser(at) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, javaScriptEnabled: false, locale: 'en' })
  const page = await context.newPage()
  page.setDefaultTimeout(10_000)
  const user = `usr_${randomBytes(12).toString('base64url')}`
  const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
  const started = await oauth.genericTokenEndpointRequest(at.as, client, authentication, 'urn:ietf:params:oauth:grant-type:jwt-bearer',
    { assertion: await agent.sessionAssertion(at.as.token_endpoint, user) }, { DPoP, ...via })
  const session = (await oauth.processGenericTokenEndpointResponse(at.as, client, started)).session_id
  const options = { DPoP, additionalParameters: { session_id: session }, ...via }
  return {
    page,
    session,
    close: () => context.close(),
    // authorize opens the link that the agent shows.
    async authorize(scopes = SCOPES) {
      const verifier = oauth.generateRandomCodeVerifier()
      const state = oauth.generateRandomState()
      const url = new URL(at.as.authorization_endpoint)
      url.search = new URLSearchParams({
        response_type: 'code', client_id: client.client_id, redirect_uri: callback, scope: scopes.join(' '), state,
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
      })
      await page.goto(url.href)
      return {
        // arrive waits until the browser is back at the agent, and checks the answer.
        async arrive() {
          await page.waitForURL((u) => u.href.startsWith(callback))
          return oauth.validateAuthResponse(at.as, client, new URL(page.url()), state)
        },
        async exchange(parameters) {
          const answer = await oauth.authorizationCodeGrantRequest(at.as, client, authentication, parameters, callback, verifier, options)
          return oauth.processAuthorizationCodeResponse(at.as, client, answer)
        },
      }
    },
    async device() {
      const answer = await oauth.deviceAuthorizationRequest(at.as, client, authentication, { scope: SCOPES.join(' ') }, via)
      const begun = await oauth.processDeviceAuthorizationResponse(at.as, client, answer)
      return {
        ...begun,
        async poll() {
          const got = await oauth.deviceCodeGrantRequest(at.as, client, authentication, begun.device_code, options)
          return oauth.processDeviceCodeResponse(at.as, client, got)
        },
      }
    },
    async refresh(token) {
      const { additionalParameters, ...rest } = options
      return oauth.processRefreshTokenResponse(at.as, client, await oauth.refreshTokenGrantRequest(at.as, client, authentication, token, rest))
    },
    async login(name, password) {
      await page.fill('[name="field.username"]', name)
      await page.fill('[name="field.password"]', password)
      await page.click('button[value=login]')
    },
  }
}

async function refused(request, code) {
  const error = await request.then(() => assert.fail(`expected ${code}`), (caught) => caught)
  assert.equal(error.error, code, error)
}

const flow = (name, run, at = shop) =>
  test(name, { timeout: 60_000 }, async () => {
    const user = await newUser(at)
    try {
      await run(user, user.page)
    } finally {
      await user.close()
    }
  })

await flow('consent with one scope unticked', async (user, page) => {
  const sign = await user.authorize()
  await user.login('mia', 'noodles')
  const text = await page.textContent('main')
  for (const said of ['Interop Agent', 'agent.interop.test', 'mia@shop.example', 'See and change your delivery addresses']) assert.ok(text.includes(said), said)
  await page.uncheck('[name=scope][value="poppy:write"]')
  await page.click('button[value=approve]')
  const tokens = await sign.exchange(await sign.arrive())
  assert.equal(tokens.scope, 'poppy:read addresses')
  assert.equal(tokens.session_id, user.session)
})

await flow('what is not asked for is said', async (user, page) => {
  await user.authorize(['poppy:read'])
  await user.login('mia', 'noodles')
  assert.equal(await page.locator('[name=scope]').count(), 1)
  assert.ok((await page.textContent('section')).includes('See and change your delivery addresses'))
})

await flow('decline on the consent page', async (user, page) => {
  const sign = await user.authorize()
  await user.login('mia', 'noodles')
  await page.click('button[value=decline]')
  await assert.rejects(sign.arrive(), (error) => error.error === 'access_denied')
})

await flow('a wrong password is said beside the form, and can be mended', async (user, page) => {
  const sign = await user.authorize()
  await user.login('mia', 'dumplings')
  assert.ok(await page.locator('[role=alert]').isVisible())
  assert.equal(await page.inputValue('[name="field.password"]'), '')
  await user.login('mia', 'noodles')
  await page.click('button[value=approve]')
  assert.equal((await sign.exchange(await sign.arrive())).signed_in, true)
})

await flow('Device Sign-In from the short link', async (user, page) => {
  const device = await user.device()
  await page.goto(device.verification_uri)
  await page.fill('[name=user_code]', 'BCDF-GHJK')
  await page.click('button')
  assert.ok(await page.locator('[role=alert]').isVisible())
  await page.fill('[name=user_code]', device.user_code.toLowerCase())
  await page.click('button')
  await user.login('mia', 'noodles')
  assert.ok((await page.textContent('main')).includes(device.user_code))
  await refused(device.poll(), 'authorization_pending')
  await page.click('button[value=approve]')
  await page.waitForSelector('h1')
  assert.equal((await device.poll()).scope, SCOPES.join(' '))
})

await flow('the complete link approves nothing by itself; declining is told', async (user, page) => {
  const device = await user.device()
  for (let i = 0; i < 3; i++) await page.goto(device.verification_uri_complete)
  await refused(device.poll(), 'authorization_pending')
  await page.click('button')
  await page.click('button[value=decline]')
  await page.waitForSelector('h1')
  await refused(device.poll(), 'access_denied')
})

await flow('another account in the same Session', async (user, page) => {
  const first = await user.authorize()
  await user.login('mia', 'noodles')
  await page.click('button[value=approve]')
  await first.exchange(await first.arrive())
  const second = await user.authorize()
  await user.login('mia', 'noodles')
  await page.click('button[value=restart]')
  await user.login('ken', 'dumplings')
  assert.ok((await page.textContent('main')).includes('ken@shop.example'))
  await page.click('button[value=approve]')
  await refused(second.exchange(await second.arrive()), 'account_mismatch')
})

await flow('the User disconnects the agent', async (user, page) => {
  const sign = await user.authorize()
  await user.login('ken', 'dumplings')
  await page.click('button[value=approve]')
  const tokens = await sign.exchange(await sign.arrive())
  const link = await api('POST', `${shop.name}/connectedAgents:createLink`, { account: 'acc-ken', embed: true })
  await page.goto(link.url)
  assert.ok((await page.textContent('main')).includes('Interop Agent'))
  await page.locator('button[name=grant]').first().click()
  await page.waitForSelector('[role=status]')
  const { connected_agents: left } = await api('GET', `${shop.name}/connectedAgents?account=acc-ken`)
  if (left.length === 0) await refused(user.refresh(tokens.refresh_token), 'invalid_grant')
  else await page.locator('button[name=grant][value="*"]').click()
  await page.waitForSelector('[role=status]')
  await refused(user.refresh(tokens.refresh_token), 'invalid_grant')
})

const checked = await company('checked', {
  method: 'SIGN_IN_METHOD_CREDENTIAL_CHECK',
  credential_check: { url: 'https://accounts.interop.test/check', fields: [
    { name: 'username', label: 'Customer number' }, { name: 'password', label: 'PIN', secret: true },
  ] },
})

const asks = (seconds) => () => ({ result: 'code_required', sent_to: 'Text to …71', state: 's', expires_in: seconds })

await flow('a wrong one-time code, then the right one', async (user, page) => {
  verdicts.splice(0, Infinity, asks(600), ({ data }) =>
    data.code === '271828' ? { result: 'complete', account: 'acc-1', account_label: 'Mia' } : asks(600)())
  const sign = await user.authorize()
  await user.login('4711', '0815')
  assert.ok((await page.textContent('main')).includes('Text to …71'))
  await page.fill('[name=code]', '000000')
  await page.click('button[value=code]')
  assert.ok(await page.locator('[role=alert]').isVisible())
  await page.fill('[name=code]', '271828')
  await page.click('button[value=code]')
  await page.click('button[value=approve]')
  assert.equal((await sign.exchange(await sign.arrive())).signed_in, true)
}, checked)

await flow('a one-time code that came too late', async (user, page) => {
  verdicts.splice(0, Infinity, asks(1), () => ({ result: 'complete', account: 'acc-1' }))
  const sign = await user.authorize()
  await user.login('4711', '0815')
  const deadline = Date.now() + 1100
  while (Date.now() < deadline) await page.waitForSelector('[name=code]') // the code's own second passes
  await page.fill('[name=code]', '271828')
  await page.click('button[value=code]')
  assert.ok(await page.locator('[role=alert]').isVisible())
  verdicts.splice(0, Infinity, () => ({ result: 'complete', account: 'acc-1' }))
  await user.login('4711', '0815') // for a new one
  await page.click('button[value=approve]')
  assert.equal((await sign.exchange(await sign.arrive())).signed_in, true)
}, checked)

await flow('pages in the language that the agent asks for', async (user, page) => {
  const url = new URL(shop.as.authorization_endpoint)
  url.search = new URLSearchParams({
    response_type: 'code', client_id: client.client_id, redirect_uri: callback, scope: 'poppy:read', ui_locales: 'ja',
    code_challenge: await oauth.calculatePKCECodeChallenge(oauth.generateRandomCodeVerifier()), code_challenge_method: 'S256',
  })
  await page.goto(url.href)
  assert.equal(await page.getAttribute('html', 'lang'), 'ja')
})

await browser.close()
outside.closeAllConnections()
outside.close()
