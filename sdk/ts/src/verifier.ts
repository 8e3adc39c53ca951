import { createClient, type Client, type Transport } from '@connectrpc/connect'
import { apisOf, AccessTable, checkRules, checkToken, type Target } from './access.js'
import { parseAuthorization, type Authorization } from './authorization.js'
import { checkProof, identify, parseHeader, tokenHash, type VerifiedProof } from './dpop.js'
import { AccessService } from './gen/poppyfield/admin/v1/access_pb.js'
import { Knowledge, type RuleSet, type Standing } from './knowledge.js'
import { Limiter } from './limit.js'
import { Problem } from './problem.js'
import { ProofMemory } from './proofs.js'
import { refuse, type Refusal } from './refusal.js'
import { sessionOf, type Session } from './session.js'
import { watch } from './watch.js'

const ASK_TIME = 5_000
const VERIFY_TIME = 10_000
const USED = 'the DPoP proof was used before'

/** What a Verifier is made of. */
export interface VerifierConfig {
  /** The Company's resource name, "companies/cmp_…". */
  readonly company: string
  /** Reaches the admin API with a key that has the permission access.verify; dial() makes one. */
  readonly transport: Transport
  /**
   * What stands before the path that the server sees, such as "https://api.example.com". It is
   * never taken from a request: a Host field is the sender's.
   */
  readonly baseUrl: string
  /** Judges requests of localMethods without asking for each one. */
  readonly local?: boolean
  /**
   * Those that may be judged locally: GET and HEAD unless set. What was judged locally is
   * remembered in this process alone, so that a copy of a request which reaches another process
   * within 70 seconds is served once more there. Name others only where every request with a key
   * reaches the same process, or where repeating one does no harm.
   */
  readonly localMethods?: readonly string[]
  /** Bound what is remembered; 100,000 and 1,000,000 unless set. */
  readonly maxTokens?: number
  readonly maxProofs?: number
  /** Milliseconds since 1970: Date.now unless set. Local judgement needs a clock that is right. */
  readonly now?: () => number
  /** Gets what the Company should know of. */
  readonly log?: (message: string, error: unknown) => void
}

/** A request as it came. */
export interface VerifyRequest {
  readonly method: string
  /** The absolute address that the agent called; query and scheme make no difference. */
  readonly url: string
  /** All values of these header fields. */
  readonly authorization: readonly string[]
  readonly dpop: readonly string[]
}

/** Says to serve a request. */
export interface Allowed {
  readonly allowed: true
  readonly session: Session
  /** To be put on the answer. */
  readonly headers: Refusal['headers']
  /** The url of the entry of apis that the request is for. */
  readonly api: string
}

/** Says not to serve a request, and what to answer. */
export interface Refused extends Refusal {
  readonly allowed: false
  /** Who asks; undefined where that is not established. */
  readonly session: Session | undefined
  /** The error code, such as "invalid_token". */
  readonly reason: string
  readonly api: string
}

export type Decision = Allowed | Refused

/** Judges the requests of Personal Agents to a Company's APIs. */
export class Verifier {
  /** Of the configuration, without a slash at its end. */
  readonly baseUrl: string
  /** Gets what the Company should know of. */
  readonly log: (message: string, error: unknown) => void
  private readonly client: Client<typeof AccessService>
  private readonly now: () => number
  private readonly localMethods: ReadonlySet<string>
  private readonly known: Knowledge
  private readonly proofs: ProofMemory
  private readonly requests = new Limiter()
  private readonly stop = new AbortController()
  private readonly watching: Promise<void>

