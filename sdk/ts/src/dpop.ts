import { createHash, timingSafeEqual } from 'node:crypto'
import { JoseError, parseJws, verifyJws, type Jws } from './jose.js'
import { Num, parseObject, text } from './json.js'
import { Problem } from './problem.js'

/** The acceptance window of iat, in milliseconds. */
export const MAX_AGE = 60_000
export const MAX_FUTURE = 10_000

const MAX_JTI = 256

/** What a proof has to match. */
export interface ProofOf {
  readonly method: string
  /** By the Company's configuration. Query and fragment don't count. */
  readonly url: string
  readonly tokenHash: string
  /** Of the key that the token is bound to. */
  readonly thumbprint: string
}

/** A proof that passed every check of RFC 9449 4.3 but replay. */
export interface VerifiedProof {
  readonly jkt: string
  readonly jti: string
}

/** The ath of a token. */
export function tokenHash(token: string): string {
  return createHash('sha256').update(token).digest('base64url')
}

/** Picks the proof out of the values of the DPoP header field; '' for none. */
export function parseHeader(values: readonly string[]): string {
  if (values.length > 1) throw new Problem('invalid_request', 'more than one DPoP header')
  return values[0] ?? ''
}

function refuse(detail: string): Problem {
  return new Problem('invalid_dpop_proof', detail)
}

/**
 * Runs the checks of RFC 9449 4.3 in the order of the server; the first failure decides.
 * Whether the proof was used before is the caller's question.
 */
export async function checkProof(raw: string, of: ProofOf, now: number): Promise<VerifiedProof> {
  if (raw === '') throw refuse('the request needs a DPoP proof')
  const jws = await sound(() => parseJws(raw))
  if (jws.typ !== 'dpop+jwt') throw refuse('typ is not dpop+jwt')
  const key = jws.key
  if (!key) throw refuse('the header has no jwk')
  const claims = parseClaims(jws)
  await sound(() => verifyJws(jws, key))
  if (claims.htm !== of.method) throw refuse('htm is not the method of the request')
  if (!sameUrl(claims.htu, of.url)) throw refuse('htu is not the URL of the request')
  const issued = claims.iat * 1000
  if (now - issued > MAX_AGE || issued - now > MAX_FUTURE) throw refuse('iat is outside the acceptance window')
  if (!same(claims.ath, of.tokenHash)) throw refuse('ath is not the hash of the token')
  if (key.thumbprint !== of.thumbprint) throw refuse('the token is bound to another key')
  return { jkt: key.thumbprint, jti: claims.jti }
}

/** Names a proof that somebody else has checked. */
export async function identify(raw: string): Promise<VerifiedProof> {
  const jws = await sound(() => parseJws(raw))
  if (!jws.key) throw refuse('the header has no jwk')
  return { jkt: jws.key.thumbprint, jti: parseClaims(jws).jti }
}

async function sound<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    throw error instanceof JoseError ? refuse(error.message) : error
  }
}

function same(a: string, b: string): boolean {
  const [x, y] = [Buffer.from(a), Buffer.from(b)]
  return x.length === y.length && timingSafeEqual(x, y)
}

function parseClaims(jws: Jws): { htm: string; htu: string; iat: number; jti: string; ath: string } {
  const object = parseObject(jws.payload)
  if (!object) throw refuse('the payload is not a sound JSON object')
  const [htm, htu, jti, ath] = ['htm', 'htu', 'jti', 'ath'].map((name) => text(object.get(name))) as [string, string, string, string]
  const date = object.get('iat')
  const iat = date instanceof Num ? date.date() : undefined
  // A claim of another type than its own reads as empty.
  if (htm === '') throw refuse('the proof needs htm')
  if (htu === '') throw refuse('the proof needs htu')
  if (iat === undefined) throw refuse('the proof needs iat, a number of seconds since 1970')
  if (jti === '') throw refuse('the proof needs jti')
  if ([...jti].length > MAX_JTI) throw refuse('jti has more than 256 characters')
  return { htm, htu, iat, jti, ath }
}

function sameUrl(htu: string, want: string): boolean {
  if (htu === want) return true
  const a = normalizeUrl(htu)
  return a !== undefined && a === normalizeUrl(want)
}

/**
 * The normal form of RFC 3986 6.2.2 and 6.2.3 of an absolute http or https URL without
 * query and fragment; undefined for what is none. new URL() isn't used, since it accepts
 * and repairs what no URL may hold.
 */
export function normalizeUrl(raw: string): string | undefined {
  const parts = /^([^:]*):\/\/([^/]*)(.*)$/s.exec(raw.replace(/[?#].*$/s, ''))
  if (!parts) return undefined
  const scheme = asciiLower(parts[1] ?? '')
  if (scheme !== 'https' && scheme !== 'http') return undefined
  const host = normalizeAuthority(scheme, parts[2] ?? '')
  const path = normalizeEscapes(parts[3] ?? '')
  return host === undefined || path === undefined ? undefined : `${scheme}://${host}${removeDotSegments(path)}`
}

function asciiLower(s: string): string {
  return s.replace(/[A-Z]/g, (c) => c.toLowerCase())
}

function normalizeAuthority(scheme: string, raw: string): string | undefined {
  if (/[@\\]/.test(raw)) return undefined
  const authority = normalizeEscapes(raw)
  if (authority === undefined) return undefined
  // A bracketed address may hold colons, a name may not.
  const parts = /^(\[[^[\]]+\]|[^[\]:]+)(?::([0-9]*))?$/.exec(asciiLower(authority))
  if (!parts) return undefined
  const port = parts[2] ?? ''
  const implied = port === '' || port === (scheme === 'https' ? '443' : '80')
  return implied ? parts[1] : `${parts[1]}:${port}`
}

/** Unescapes unreserved characters and writes other escapes in capitals. */
function normalizeEscapes(s: string): string | undefined {
  if (/[^!-~]|["<>\\^`{|}]|%(?![0-9a-fA-F]{2})/.test(s)) return undefined
  return s.replace(/%(..)/g, (escape, hex: string) => {
    const c = String.fromCharCode(parseInt(hex, 16))
    return /[A-Za-z0-9\-._~]/.test(c) ? c : escape.toUpperCase()
  })
}

function removeDotSegments(path: string): string {
  if (path === '') return '/'
  const kept: string[] = []
  const segments = path.slice(1).split('/')
  segments.forEach((segment, i) => {
    if (segment !== '.' && segment !== '..') {
      kept.push(segment)
      return
    }
    if (segment === '..') kept.pop()
    if (i === segments.length - 1) kept.push('') // a final dot segment leaves the slash before it
  })
  return `/${kept.join('/')}`
}
