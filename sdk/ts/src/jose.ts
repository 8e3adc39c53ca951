import { createHash, type webcrypto } from 'node:crypto'
import { parseObject, text, type Json, type JsonObject } from './json.js'

/** The longest JWS, and the longest header field with a token, in bytes. */
export const MAX_JWT = 16 << 10

/** The algorithms, in the order in which challenges name them. */
export const ALGS = ['ES256', 'ES384', 'EdDSA', 'PS256', 'RS256'] as const
export type Alg = (typeof ALGS)[number]

/** Why a JWS is refused, in words that hold nothing of it. */
export class JoseError extends Error {}

export const WRONG = {
  tooLarge: 'larger than allowed',
  malformed: 'not a compact JWS with a JSON object as its header',
  critical: 'crit header is not supported',
  alg: 'algorithm is not one of ES256, ES384, EdDSA, PS256, RS256',
  malformedKey: 'malformed JWK',
  unsupportedKey: 'unsupported kind of key',
  privateKey: 'key holds private or symmetric members',
  weakKey: 'key is too weak or not a point of its curve',
  keyMismatch: 'key does not fit the algorithm',
  signature: 'signature does not verify',
} as const

/** A parsed JWS. Nothing in it has been verified. */
export interface Jws {
  readonly alg: Alg
  readonly typ: string
  readonly key: PublicKey | undefined
  readonly payload: Buffer
  readonly signed: Buffer<ArrayBuffer>
  readonly signature: Buffer<ArrayBuffer>
}

/** Parses a compact JWS, and the key in its header. */
export async function parseJws(raw: string): Promise<Jws> {
  if (Buffer.byteLength(raw) > MAX_JWT) throw new JoseError(WRONG.tooLarge)
  const parts = raw.split('.')
  const [header, payload, signature] = parts.map(decodeBase64Url)
  if (parts.length !== 3 || !header || !payload || !signature) throw new JoseError(WRONG.malformed)
  const h = parseObject(header)
  if (!h) throw new JoseError(WRONG.malformed)
  let alg: Alg | undefined
  let typ = ''
  for (const [name, value] of h) {
    switch (name) {
      case 'alg':
        alg = parseAlg(value)
        if (!alg) throw new JoseError(WRONG.alg)
        break
      case 'typ':
      case 'kid':
        if (typeof value !== 'string') throw new JoseError(WRONG.malformed)
        if (name === 'typ') typ = value
        break
      case 'crit': // RFC7515/4.1.11: no extension is understood here
        throw new JoseError(WRONG.critical)
    }
  }
  if (!alg) throw new JoseError(WRONG.alg)
  const jwk = h.get('jwk')
  const key = jwk === undefined ? undefined : await parseKey(jwk)
  return { alg, typ, key, payload, signed: Buffer.from(raw.slice(0, raw.lastIndexOf('.'))), signature }
}

function parseAlg(value: Json | undefined): Alg | undefined {
  return ALGS.find((alg) => alg === value)
}

/** Decodes base64url without padding, line breaks and stray bits: one value has one spelling. */
export function decodeBase64Url(raw: string): Buffer<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(raw)) return undefined
  const out = Buffer.from(raw, 'base64url')
  return out.toString('base64url') === raw ? out : undefined
}

type Kind = 'P-256' | 'P-384' | 'Ed25519' | 'RSA'

/** The public key of a JWK. */
export interface PublicKey {
  readonly kind: Kind
  /** The JWK's own restriction. */
  readonly alg: Alg | undefined
  /** SHA-256 thumbprint in base64url (RFC 7638): the jkt of DPoP. */
  readonly thumbprint: string
  readonly jwk: webcrypto.JsonWebKey
}

const KIND: Record<Alg, Kind> = { ES256: 'P-256', ES384: 'P-384', EdDSA: 'Ed25519', PS256: 'RSA', RS256: 'RSA' }
const PRIVATE = new Set(['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k', 'priv'])

async function parseKey(value: Json): Promise<PublicKey> {
  if (!(value instanceof Map)) throw new JoseError(WRONG.malformedKey)
  for (const name of value.keys()) if (PRIVATE.has(name)) throw new JoseError(WRONG.privateKey)
  const kid = value.get('kid')
  if (kid !== undefined && typeof kid !== 'string') throw new JoseError(WRONG.malformedKey)
  const use = value.get('use')
  const ops = value.get('key_ops')
  if (use !== undefined && use !== 'sig') throw new JoseError(WRONG.unsupportedKey)
  if (ops !== undefined && !(Array.isArray(ops) && ops.includes('verify'))) throw new JoseError(WRONG.unsupportedKey)
  const alg = parseAlg(value.get('alg'))
  if (value.has('alg') && !alg) throw new JoseError(WRONG.unsupportedKey)
  const key = { ...readKey(value), alg }
  // That it is a point of its curve is seen before anything else is said of it.
  if (key.kind !== 'RSA' && key.kind !== 'Ed25519') await importKey(key, key.kind === 'P-256' ? 'ES256' : 'ES384')
  if (alg && !fits(key, alg)) throw new JoseError(WRONG.malformedKey)
  return key
}

function readKey(m: JsonObject): Omit<PublicKey, 'alg'> {
  switch (text(m.get('kty'))) {
    case 'EC':
      return readEC(m)
    case 'OKP':
      return readOKP(m)
    case 'RSA':
      return readRSA(m)
    case 'oct':
      throw new JoseError(WRONG.privateKey)
    case '':
      throw new JoseError(WRONG.malformedKey)
  }
  throw new JoseError(WRONG.unsupportedKey)
}

