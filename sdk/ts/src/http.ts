import { Code, ConnectError } from '@connectrpc/connect'
import type { Refusal } from './refusal.js'
import type { Allowed, Verifier } from './verifier.js'

/** A request as every server has it. */
export interface Incoming {
  readonly method: string
  /** What stands after the host: path and query, as they came. */
  readonly target: string
  readonly authorization: readonly string[]
  readonly dpop: readonly string[]
}

/** Says to serve a request, or what to answer; never anything that nobody has judged. */
export async function admit(verifier: Verifier, r: Incoming): Promise<Allowed | (Refusal & { readonly allowed: false })> {
  const path = r.target.replace(/[?#].*$/s, '')
  if (!path.startsWith('/')) return INVALID // another server's name might stand there
  try {
    return await verifier.verify({ method: r.method, url: verifier.baseUrl + path, authorization: r.authorization, dpop: r.dpop })
  } catch (error) {
    verifier.log('request not judged', error)
    // It is under no base URL, or servers would read its path in different ways.
    return ConnectError.from(error).code === Code.InvalidArgument ? INVALID : UNKNOWN
  }
}

const INVALID = { allowed: false, status: 400, headers: [['Cache-Control', 'no-store']], body: '{"error":"invalid_request"}' } as const
const UNKNOWN = {
  allowed: false,
  status: 503,
  headers: [['Cache-Control', 'no-store'], ['Retry-After', '1']],
  body: '{"error":"temporarily_unavailable"}',
} as const

/**
 * Reads a Request of the Fetch API. Its path is taken as it is spelled, as routers take it, and
 * several fields of a name are told apart by the comma that none of their values may hold.
 */
export function incoming(request: Request): Incoming {
  const values = (name: string): string[] => request.headers.get(name)?.split(/\s*,\s*/) ?? []
  const target = /^[A-Za-z]+:\/\/[^/?#]*(.*)$/s.exec(request.url)?.[1] ?? ''
  return { method: request.method, target: target.startsWith('/') ? target : `/${target}`, authorization: values('authorization'), dpop: values('dpop') }
}

/** The answer to a request that is refused. */
export function answer(refusal: Refusal): Response {
  const headers = new Headers({ 'Content-Type': 'application/json' })
  for (const [name, value] of refusal.headers) headers.append(name, value)
  return new Response(refusal.body, { status: refusal.status, headers })
}
