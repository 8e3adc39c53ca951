import assert from 'node:assert/strict'
import test from 'node:test'
import { create } from '@bufbuild/protobuf'
import { AccessTableSchema, VerifyRequestResponseSchema } from '../src/gen/poppyfield/admin/v1/access_pb.js'
import { Verifier, type VerifierConfig } from '../src/index.js'
import { ProofMemory } from '../src/proofs.js'
import { Limiter } from '../src/limit.js'
import { BASE, COMPANY, FakeServer, NOW, Rig, SESSION, until } from './rig.js'

test('a remote Verifier asks for each request, and passes on the answer', async (t) => {
  const rig = await Rig.make(t, { local: false })
  for (let i = 1; i <= 2; i++) {
    const request = await rig.request('GET', '/orders/7')
    const got = await rig.verifier.verify(request)
    assert.ok(got.allowed)
    assert.deepEqual([got.session.name, got.session.signedIn, got.session.expiresAt], [SESSION, false, NOW + 3_600_000])
    assert.equal(rig.server.asked.length, i)
    const { parent, method, url, headers } = rig.server.asked[i - 1] ?? assert.fail()
    assert.deepEqual([parent, method, url], [COMPANY, 'GET', `${BASE}/orders/7`])
    assert.deepEqual(headers.map((h) => h.value), [request.authorization[0], request.dpop[0]])
  }
  rig.server.answer = create(VerifyRequestResponseSchema, {
    status: 403, reason: 'insufficient_scope', body: '{}', api: 'a', headers: [{ name: 'DPoP-Nonce', value: 'n' }],
  })
  assert.deepEqual(await rig.verifier.verify(await rig.request('GET', '/')), {
    allowed: false, session: undefined, status: 403, reason: 'insufficient_scope', body: '{}', api: 'a', headers: [['DPoP-Nonce', 'n']],
  })
})

test('an error is no decision', async (t) => {
  const rig = await Rig.make(t)
  rig.server.unavailable = true
  await assert.rejects(rig.verifier.verify(await rig.request('GET', '/orders')))
  rig.server.unavailable = false
  rig.server.answer = create(VerifyRequestResponseSchema, { allowed: true })
  await assert.rejects(rig.verifier.verify(await rig.request('GET', '/orders')), /nobody/)
})

test('the second request with a token is judged here', async (t) => {
  const rig = await Rig.make(t)
  for (let i = 0; i < 3; i++) assert.ok((await rig.verifier.verify(await rig.request('GET', '/orders'))).allowed)
  assert.equal(rig.server.asked.length, 1)
  assert.ok((await rig.verifier.verify(await rig.request('POST', '/orders'))).allowed)
  assert.equal(rig.server.asked.length, 2, 'a POST is not among the methods that are judged here')
})

test('a proof is good once, wherever it was judged', async (t) => {
  const rig = await Rig.make(t)
  const refused = async (request: Awaited<ReturnType<Rig['request']>>): Promise<void> => {
    const got = await rig.verifier.verify(request)
    assert.deepEqual([got.allowed, 'reason' in got && got.reason], [false, 'invalid_dpop_proof'])
  }
  const first = await rig.request('GET', '/orders')
  assert.ok((await rig.verifier.verify(first)).allowed)
  await refused(first)
  const second = await rig.request('GET', '/orders')
  assert.ok((await rig.verifier.verify(second)).allowed)
  assert.equal(rig.server.asked.length, 1)
  rig.known.forgetAll()
  await refused(second) // the server, which is asked again, doesn't know that it was taken here
  assert.equal(rig.server.asked.length, 2)
})

test('what a Session loses is lost as soon as it is told', async (t) => {
  const rig = await Rig.make(t)
  await rig.verifier.verify(await rig.request('GET', '/orders'))
  rig.server.tokens.clear()
  rig.server.send({ case: 'session', value: SESSION })
  await until(() => rig.known['tokens'].size === 0)
  const got = await rig.verifier.verify(await rig.request('GET', '/orders'))
  assert.deepEqual([got.allowed, 'status' in got && got.status], [false, 401])
})