function readEC(m: JsonObject): Omit<PublicKey, 'alg'> {
  const crv = text(m.get('crv'))
  if (crv === '') throw new JoseError(WRONG.malformedKey)
  if (crv !== 'P-256' && crv !== 'P-384') throw new JoseError(WRONG.unsupportedKey)
  const [x, y] = [text(m.get('x')), text(m.get('y'))]
  const size = crv === 'P-256' ? 32 : 48
  // RFC7518/6.2.1.2: a coordinate has the full size of its field.
  if (decodeBase64Url(x)?.length !== size || decodeBase64Url(y)?.length !== size) throw new JoseError(WRONG.malformedKey)
  return { kind: crv, thumbprint: hash(`{"crv":"${crv}","kty":"EC","x":"${x}","y":"${y}"}`), jwk: { kty: 'EC', crv, x, y } }
}

function readOKP(m: JsonObject): Omit<PublicKey, 'alg'> {
  const [crv, x] = [text(m.get('crv')), text(m.get('x'))]
  if (crv === '') throw new JoseError(WRONG.malformedKey)
  if (crv !== 'Ed25519') throw new JoseError(WRONG.unsupportedKey)
  const raw = decodeBase64Url(x)
  if (raw?.length !== 32) throw new JoseError(WRONG.malformedKey)
  if (isLowOrder(raw)) throw new JoseError(WRONG.weakKey)
  return { kind: 'Ed25519', thumbprint: hash(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`), jwk: { kty: 'OKP', crv, x } }
}

function readRSA(m: JsonObject): Omit<PublicKey, 'alg'> {
  const [n, e] = [text(m.get('n')), text(m.get('e'))]
  const modulus = decodeBase64Url(n)
  const exponent = decodeBase64Url(e)
  // RFC7518/2: no leading zeros, or one key would have many thumbprints.
  if (!modulus?.[0] || !exponent?.[0]) throw new JoseError(WRONG.malformedKey)
  const bits = modulus.length * 8 - Math.clz32(modulus[0]) + 24
  const value = exponent.length > 4 ? Infinity : exponent.reduce((sum, b) => sum * 256 + b, 0)
  const odd = (modulus[modulus.length - 1] ?? 0) % 2 === 1
  if (bits < 2048 || bits > 8192 || !odd || value < 3 || value > 2 ** 31 - 1 || value % 2 === 0) throw new JoseError(WRONG.weakKey)
  return { kind: 'RSA', thumbprint: hash(`{"e":"${e}","kty":"RSA","n":"${n}"}`), jwk: { kty: 'RSA', n, e } }
}

/** Whether an Ed25519 key has an order of at most 8, or is a second spelling of a point. */
function isLowOrder(key: Uint8Array): boolean {
  const y = Buffer.from(key)
  y[31] = (y[31] ?? 0) & 0x7f // the sign of x
  const n = BigInt(`0x${Buffer.from(y).reverse().toString('hex')}`)
  return n >= 2n ** 255n - 20n || n === 0n || n === 1n || LOW_ORDER.has(y.toString('hex'))
}

const LOW_ORDER = new Set([
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
])

function hash(canonical: string): string {
  return createHash('sha256').update(canonical).digest('base64url')
}

function fits(key: Pick<PublicKey, 'kind' | 'alg'>, alg: Alg): boolean {
  return (key.alg === undefined || key.alg === alg) && key.kind === KIND[alg]
}

const IMPORT: Record<Alg, webcrypto.RsaHashedImportParams | webcrypto.EcKeyImportParams | webcrypto.Algorithm> = {
  ES256: { name: 'ECDSA', namedCurve: 'P-256' },
  ES384: { name: 'ECDSA', namedCurve: 'P-384' },
  EdDSA: { name: 'Ed25519' },
  PS256: { name: 'RSA-PSS', hash: 'SHA-256' },
  RS256: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
}

const VERIFY: Record<Alg, webcrypto.EcdsaParams | webcrypto.RsaPssParams | webcrypto.Algorithm> = {
  ES256: { name: 'ECDSA', hash: 'SHA-256' },
  ES384: { name: 'ECDSA', hash: 'SHA-384' },
  EdDSA: { name: 'Ed25519' },
  PS256: { name: 'RSA-PSS', saltLength: 32 }, // RFC7518/3.5: as long as the hash
  RS256: { name: 'RSASSA-PKCS1-v1_5' },
}

const MAX_IMPORTED = 10_000
const imported = new Map<string, Promise<webcrypto.CryptoKey>>()

/** Imports a key. An agent signs with one key again and again, so the last ones are kept: a thumbprint names one key. */
async function importKey(key: Pick<PublicKey, 'thumbprint' | 'jwk'>, alg: Alg): Promise<webcrypto.CryptoKey> {
  const name = `${alg} ${key.thumbprint}`
  const known = imported.get(name)
  if (known) return known
  const promise = crypto.subtle.importKey('jwk', key.jwk, IMPORT[alg], false, ['verify'])
  try {
    await promise
  } catch {
    throw new JoseError(WRONG.weakKey)
  }
  if (imported.size >= MAX_IMPORTED) imported.clear()
  imported.set(name, promise)
  return promise
}

/** Checks the signature of a JWS with a key. */
export async function verifyJws(jws: Jws, key: PublicKey): Promise<void> {
  if (!fits(key, jws.alg)) throw new JoseError(WRONG.keyMismatch)
  let ok = false
  try {
    ok = await crypto.subtle.verify(VERIFY[jws.alg], await importKey(key, jws.alg), jws.signature, jws.signed)
  } catch {
    ok = false // a key or signature that the library can't use
  }
  if (!ok) throw new JoseError(WRONG.signature)
}
