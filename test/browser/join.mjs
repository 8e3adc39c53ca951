// A personal agent's browser joins a Session, and the Company's website follows it.
// The website is served here, and so is the host that the Company points at the server
// under test: this process ends TLS for it and passes requests on as they came.
//
//   node join.mjs READY_FILE PORT CERT KEY CA CHROMIUM
//
// The server must have been started with --dev-host agent.interop.test=127.0.0.1:PORT,
// --dev-host noodles.test=127.0.0.1:PORT, and --trust-ca CA, the issuer of CERT.
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

const interop = createRequire(new URL('../interop/', import.meta.url))
const oauth = await import(pathToFileURL(interop.resolve('oauth4webapi')).href)

const [readyFile, port, certFile, keyFile, caFile, executablePath] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const serverCA = readFileSync(ready.ca_file)
const fetch = foreignFetch({ hosts: ready.hosts, ca: [serverCA, readFileSync(caFile)] })
const via = { [oauth.customFetch]: fetch }

const SITE = 'noodles.test'
const DOOR = `poppy.${SITE}`
const ENDPOINT = `https://${DOOR}/join`
const agent = await newAgent('https://agent.interop.test')
const client = { client_id: agent.clientId }
const authentication = oauth.PrivateKeyJwt(agent.signingKey)
const callback = agent.documents['/agent.json'].redirect_uris[0]

let redirectTarget
let company
// The page that the agent's browser is on, and what POSTs the site has seen with which cookies.
let agentPage = ''
const posts = []

// passOn forwards a request to the server under test, with the Host it came with.
function passOn(request, response) {
  const [host, at] = ready.hosts['*.poppyfield.localhost'].split(':')
  const onward = https.request({
    host, port: at, ca: serverCA, servername: 'door.poppyfield.localhost', method: request.method, path: request.url, headers: request.headers,
  }, (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders)
    answer.pipe(response)
  })
  onward.on('error', () => response.writeHead(502).end())
  request.pipe(onward)
}

const page = (response, body) => response.writeHead(200, { 'content-type': 'text/html' }).end(`<!doctype html><title>Page</title>${body}`)

const outside = https.createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, async (request, response) => {
  const { host } = request.headers
  const path = new URL(request.url, 'https://any').pathname
  if (host === DOOR) return passOn(request, response)
  if (host === SITE) {
    if (path === '/.well-known/poppy.json') return response.writeHead(302, { location: redirectTarget }).end()
    if (request.method === 'POST') posts.push(request.headers.cookie ?? '')
    const cookies = request.headers.cookie
    const seen = cookies ? await api('POST', `${company.name}:checkBrowserSession`, { cookie_header: cookies }) : { found: false }
    return page(response, `<pre id="who">${JSON.stringify({ path, found: seen.found ?? false, ...seen.session })}</pre><form method="post" action="/cart"><button>Buy</button></form>`)
  }
  if (agent.documents[path]) return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(agent.documents[path]))
  page(response, path === '/form' ? agentPage : 'Agent')
})
outside.listen(Number(port), '127.0.0.1')
await once(outside, 'listening')

const { api, company: newCompany } = newOperator(ready, fetch)
company = await newCompany('join', 'Noodles & Sons', {
  method: 'SIGN_IN_METHOD_TEST_ACCOUNTS',
  test_accounts: [{ account: 'acc-mia', label: 'mia@shop.example', username: 'mia', password: 'noodles' }],
}, { direct_scopes: ['poppy:read', 'poppy:write'] })
const domain = await api('POST', `${company.name}/domains`, { domain: SITE })
redirectTarget = domain.redirect_target
assert.equal((await api('POST', `${domain.name}:check`, {})).state, 'DOMAIN_STATE_VERIFIED')
await api('PATCH', `${company.name}/discoverySettings`, { browser_session_endpoint: ENDPOINT, browser_cookie: { domain: SITE } })

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', `--host-resolver-rules=${['agent.interop.test', SITE, DOOR].map((name) => `MAP ${name}:443 127.0.0.1:${port}`).join(', ')}, MAP *.localhost 127.0.0.1`],
})
const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'))
const user = `usr_${randomBytes(12).toString('base64url')}`
const started = await oauth.genericTokenEndpointRequest(company.as, client, authentication, 'urn:ietf:params:oauth:grant-type:jwt-bearer',
  { assertion: await agent.sessionAssertion(company.as.token_endpoint, user) }, { DPoP, ...via })
const session = (await oauth.processGenericTokenEndpointResponse(company.as, client, started)).session_id

const context = await browser.newContext({ ignoreHTTPSErrors: true })
const tab = await context.newPage()
tab.setDefaultTimeout(15_000)

