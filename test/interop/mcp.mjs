// Signs a User in by the official MCP client, which knows nothing of Poppy: it finds out
// where from the demo Company's MCP server alone, and calls that server's tools.
//
//   node mcp.mjs READY_FILE PORT CERT KEY
//
// The server must have been started with --dev-host client.interop.test=127.0.0.1:PORT and
// --trust-ca with the CA of CERT.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { newBrowser } from './browser.mjs'
import { foreignFetch } from './net.mjs'
import { serve } from './servers.mjs'

const [readyFile, port, certFile, keyFile] = process.argv.slice(2)
const ready = JSON.parse(readFileSync(readyFile, 'utf8'))
const plainFetch = foreignFetch({ hosts: ready.hosts, ca: [readFileSync(ready.ca_file)] })
const server = new URL(`https://${ready.demo_domain}/mcp`)

// seen has every request that the client made, with its answer's status.
const seen = []
const fetch = async (url, options = {}) => {
  const headers = Object.fromEntries(new Headers(options.headers))
  const answer = await plainFetch(url, { ...options, headers })
  seen.push({ method: options.method ?? 'GET', url: String(url), headers, status: answer.status })
  return answer
}

// The document of a client that has one, on a host that Poppyfield reaches.
const documentURL = 'https://client.interop.test/mcp-client.json'
const documents = await serve({
  port: Number(port), cert: readFileSync(certFile), key: readFileSync(keyFile), reply: () => ({}),
  documents: {
    '/mcp-client.json': {
      client_id: documentURL, client_name: 'Interop Tool', redirect_uris: ['http://127.0.0.1/callback'],
      grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none',
    },
  },
})

// newProvider is the client's memory, and a User who signs in as Mia when asked.
function newProvider(redirect, clientMetadataUrl) {
  const kept = {}
  return {
    kept,
    clientMetadataUrl,
    redirectUrl: redirect,
    clientMetadata: {
      client_name: 'Interop Tool', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'], token_endpoint_auth_method: 'none',
    },
    clientInformation: () => kept.client,
    saveClientInformation: (client) => { kept.client = client },
    tokens: () => kept.tokens,
    saveTokens: (tokens) => { kept.tokens = tokens },
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: (verifier) => { kept.verifier = verifier },
    state: () => 'state-of-the-client',
    async redirectToAuthorization(url) {
      assert.equal(url.searchParams.get('resource'), server.href)
      const browser = newBrowser(plainFetch)
      const back = (to) => to.href.startsWith(redirect)
      const login = await browser.open(url.href)
      const consent = await browser.submit(login, { values: { email: 'mia@noodle-bar.example', password: 'noodles' } })
      assert.match(consent.text, /not a personal agent/)
      kept.consent = consent
      kept.answer = (await browser.submit(consent, { button: 'approve' }, back)).left
    },
  }
}

// connect signs in as the SDK's own examples do: the first try ends in a redirect.
async function connect(provider) {
  const client = new Client({ name: 'interop', version: '1' })
  const first = new StreamableHTTPClientTransport(server, { authProvider: provider, fetch })
  await assert.rejects(client.connect(first), UnauthorizedError)
  const answer = provider.kept.answer.searchParams
  assert.equal(answer.get('iss'), ready.demo_issuer)
  assert.equal(answer.get('state'), 'state-of-the-client')
  await first.finishAuth(answer.get('code'), answer.get('iss'))
  const transport = new StreamableHTTPClientTransport(server, { authProvider: provider, fetch })
  await client.connect(transport)
  return client
}

async function callsTools(client) {
  const { tools } = await client.listTools()
  assert.deepEqual(tools.map((t) => t.name).sort(), ['get_order', 'list_orders'])
  const list = await client.callTool({ name: 'list_orders', arguments: {} })
  assert.deepEqual(list.structuredContent.orders.map((o) => o.number), ['1042', '1041'])
  const own = await client.callTool({ name: 'get_order', arguments: { number: '1042' } })
  assert.equal(own.structuredContent.stage, 'on its way')
  const other = await client.callTool({ name: 'get_order', arguments: { number: '1043' } })
  assert.equal(other.isError, true)
}

const asked = (suffix, status) => seen.some((r) => r.url.startsWith(ready.demo_issuer) && new URL(r.url).pathname.match(suffix) && r.status === status)

test('a client that registers itself', async () => {
  const provider = newProvider('http://127.0.0.1:43117/callback')
  const client = await connect(provider)
  assert.equal(seen[0].status, 401)
  assert.ok(asked(/^\/poppy\/resources\//, 200), 'the metadata that the challenge names')
  assert.ok(asked(/^\/\.well-known\/oauth-authorization-server$/, 200))
  assert.ok(asked(/^\/oauth\/register$/, 201))
  assert.match(provider.kept.client.client_id, /^mcl_/)
  assert.equal(provider.kept.tokens.token_type, 'Bearer')
  assert.match(provider.kept.consent.headers.get('content-security-policy'), /form-action 'self' https: http:\/\/127\.0\.0\.1:\* /)
  await callsTools(client)

  // A token that is over is renewed by the client itself.
  const before = provider.kept.tokens
  provider.kept.tokens = { ...before, access_token: 'gone' }
  await callsTools(client)
  assert.notEqual(provider.kept.tokens.access_token, before.access_token)
  assert.notEqual(provider.kept.tokens.refresh_token, before.refresh_token)
  await client.close()
})

test('a client by its document', async () => {
  seen.length = 0
  // The port is another one than the document's.
  const provider = newProvider('http://127.0.0.1:43118/callback', documentURL)
  const client = await connect(provider)
  assert.equal(provider.kept.client.client_id, documentURL)
  assert.ok(!seen.some((r) => r.url.endsWith('/oauth/register')))
  await callsTools(client)
  await client.close()

  // What it has is good nowhere else.
  const elsewhere = await plainFetch(`${ready.demo_issuer}/poppy/conversations`, {
    method: 'POST', body: '{"messages":[]}',
    headers: { authorization: `Bearer ${provider.kept.tokens.access_token}`, 'content-type': 'application/json' },
  })
  assert.equal(elsewhere.status, 401)
})

test.after(() => documents.close())
