import { type webcrypto } from 'node:crypto'

/** How far a timestamp may be from this machine's clock, in milliseconds, either way. */
const TOLERANCE = 5 * 60_000

const MAX_ID = 256
const MAX_SIGNATURES = 20
const MAX_SIGNATURE = 4096

/** What a webhook is refused with that none of the keys has signed, or too long ago. */
export class NotGenuine extends Error {}

interface Key {
  readonly version: 'v1' | 'v1a'
  readonly key: Promise<webcrypto.CryptoKey>
}

/** Verifies signed webhooks (Standard Webhooks, v1 and v1a). */
export class Webhooks {
  private readonly keys: readonly Key[]

  /**
   * Takes whsec_… secrets and whpk_… public keys: one good signature of one of them is enough, so
   * that a secret can be replaced while both are here. now gives milliseconds since 1970.
   */
  constructor(keys: readonly string[], private readonly now: () => number = Date.now) {
    if (keys.length === 0) throw new TypeError('webhooks cannot be verified without a key')
    this.keys = keys.map(parseKey)
  }

  /** Checks that the body, byte for byte as it came, is genuine and not older, or newer, than five minutes. */
  async verify(headers: Headers, body: Uint8Array): Promise<void> {
    const id = one(headers, 'webhook-id')
    const timestamp = one(headers, 'webhook-timestamp')
    const signatures = one(headers, 'webhook-signature')
    if (id.length > MAX_ID || !/^[!-\-/-~]+$/.test(id)) throw new NotGenuine('the webhook-id header is malformed')
    // One spelling only: the text is signed, and "01" would be another text of the same time.
    if (!/^(?:0|[1-9][0-9]{0,14})$/.test(timestamp)) throw new NotGenuine('the webhook-timestamp header is malformed')
    if (Math.abs(this.now() - Number(timestamp) * 1000) > TOLERANCE) throw new NotGenuine("the webhook's timestamp is more than five minutes off")
    if (signatures.length > MAX_SIGNATURE) throw new NotGenuine('the webhook-signature header is too long')
    const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body])
    for (const entry of signatures.split(' ').slice(0, MAX_SIGNATURES)) {
      const [, version, text] = /^([^,]*),(.*)$/s.exec(entry) ?? []
      const signature = decodeBase64(text ?? '')
      if (!signature) continue
      for (const k of this.keys) {
        // The library compares in constant time.
        if (k.version === version && (await verifyWith(k, signature, signed))) return
      }
    }
    throw new NotGenuine("none of the webhook's signatures is by an accepted key")
  }
}

async function verifyWith(k: Key, signature: Buffer<ArrayBuffer>, signed: Buffer<ArrayBuffer>): Promise<boolean> {
  return crypto.subtle.verify(k.version === 'v1' ? 'HMAC' : 'Ed25519', await k.key, signature, signed)
}

/** A header's only value: of two it can't be known which one counts. */
function one(headers: Headers, name: string): string {
  const value = headers.get(name)
  if (value === null || /,\s/.test(value)) throw new NotGenuine(`the webhook has not one ${name}`)
  return value
}

function parseKey(text: string): Key {
  const raw = decodeBase64(text.slice(text.indexOf('_') + 1))
  let key: Promise<webcrypto.CryptoKey>
  let version: Key['version']
  if (text.startsWith('whpk_') && raw?.length === 32) {
    version = 'v1a'
    key = crypto.subtle.importKey('raw', raw, { name: 'Ed25519' }, false, ['verify'])
  } else if (text.startsWith('whsec_') && raw && raw.length >= 24 && raw.length <= 64) {
    version = 'v1'
    key = crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
  } else {
    // The text isn't quoted: it may be a secret with a typo.
    throw new TypeError('a key is neither whsec_ with 24 to 64 bytes in base64 nor whpk_ with 32')
  }
  key.catch(() => undefined) // whoever verifies with it is told
  return { version, key }
}

/** Decodes base64 with its padding; one value has one spelling. */
function decodeBase64(text: string): Buffer<ArrayBuffer> | undefined {
  const out = Buffer.from(text, 'base64')
  return text !== '' && out.toString('base64') === text ? out : undefined
}