test('a change of everything is a change of the rules, too', async (t) => {
  const rig = await Rig.make(t)
  await rig.verifier.verify(await rig.request('GET', '/orders'))
  rig.server.table = create(AccessTableSchema, { apis: [{ url: 'a', baseUrls: [BASE], rules: [{ path: '/orders', scopes: ['poppy:read'] }] }] })
  rig.server.send({ case: 'all', value: true })
  await until(() => rig.known.rules(NOW) === undefined)
  await rig.verifier.verify(await rig.request('GET', '/orders')) // by the server, which learns the new ones
  const got = await rig.verifier.verify(await rig.request('GET', '/orders'))
  assert.deepEqual([got.allowed, 'reason' in got && got.reason], [false, 'sign_in_required'])
  assert.equal(rig.server.asked.length, 2)
})

test('without a heartbeat for more than a second every request is asked about', async (t) => {
  const rig = await Rig.make(t)
  const asked = async (): Promise<number> => {
    assert.ok((await rig.verifier.verify(await rig.request('GET', '/orders'))).allowed)
    return rig.server.asked.length
  }
  assert.equal(await asked(), 1)
  rig.server.now += 1_000
  assert.equal(await asked(), 1)
  rig.server.now += 1
  assert.equal(await asked(), 2)
  rig.server.beat()
  await until(() => rig.known.current(rig.server.now))
  assert.equal(await asked(), 2)
  rig.server.now -= 2_000
  assert.equal(await asked(), 3, 'a clock that was set back makes nothing younger')
})

test('a heartbeat that comes late keeps true only what it was sent for', async (t) => {
  const rig = await Rig.make(t)
  rig.server.beat()
  rig.server.now += 3_000
  await until(() => rig.known['checked'] === NOW)
  assert.equal(rig.known.current(rig.server.now), false)
})

test('a change while a token is asked about keeps the answer from being kept', async (t) => {
  const rig = await Rig.make(t)
  for (const frame of [{ case: 'session', value: SESSION }, { case: 'all', value: true }] as const) {
    rig.server.meanwhile = async () => {
      rig.server.send(frame)
      rig.server.now++
      rig.server.beat()
      await until(() => rig.known['checked'] === rig.server.now)
    }
    await rig.learn()
    assert.equal(rig.known['tokens'].size, 0)
  }
  rig.server.meanwhile = undefined
  await rig.learn()
  assert.equal(rig.known['tokens'].size, 1)
})

test('a change while a proof is checked leaves the request to the server', async (t) => {
  const rig = await Rig.make(t)
  await rig.learn()
  const judged = rig.verifier.verify(await rig.request('GET', '/orders'))
  rig.known.forget(SESSION)
  assert.ok((await judged).allowed)
  assert.equal(rig.server.asked.length, 1)
})

test('an answer is kept as long as the server says', async (t) => {
  const rig = await Rig.make(t)
  await rig.learn()
  rig.known.check(NOW + 300_000)
  assert.ok(rig.known['tokens'].size === 1)
  const [hash = ''] = rig.known['tokens'].keys()
  assert.ok(rig.known.standing(hash, NOW + 299_999) === undefined, 'not before the check')
  rig.known.check(NOW + 299_500)
  assert.ok(rig.known.standing(hash, NOW + 299_999))
  assert.equal(rig.known.standing(hash, NOW + 300_000), undefined)
})

test('nonces are the server\'s', async (t) => {
  const rig = await Rig.make(t)
  rig.server.table.nonceRequired = true
  for (let i = 1; i <= 2; i++) {
    await rig.verifier.verify(await rig.request('GET', '/orders'))
    assert.equal(rig.server.asked.length, i)
  }
})

