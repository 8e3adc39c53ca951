// A personal agent as far as a page can be one: it makes a key and its DPoP Proofs,
// starts a Session and follows a stream. What it can't have is the agent's own key: the
// form with the assertions is given to it. It tells what it sees to report.
/* global report */

const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, ['sign', 'verify'])
const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', keys.publicKey)
const bytes = (text) => new TextEncoder().encode(text)
const base64url = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
const part = (value) => base64url(bytes(JSON.stringify(value)))

async function proof(htm, htu, token) {
  const claims = { jti: crypto.randomUUID(), htm, htu, iat: Math.floor(Date.now() / 1000) }
  if (token) claims.ath = base64url(await crypto.subtle.digest('SHA-256', bytes(token)))
  const signed = `${part({ typ: 'dpop+jwt', alg: 'ES256', jwk: { kty, crv, x, y } })}.${part(claims)}`
  const signature = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, keys.privateKey, bytes(signed))
  return `${signed}.${base64url(signature)}`
}

let token
let last // the id of the last event that was handled

async function startSession({ endpoint, form }) {
  const answer = await fetch(endpoint, { method: 'POST', body: new URLSearchParams(form), headers: { DPoP: await proof('POST', endpoint) } })
  const { access_token: access, token_type: type, error_description: why } = await answer.json()
  token = access
  report({ session: { status: answer.status, type, why } })
}

// items are what the stream consists of: events, and comments.
async function* items(body) {
  let rest = ''
  let item = {}
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      const [, name, value] = line.match(/^([^:]*):? ?(.*)$/)
      if (line.startsWith(':')) yield { comment: true }
      else if (line) item[name] = value
      else if (item.data !== undefined) yield item
      if (!line) item = {}
    }
  }
}

async function follow({ address }) {
  const headers = { Accept: 'text/event-stream', Authorization: `DPoP ${token}`, DPoP: await proof('GET', address, token) }
  if (last) headers['Last-Event-ID'] = last
  const answer = await fetch(address, { headers })
  report({ head: { status: answer.status, header: Object.fromEntries(answer.headers) } })
  let cut = ''
  try {
    for await (const item of items(answer.body)) {
      if (item.id) last = item.id
      report({ item })
    }
  } catch (error) {
    cut = String(error)
  }
  report({ end: { cut } })
}

const commands = { startSession, follow }
globalThis.obey = ({ command, ...parameters }) => commands[command](parameters).catch((error) => report({ failed: String(error) }))
report({ ready: true })
