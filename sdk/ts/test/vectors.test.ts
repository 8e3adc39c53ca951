import assert from 'node:assert/strict'
import test, { suite } from 'node:test'
import { create } from '@bufbuild/protobuf'
import { AccessTable, apisOf } from '../src/access.js'
import { AccessTableSchema } from '../src/gen/poppyfield/admin/v1/access_pb.js'
import type { Decision } from '../src/index.js'
import { NotGenuine, Webhooks } from '../src/webhook/index.js'
import { NOW, Rig, TOKEN, vectors } from './rig.js'

interface Want {
  allowed: boolean
  error?: string
  status?: number
  headers?: Record<string, string>
  body?: string
}

function check(want: Want, got: Decision | undefined): void {
  assert.ok(got, 'it is decided here')
  const seen = got.allowed
    ? { allowed: true }
    : { allowed: false, error: got.reason, status: got.status, headers: lower(got.headers), body: got.body }
  assert.deepEqual(seen, want.headers ? { ...want, headers: lower(Object.entries(want.headers)) } : want)
}

/** Fields by their names, which have no case. */
function lower(fields: Iterable<readonly [string, string]>): Record<string, string> {
  return Object.fromEntries(Array.from(fields, ([name, value]) => [name.toLowerCase(), value]))
}

suite('proofs', () => {
  const f = vectors<{
    now: number
    token: { value: string; jkt: string }
    cases: { name: string; method: string; url: string; authorization: string[] | null; dpop: string[] | null; again?: boolean; want: Want }[]
  }>('proofs.json')
  assert.ok(f.cases.length > 40)
  for (const c of f.cases) {
    test(c.name, async (t) => {
      const rig = await Rig.make(t)
      assert.equal(f.now * 1000, NOW)
      rig.server.put(f.token.value, f.token.jkt)
      await rig.learn(f.token.value)
      const request = { method: c.method, url: c.url, authorization: c.authorization ?? [], dpop: c.dpop ?? [] }
      if (c.again) assert.ok((await rig.verifier.verify(request)).allowed)
      check(c.want, await rig.verifier.verify(request))
      assert.equal(rig.server.asked.length, 0, 'it is decided here')
    })
  }
})

suite('rules', () => {
  interface WireRule { methods?: string[]; path: string; sign_in?: boolean; scopes?: string[] }
  const f = vectors<{
    apis: { url: string; mcp: boolean; resource: string; base_urls: string[] | null; rules: WireRule[] | null }[]
    cases: {
      name: string; method: string; url: string; signed_in: boolean; scopes: string[]; listed: boolean; api?: string; htu?: string; want?: Want
    }[]
  }>('rules.json')
  const table = create(AccessTableSchema, {
    apis: f.apis.map(({ url, mcp, resource, base_urls, rules }) => ({
      url, mcp, resource, baseUrls: base_urls ?? [],
      rules: (rules ?? []).map((r) => ({ methods: r.methods ?? [], path: r.path, signIn: r.sign_in ?? false, scopes: r.scopes ?? [] })),
    })),
  })
  assert.ok(f.cases.length > 20)
  for (const c of f.cases) {
    test(c.name, async (t) => {
      const rig = await Rig.make(t, { localMethods: [c.method] })
      rig.server.table = table
      const bearer = c.api === 'https://mcp.example.com/mcp'
      const standing = rig.server.put(TOKEN, bearer ? '' : rig.key.jkt, bearer ? c.api : '')
      Object.assign(standing.session ?? {}, { signedIn: c.signed_in, scopes: c.scopes })
      await rig.learn()
      const target = AccessTable.of(apisOf(table))?.find(c.method, c.url)
      assert.equal(target !== undefined, c.listed)
      const request = await rig.request(c.method, '')
      const judge = (dpop: string[], authorization = request.authorization): Promise<Decision | undefined> =>
        rig.verifier['judge']({ method: c.method, url: c.url, authorization, dpop })
      if (!target) {
        assert.equal(await judge([]), undefined, 'the server says what is wrong with it')
        return
      }
      assert.deepEqual([target.api.url, target.url], [c.api, c.htu])
      const got = bearer ? await judge([], [`Bearer ${TOKEN}`]) : await judge([await rig.key.proof(c.method, c.htu ?? '', NOW)])
      check(c.want ?? assert.fail(), got)
    })
  }
})

suite('webhooks', () => {
  const f = vectors<{
    now: number
    tolerance_seconds: number
    cases: { name: string; keys: string[]; headers: Record<string, string>; body: string; genuine: boolean }[]
  }>('webhooks.json')
  assert.ok(f.cases.length > 10)
  for (const c of f.cases) {
    test(c.name, async () => {
      const verified = new Webhooks(c.keys, () => f.now * 1000).verify(new Headers(c.headers), Buffer.from(c.body))
      if (c.genuine) await verified
      else await assert.rejects(verified, NotGenuine)
    })
  }
})
