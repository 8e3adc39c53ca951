import type { AccessTable as WireTable } from './gen/poppyfield/admin/v1/access_pb.js'
import type { Authorization } from './authorization.js'
import { Problem } from './problem.js'

/** A rule of an API: what requests to a part of it need. */
export interface Rule {
  readonly methods: readonly string[]
  readonly path: string
  readonly signIn: boolean
  readonly scopes: readonly string[]
}

/** An entry of apis, as far as requests to it are judged. */
export interface Api {
  readonly url: string
  readonly mcp: boolean
  readonly resource: string
  readonly baseUrls: readonly string[]
  readonly rules: readonly Rule[]
}

interface Base {
  readonly api: Api
  readonly rules: readonly { rule: Rule; segments: string[] }[]
  readonly host: string
  readonly origin: string
  readonly prefix: readonly string[]
}

/** A request to a known API. */
export interface Target {
  readonly api: Api
  /** What a proof of the request names (htu). */
  readonly url: string
  /** That fits; undefined where the API has rules and none does. */
  readonly rule: Rule | undefined
}

/** Finds the API of a request, and the rule that it is judged by. */
export class AccessTable {
  private readonly bases: Base[] = []

  private constructor() {}

  /** Makes the table; undefined where it has an address that can't be read here: another API might be found in its place. */
  static of(apis: readonly Api[]): AccessTable | undefined {
    const table = new AccessTable()
    for (const api of apis) {
      const rules = api.rules.map((rule) => ({ rule, segments: split(toBytes(rule.path)) }))
      for (const raw of api.mcp ? [api.url] : api.baseUrls) {
        const url = parseUrl(raw)
        const prefix = url && split(url.path)
        if (!url || !prefix || rules.some((r) => r.segments === undefined)) return undefined
        table.bases.push({
          api, prefix, host: hostOf(url.host), origin: `${url.scheme}://${url.host}`, rules: rules as { rule: Rule; segments: string[] }[],
        })
      }
    }
    table.bases.sort((a, b) => b.prefix.length - a.prefix.length)
    return table
  }

  /** Says what a request is for; undefined for none of the APIs, and for what two servers might read differently. */
  find(method: string, raw: string): Target | undefined {
    const url = parseUrl(raw)
    const segments = url && split(url.path)
    if (!url || !segments) return undefined
    const host = hostOf(url.host)
    const base = this.bases.find((b) => b.host === host && b.prefix.every((segment, i) => segment === segments[i]))
    if (!base) return undefined
    const below = segments.slice(base.prefix.length)
    return { api: base.api, url: base.origin + url.path, rule: base.rules.find((r) => fits(r.rule, r.segments, method, below))?.rule }
  }
}

/** Reads the table that the server sent. */
export function apisOf(table: WireTable): Api[] {
  return table.apis.map(({ url, mcp, resource, baseUrls, rules }) => ({
    url, mcp, resource, baseUrls,
    rules: rules.map(({ methods, path, signIn, scopes }) => ({ methods, path, signIn, scopes })),
  }))
}

/** Says whether a Session may make the request; throws what it is refused with. */
export function checkRules(target: Target, session: { readonly signedIn: boolean; readonly scopes: readonly string[] }): void {
  const { api, rule } = target
  if (api.rules.length === 0) return
  if (!rule) throw new Problem('access_denied', 'agents may not do this here')
  const scope = rule.scopes.join(' ')
  if (!session.signedIn && (rule.signIn || scope !== '')) {
    throw new Problem('sign_in_required', 'the User has to sign in for this', scope === '' ? {} : { scope })
  }
  if (!rule.scopes.every((s) => session.scopes.includes(s))) {
    throw new Problem('insufficient_scope', 'this needs more than the User has granted', { scope })
  }
}

/** Says whether an API takes a token that was sent with a scheme; throws what it is refused with. */
export function checkToken(token: { readonly jkt: string; readonly resource: string }, scheme: Authorization['scheme'], api: Api): void {
  const wrong = (detail: string) => new Problem('invalid_token', detail)
  if (scheme === 'Bearer' && token.jkt !== '') throw wrong('the Session Token is bound to a key; send it with the DPoP scheme and a proof')
  if (scheme === 'DPoP' && token.jkt === '') throw wrong('the Session Token is a Bearer token')
  if (scheme === 'Bearer' && !api.mcp) throw wrong('Bearer tokens are accepted at MCP servers only')
  if (token.resource !== api.resource) throw wrong('the Session Token was issued for another service')
}

function fits(rule: Rule, pattern: readonly string[], method: string, segments: readonly string[]): boolean {
  const listed = rule.methods.length === 0 || rule.methods.includes(method) || (method === 'HEAD' && rule.methods.includes('GET'))
  if (!listed) return false
  for (const [i, want] of pattern.entries()) {
    if (want === '**') return true
    if (i >= segments.length || (want !== '*' && want !== segments[i])) return false
  }
  return segments.length === pattern.length
}

/**
 * Takes an absolute URL apart without changing it. new URL() would resolve dots, so that
 * another path were judged than the one that is served.
 */
function parseUrl(raw: string): { scheme: string; host: string; path: string } | undefined {
  const parts = /^(https?):\/\/((?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?)((?:\/[A-Za-z0-9\-._~!$&'()*+,;=:@[\]%/]*)?)(?:[?#][!-~]*)?$/i.exec(raw)
  return parts ? { scheme: (parts[1] ?? '').toLowerCase(), host: parts[2] ?? '', path: parts[3] ?? '' } : undefined
}

/**
 * The decoded segments of a path, as bytes. A slash at the end, and parameters of a segment,
 * make no difference, since to many servers they don't. Undefined for what servers resolve in
 * different ways.
 */
function split(path: string): string[] | undefined {
  if (/%(?![0-9a-fA-F]{2})/.test(path)) return undefined
  const raw = path.replace(/^\//, '').split('/')
  if (raw[raw.length - 1] === '') raw.pop()
  const out: string[] = []
  for (const part of raw) {
    const whole = part.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
    if (/[/\\\0]/.test(whole)) return undefined
    const segment = whole.replace(/;.*$/s, '')
    if (segment === '' || segment === '.' || segment === '..') return undefined
    out.push(segment)
  }
  return out
}

/** Text as the characters of its UTF-8 bytes, which is what escapes stand for. */
function toBytes(s: string): string {
  return Buffer.from(s, 'utf8').toString('latin1')
}

/** A host without the ports that http and https imply. */
function hostOf(host: string): string {
  return host.toLowerCase().replace(/:(?:443|80)$/, '')
}