  /** Works until close(). */
  constructor(private readonly config: VerifierConfig) {
    if (!config.company.startsWith('companies/')) throw new TypeError('company is no resource name of a Company')
    if (!/^https:\/\/[^/?#@\\\s]+(?:\/[^?#\\\s]*)?$/.test(config.baseUrl) || !URL.canParse(config.baseUrl)) {
      throw new TypeError('baseUrl is no https URL without query and fragment')
    }
    this.baseUrl = config.baseUrl.replace(/\/$/, '')
    this.log = config.log ?? (() => undefined)
    this.now = config.now ?? Date.now
    this.client = createClient(AccessService, config.transport)
    this.localMethods = new Set(config.local ? (config.localMethods ?? ['GET', 'HEAD']) : [])
    this.known = new Knowledge(config.maxTokens)
    this.proofs = new ProofMemory(config.maxProofs)
    this.watching = config.local
      ? watch({ client: this.client, company: config.company, known: this.known, now: this.now, signal: this.stop.signal, log: this.log })
      : Promise.resolve()
  }

  /** Ends what the constructor began. */
  async close(): Promise<void> {
    this.stop.abort()
    await this.watching
  }

  /**
   * Judges a request, once: a proof is good once. An error means that nobody knows, and that
   * the request must not be served.
   */
  async verify(request: VerifyRequest): Promise<Decision> {
    if (!this.localMethods.has(request.method)) return this.remote(request)
    return (await this.judge(request)) ?? this.learn(request)
  }

  private async remote(r: VerifyRequest): Promise<Decision> {
    const fields = [['Authorization', r.authorization], ['DPoP', r.dpop]] as const
    const got = await this.client.verifyRequest({
      parent: this.config.company,
      method: r.method,
      url: r.url,
      headers: fields.flatMap(([name, values]) => values.map((value) => ({ name, value }))),
    }, { timeoutMs: VERIFY_TIME })
    const session = got.session && sessionOf(got.session)
    const headers = got.headers.map(({ name, value }) => [name, value] as const)
    if (!got.allowed) return { allowed: false, session, status: got.status, reason: got.reason, headers, body: got.body, api: got.api }
    if (!session) throw new Error('the request is allowed to nobody')
    return { allowed: true, session, headers, api: got.api }
  }

  /**
   * Judges a request by what is known; undefined where that doesn't suffice. The checks and their
   * order are those of VerifyRequest.
   */
  private async judge(r: VerifyRequest): Promise<Decision | undefined> {
    const rules = this.known.rules(this.now())
    if (!rules || rules.nonceRequired || this.proofs.saturated(this.now())) return undefined
    const target = rules.apis.find(r.method, r.url)
    if (!target) return undefined // the answer is the server's: it is the Company's fault, not the agent's
    const { api } = target
    let session: Session | undefined
    try {
      const auth = parseAuthorization(r.authorization)
      const raw = parseHeader(r.dpop)
      const hash = tokenHash(auth.token)
      const standing = this.known.standing(hash, this.now())
      if (!standing) return undefined
      const taken = await this.take(r, target, auth, raw, hash, standing, rules)
      if (!taken) return undefined
      session = standing.session
      checkRules(target, session)
      return { allowed: true, session, headers: [], api: api.url }
    } catch (error) {
      if (!(error instanceof Problem)) throw error
      return { allowed: false, session, reason: error.reason, api: api.url, ...refuse(error, api.mcp) }
    }
  }

  /** Makes all checks but those of the API's rules; false where the server has to be asked. */
  private async take(
    r: VerifyRequest, target: Target, auth: Authorization, raw: string, hash: string, standing: Standing, rules: RuleSet,
  ): Promise<boolean> {
    checkToken(standing, auth.scheme, target.api)
    let proof: VerifiedProof | undefined
    if (auth.scheme === 'DPoP') {
      proof = await checkProof(raw, { method: r.method, url: target.url, tokenHash: hash, thumbprint: standing.jkt }, this.now())
      // A change may have been told while the signature was checked.
      if (this.known.standing(hash, this.now()) !== standing || this.known.rules(this.now()) !== rules) return false
    }
    const wait = this.requests.wait(standing.session.name, rules.requestsPerMinute, this.now())
    if (wait > 0) throw new Problem('rate_limited', 'too many requests in this Session', { retryAfterMs: wait })
    return !proof || this.claim(proof)
  }

  /** Takes a proof for used; false where that can't be remembered. */
  private claim(proof: VerifiedProof): boolean {
    const found = this.proofs.claim(proof, this.now())
    if (found === 'seen') throw new Problem('invalid_dpop_proof', USED)
    return found === 'fresh'
  }

  /**
   * Has a request judged by the server, and asks what the token stands for, so that the next one
   * can be judged here. That the server is asked now and then is also what keeps a Session from
   * idling out.
   */
  private async learn(r: VerifyRequest): Promise<Decision> {
    const decision = await this.remote(r)
    if (!decision.session) return decision
    const { scheme, token } = parseAuthorization(r.authorization) // the server has taken it
    const again = scheme === 'DPoP' ? await this.sawBefore(r.dpop[0] ?? '', decision.api) : undefined
    if (again) return again
    await this.ask(token)
    return decision
  }

  /**
   * Refuses a proof that was taken here before, of which the server doesn't know, and remembers one
   * that wasn't. One that can't be read here leaves everything to the server until it is too old.
   */
  private async sawBefore(raw: string, api: string): Promise<Decision | undefined> {
    let proof: VerifiedProof
    try {
      proof = await identify(raw)
    } catch (error) {
      this.log('a proof that the server took is not understood', error)
      this.proofs.saturate(this.now())
      return undefined
    }
    if (this.proofs.claim(proof, this.now()) !== 'seen') return undefined
    const problem = new Problem('invalid_dpop_proof', USED)
    return { allowed: false, session: undefined, reason: problem.reason, api, ...refuse(problem, false) }
  }

  /** Asks for what is missing to judge requests with a token. */
  private async ask(token: string): Promise<void> {
    const options = { timeoutMs: ASK_TIME }
    await this.known.askRules(this.now(), async () => {
      const table = await this.client.getAccessTable({ name: `${this.config.company}/accessTable` }, options)
      const apis = AccessTable.of(apisOf(table))
      return apis && { apis, requestsPerMinute: table.requestsPerMinute, nonceRequired: table.nonceRequired }
    }).catch((error: unknown) => this.log('rules of the APIs not read', error))
    const asked = this.now()
    await this.known.askToken(tokenHash(token), asked, async () => {
      const got = await this.client.introspectToken({ parent: this.config.company, token }, options)
      if (!got.active || !got.session) return undefined
      const keep = got.keepFor ? Number(got.keepFor.seconds) * 1000 + got.keepFor.nanos / 1e6 : 0
      return { session: sessionOf(got.session), jkt: got.jkt, resource: got.resource, until: asked + keep }
    }).catch((error: unknown) => this.log('token not asked about', error))
  }
}
