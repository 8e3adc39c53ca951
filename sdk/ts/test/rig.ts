// A Verifier before a server that answers from a table and counts what it is asked.
import assert from 'node:assert/strict'
import { createHash, randomUUID, type webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { TestContext } from 'node:test'
import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect'
import { tokenHash } from '../src/dpop.js'
import {
  AccessService, AccessTableSchema, IntrospectTokenResponseSchema, VerifyRequestResponseSchema, WatchSessionsResponseSchema,
  type IntrospectTokenResponse, type VerifyRequestRequest, type VerifyRequestResponse, type WatchSessionsResponse,
} from '../src/gen/poppyfield/admin/v1/access_pb.js'
import { Verifier, type VerifierConfig, type VerifyRequest } from '../src/index.js'

export const NOW = 1_796_203_800_000
export const COMPANY = 'companies/cmp_1'
export const SESSION = `${COMPANY}/sessions/ses_1`
export const BASE = 'https://api.example.com'
export const TOKEN = 'st_0000000000000000000001'

/** Reads a file of test vectors. */
export function vectors<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../../../vectors/${name}`, import.meta.url), 'utf8')) as T
}

/** Waits on a condition, without a clock. */
export async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 100_000; i++) {
    if (condition()) return
    await new Promise(setImmediate)
  }
  assert.fail('it never came true')
}

/** An agent's key, and the proofs that it makes. */
export class AgentKey {
  private constructor(private readonly keys: webcrypto.CryptoKeyPair, private readonly jwk: webcrypto.JsonWebKey, readonly jkt: string) {}

  static async make(): Promise<AgentKey> {
    const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify'])
    const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', keys.publicKey)
    const jkt = createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url')
    return new AgentKey(keys, { kty, crv, x, y } as webcrypto.JsonWebKey, jkt)
  }

  async proof(method: string, url: string, now: number, token = TOKEN): Promise<string> {
    const part = (o: object): string => Buffer.from(JSON.stringify(o)).toString('base64url')
    const claims = { jti: randomUUID(), htm: method, htu: url, iat: Math.floor(now / 1000), ath: tokenHash(token) }
    const signed = `${part({ typ: 'dpop+jwt', alg: 'ES256', jwk: this.jwk })}.${part(claims)}`
    const signature = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, this.keys.privateKey, Buffer.from(signed))
    return `${signed}.${Buffer.from(signature).toString('base64url')}`
  }
}

type Frame = MessageInitShape<typeof WatchSessionsResponseSchema>['frame']

/** The admin API, as far as a Verifier asks it. */
export class FakeServer {
  now = NOW
  readonly asked: VerifyRequestRequest[] = []
  readonly tokens = new Map<string, IntrospectTokenResponse>()
  table = create(AccessTableSchema, { apis: [{ url: 'https://example.com/openapi.json', baseUrls: [BASE] }] })
  answer: VerifyRequestResponse | undefined
  unavailable = false
  /** Runs while a token is asked about. */
  meanwhile: (() => Promise<void>) | undefined
  streams = 0
  private frames: WatchSessionsResponse[] = []
  private wake: () => void = () => undefined

  put(token: string, jkt: string, resource = ''): IntrospectTokenResponse {
    const standing = create(IntrospectTokenResponseSchema, {
      active: true, jkt, resource, tokenType: jkt === '' ? 'Bearer' : 'DPoP', keepFor: { seconds: 300n },
      session: { session: SESSION, clientId: 'https://agent.example/agent.json', agentName: 'Example Agent', user: 'usr_1', expireTime: timestampFromMs(NOW + 3_600_000) },
    })
    this.tokens.set(token, standing)
    return standing
  }

  send(frame: NonNullable<Frame>): void {
    this.frames.push(create(WatchSessionsResponseSchema, { frame }))
    this.wake()
  }

  beat(): void {
    this.send({ case: 'heartbeat', value: timestampFromMs(this.now) })
  }

  readonly transport = createRouterTransport(({ service }) => {
    service(AccessService, {
      verifyRequest: (request) => {
        if (this.unavailable) throw new ConnectError('not now', Code.Unavailable)
        this.asked.push(request)
        if (!request.url.startsWith(`${BASE}/`)) throw new ConnectError('none of the APIs', Code.InvalidArgument)
        const token = request.headers.find((h) => h.name === 'Authorization')?.value.split(' ')[1] ?? ''
        const session = this.tokens.get(token)?.session
        const refused = { allowed: false, status: 401, reason: 'invalid_token', body: '{"error":"invalid_token"}' }
        return this.answer ?? create(VerifyRequestResponseSchema, session ? { allowed: true, session, api: 'https://example.com/openapi.json' } : refused)
      },
      introspectToken: async ({ token }) => {
        const standing = this.tokens.get(token) ?? create(IntrospectTokenResponseSchema)
        await this.meanwhile?.()
        return standing
      },
      getAccessTable: () => this.table,
      watchSessions: async function* (this: FakeServer, _: unknown, { signal }: { signal: AbortSignal }) {
        this.streams++
        this.frames = [create(WatchSessionsResponseSchema, { frame: { case: 'synced', value: timestampFromMs(this.now) } })]
        signal.addEventListener('abort', () => this.wake())
        while (!signal.aborted) {
          const frame = this.frames.shift()
          if (frame) yield frame
          else await new Promise<void>((resolve) => (this.wake = resolve))
        }
      }.bind(this),
    })
  })
}

/** A Verifier that judges locally, its server, and an agent. */
export class Rig {
  private constructor(readonly server: FakeServer, readonly verifier: Verifier, readonly key: AgentKey) {}

  static async make(t: TestContext, config: Partial<VerifierConfig> = {}, server = new FakeServer()): Promise<Rig> {
    const key = await AgentKey.make()
    server.put(TOKEN, key.jkt)
    const verifier = new Verifier({ company: COMPANY, transport: server.transport, baseUrl: BASE, local: true, now: () => server.now, ...config })
    t.after(() => verifier.close())
    const rig = new Rig(server, verifier, key)
    if (config.local !== false) await until(() => rig.known.current(server.now))
    return rig
  }

  get known(): Verifier['known'] {
    return this.verifier['known']
  }

  /** Learns what the server knows of a token. */
  learn(token = TOKEN): Promise<void> {
    return this.verifier['ask'](token)
  }

  async request(method: string, path: string, token = TOKEN): Promise<VerifyRequest> {
    const url = BASE + path
    return { method, url, authorization: [`DPoP ${token}`], dpop: [await this.key.proof(method, url, this.server.now, token)] }
  }

  async headers(method: string, path: string): Promise<Record<string, string>> {
    const { authorization, dpop } = await this.request(method, path)
    return { authorization: authorization[0] ?? '', dpop: dpop[0] ?? '' }
  }
}