test('a Session\'s requests are counted', async (t) => {
  const rig = await Rig.make(t)
  rig.server.table.requestsPerMinute = 2
  await rig.learn()
  for (let i = 0; i < 2; i++) assert.ok((await rig.verifier.verify(await rig.request('GET', '/orders'))).allowed)
  const got = await rig.verifier.verify(await rig.request('GET', '/orders'))
  assert.ok(!got.allowed)
  assert.deepEqual([got.status, got.reason, Object.fromEntries(got.headers)['Retry-After']], [429, 'rate_limited', '30'])
})

test('a table that can\'t be read here is the server\'s', async (t) => {
  const rig = await Rig.make(t)
  let asked = 0
  for (const base of [`${BASE}/é`, `${BASE}/a/../b`, `${BASE}/%zz`, 'https://']) {
    rig.server.table = create(AccessTableSchema, { apis: [{ url: 'a', baseUrls: [BASE] }, { url: 'b', baseUrls: [base] }] })
    for (let i = 0; i < 2; i++) {
      await rig.verifier.verify(await rig.request('GET', '/orders'))
      assert.equal(rig.server.asked.length, ++asked)
    }
  }
})

test('a stream that ends is opened again, and nothing is trusted before it', async (t) => {
  const server = new FakeServer()
  const logged: string[] = []
  const rig = await Rig.make(t, { log: (message) => logged.push(message) }, server)
  server.send({ case: 'heartbeat', value: { $typeName: 'google.protobuf.Timestamp', seconds: BigInt(NOW / 1000) - 60n, nanos: 0 } })
  await until(() => logged.length === 1)
  assert.equal(rig.known.current(NOW), false)
  const deadline = Date.now() + 10_000
  while (!rig.known.current(NOW)) {
    assert.ok(Date.now() < deadline)
    await new Promise(setImmediate)
  }
  assert.equal(server.streams, 2)
})

test('memory of proofs is bounded: what doesn\'t fit is the server\'s', async (t) => {
  const rig = await Rig.make(t, { maxProofs: 1 })
  await rig.learn()
  for (const want of [0, 1, 2]) {
    assert.ok((await rig.verifier.verify(await rig.request('GET', '/orders'))).allowed)
    assert.equal(rig.server.asked.length, want)
  }
})

test('a proof is remembered for as long as it may come again', () => {
  const memory = new ProofMemory()
  const proof = { jkt: 'k', jti: 'j' }
  assert.equal(memory.claim(proof, NOW), 'fresh')
  assert.equal(memory.claim({ jkt: 'k', jti: 'J' }, NOW), 'fresh')
  assert.equal(memory.claim(proof, NOW + 70_000), 'seen')
  assert.equal(memory.claim(proof, NOW - 100_000), 'seen', 'a clock that was set back forgets nothing')
  assert.equal(memory.claim(proof, NOW + 100_000), 'fresh')
})

test('a limiter lets a burst through, and then a rate', () => {
  const limiter = new Limiter(2)
  for (let i = 0; i < 6; i++) assert.equal(limiter.wait('k', 6, NOW), 0)
  assert.equal(limiter.wait('k', 6, NOW), 10_000)
  assert.equal(limiter.wait('k', 6, NOW + 9_000), 1_000)
  assert.equal(limiter.wait('k', 6, NOW + 10_000), 0)
  assert.equal(limiter.wait('other', 6, NOW), 0)
  assert.equal(limiter.wait('k', 0, NOW), 0)
})

test('a configuration that can\'t be right is refused', () => {
  const good: VerifierConfig = { company: COMPANY, transport: new FakeServer().transport, baseUrl: BASE }
  new Verifier(good)
  assert.throws(() => new Verifier({ ...good, company: 'cmp_1' }), TypeError)
  for (const baseUrl of ['', 'http://api.example.com', 'https://u@api.example.com', `${BASE}?x`, `${BASE}#x`, 'https://']) {
    assert.throws(() => new Verifier({ ...good, baseUrl }), TypeError, baseUrl)
  }
})