// post opens a page of the agent whose form submits itself, as section 5 has it.
async function post(action, fields) {
  const inputs = Object.entries(fields).map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`).join('')
  agentPage = `<form method="post" action="${action}">${inputs}</form><script>document.forms[0].submit()</script>`
  const arrived = tab.waitForEvent('framenavigated', { predicate: (frame) => frame === tab.mainFrame() && !frame.url().startsWith('https://agent.') })
  await tab.goto('https://agent.interop.test/form').catch((error) => { if (!/ERR_ABORTED|interrupted/.test(error.message)) throw error })
  await arrived
  await tab.waitForLoadState()
}
const join = async (returnTo = `https://${SITE}/orders`) => post(ENDPOINT, { assertion: await agent.browserAssertion(ENDPOINT, user, session, returnTo) })
const who = async () => JSON.parse(await tab.textContent('#who'))
const cookie = async () => (await context.cookies(`https://${SITE}/`)).filter((c) => c.name === '__Secure-poppy')

test.after(async () => {
  await browser.close()
  outside.close()
})

test('the form lands the cookie, and the page that it returns to has it', async () => {
  await join()
  assert.equal(tab.url(), `https://${SITE}/orders`)
  const seen = await who()
  assert.deepEqual([seen.path, seen.found, seen.client_id, seen.signed_in ?? false], ['/orders', true, agent.clientId, false])
  const [kept] = await cookie()
  assert.deepEqual([kept.domain, kept.path, kept.secure, kept.httpOnly, kept.sameSite], [`.${SITE}`, '/', true, true, 'Lax'])
  assert.equal(await tab.evaluate('document.cookie'), '')
})

test('a second assertion replaces the first', async () => {
  const [before] = await cookie()
  await join(`https://${SITE}/again`)
  const now = await cookie()
  assert.equal(now.length, 1)
  assert.notEqual(now[0].value, before.value)
  assert.equal((await who()).found, true)
  assert.equal((await api('POST', `${company.name}:checkBrowserSession`, { cookie: before.value })).found ?? false, false)
})

test("another site's POST does not carry it, the site's own does", async () => {
  posts.length = 0
  await post(`https://${SITE}/cart`, { dish: '7' })
  assert.equal((await who()).found, false)
  await tab.goto(`https://${SITE}/`)
  await tab.click('button')
  await tab.waitForURL(`https://${SITE}/cart`)
  assert.equal((await who()).found, true)
  assert.deepEqual(posts.map((c) => c.includes('__Secure-poppy=')), [false, true])
})

test('a refused assertion is a page, and leaves the cookie', async () => {
  const [before] = await cookie()
  await post(ENDPOINT, { assertion: await agent.browserAssertion(ENDPOINT, user, session, 'https://agent.interop.test/') })
  assert.equal(tab.url(), ENDPOINT)
  assert.match(await tab.textContent('main'), /return_to/)
  assert.ok(await tab.evaluate('document.styleSheets.length') > 0, 'the page has its styles')
  assert.deepEqual(await cookie(), [before])
})

test('the site follows the Session: signed in, then ended', async () => {
  // The User is another one, with a browser of their own.
  const theirs = await browser.newContext({ ignoreHTTPSErrors: true, locale: 'en' })
  const login = await theirs.newPage()
  login.setDefaultTimeout(15_000)
  const verifier = oauth.generateRandomCodeVerifier()
  const state = oauth.generateRandomState()
  const url = new URL(company.as.authorization_endpoint)
  url.search = new URLSearchParams({
    response_type: 'code', client_id: client.client_id, redirect_uri: callback, scope: 'poppy:read poppy:write', state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
  })
  await login.goto(url.href)
  await login.fill('[name="field.username"]', 'mia')
  await login.fill('[name="field.password"]', 'noodles')
  await login.click('button[value=login]')
  await login.click('button[value=approve]')
  await login.waitForURL((u) => u.href.startsWith(callback))
  const parameters = oauth.validateAuthResponse(company.as, client, new URL(login.url()), state)
  const answer = await oauth.authorizationCodeGrantRequest(company.as, client, authentication, parameters, callback, verifier,
    { DPoP, additionalParameters: { session_id: session }, ...via })
  await oauth.processAuthorizationCodeResponse(company.as, client, answer)
  await theirs.close()

  await tab.goto(`https://${SITE}/`)
  const seen = await who()
  assert.deepEqual([seen.found, seen.signed_in, seen.account, seen.scopes], [true, true, 'acc-mia', ['poppy:read', 'poppy:write']])
  await api('POST', `${company.name}/sessions/${session}:end`, {})
  await tab.reload()
  assert.equal((await who()).found, false)
})
