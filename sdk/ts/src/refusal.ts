import { ALGS } from './jose.js'
import type { Problem, Reason } from './problem.js'

/** How a request is refused. */
export interface Refusal {
  readonly status: number
  /** Without Content-Type. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>
  /** JSON. */
  readonly body: string
}

const STATUS: Record<Reason, number> = {
  invalid_request: 400,
  invalid_token: 401,
  invalid_dpop_proof: 401,
  rate_limited: 429,
  access_denied: 403,
  sign_in_required: 403,
  insufficient_scope: 403,
}

/** Says what to answer, byte for byte what VerifyRequest says (RFC 9449 7.1, Poppy 4.3 and 6). */
export function refuse(problem: Problem, mcp: boolean): Refusal {
  const status = STATUS[problem.reason]
  const description = describe(problem.message)
  const headers: [string, string][] = [
    ['Cache-Control', 'no-store'],
    ['Pragma', 'no-cache'],
  ]
  const wait = problem.more.retryAfterMs ?? 0
  if (wait > 0 || status === 429) headers.push(['Retry-After', String(Math.max(1, Math.ceil(wait / 1000)))])
  const challenged = status === 401 || problem.reason === 'sign_in_required' || problem.reason === 'insufficient_scope'
  if (challenged) headers.push(['WWW-Authenticate', challenge(problem, mcp, description)])
  const body: Record<string, string> = { error: problem.reason }
  if (description !== '') body['error_description'] = description
  if (problem.more.scope !== undefined) body['scope'] = problem.more.scope
  return { status, headers, body: encode(body) }
}

function challenge(problem: Problem, mcp: boolean, description: string): string {
  const parameters = [`error="${problem.reason}"`]
  if (description !== '') parameters.push(`error_description="${description}"`)
  const scope = describe(problem.more.scope ?? '')
  if (scope !== '') parameters.push(`scope="${scope}"`)
  if (mcp) return `Bearer ${parameters.join(', ')}`
  parameters.push(`algs="${ALGS.join(' ')}"`)
  return `DPoP ${parameters.join(', ')}`
}

const MAX_DESCRIPTION = 400

/** Brings text into the characters that RFC 6749 5.2 allows; none of them needs escaping in a header. */
function describe(text: string): string {
  let out = ''
  for (const c of text) {
    if (out.length === MAX_DESCRIPTION) break
    if (c === '"') out += "'"
    else if (c === '\\') out += '/'
    else if (c === '\n' || c === '\t' || c === '\r') out += ' '
    else out += c < ' ' || c > '~' ? '?' : c
  }
  return out
}

/** JSON as the server writes it: safe inside HTML, too. */
function encode(body: Record<string, string>): string {
  return JSON.stringify(body).replace(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
