import assert from 'node:assert/strict'
import test from 'node:test'
import { normalizeUrl } from '../src/dpop.js'
import { Num, parseObject } from '../src/json.js'

const nested = (depth: number): string => '{"a":'.repeat(depth - 1) + '{}' + '}'.repeat(depth - 1)

test('a sound document is read', () => {
  const m = parseObject(Buffer.from(' {"a" : [1, -0.5e+3, true, false, null, {}], "é\\u00e9":"\\ud83d\\ude00 \\\\u0000 \\"", "__proto__":"x"}\n'))
  assert.deepEqual([...(m?.keys() ?? [])], ['a', 'éé', '__proto__'])
  assert.deepEqual(m?.get('a'), [new Num('1'), new Num('-0.5e+3'), true, false, null, new Map()])
  assert.equal(m?.get('éé'), '😀 \\u0000 "')
  assert.ok(parseObject(Buffer.from(nested(32))))
})

test('a document that can be read in two ways, or not at all, is none', () => {
  for (const raw of [
    '', '1', '[]', '"a"', '{', '{}}', '{} x', '{"a":1,}', '{"a":1 "b":2}', '{a:1}', "{'a':1}", '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":+1}', '{"a":1e}', '{"a":NaN}',
    '{"a":tru}', '{"a":[1,]}', '{"a":"\n"}', '{"a":"\\x"}', '{"a":"\\u12"}', '\ufeff{}', '{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', '{"a":1,"\\u0061":2}',
    '{"a":"\\u0000"}', '{"a":"\0"}', '{"a":"\\ud83d"}', '{"a":"\\ude00"}', '{"a":"\\ude00\\ud83d"}', '{"a":"\\ud83dx"}', '{"a":"\\ud83d\\ud83d\\ude00"}', '{"\\ud83d":1}',
    nested(33),
  ]) assert.equal(parseObject(Buffer.from(raw)), undefined, raw)
  for (const raw of [Buffer.from('{"a":"\xe9"}', 'latin1'), Buffer.from('{"a":"\xed\xa0\x80"}', 'latin1')]) assert.equal(parseObject(raw), undefined)
})

test('a date is a number of seconds up to the year 9999', () => {
  for (const [raw, want] of [['0', 0], ['-0', 0], ['1796203800.9', 1796203800], ['1.7962038e9', 1796203800], ['253402300799', 253402300799]] as const) {
    assert.equal((new Num(raw).date() ?? NaN) + 0, want, raw)
  }
  for (const raw of ['-1', '-0.1', '253402300800', '1e999']) assert.equal(new Num(raw).date(), undefined, raw)
})

test('an address has one normal form', () => {
  for (const [raw, want] of [
    ['HTTPS://API.Example.com:443', 'https://api.example.com/'],
    ['https://api.example.com:8443/A/', 'https://api.example.com:8443/A/'],
    ['http://api.example.com:80/%7ea%2fb?x#y', 'http://api.example.com/~a%2Fb'],
    ['https://api.example.com:/a/./b/../c/..', 'https://api.example.com/a/'],
    ['https://[2001:DB8::1]:443/', 'https://[2001:db8::1]/'],
    ['https://api.example.com//a', 'https://api.example.com//a'],
  ] as const) assert.equal(normalizeUrl(raw), want, raw)
  for (const raw of ['', '/a', 'ftp://a/', 'https:/a', 'https://', 'https://u@a/', 'https://a\\b/', 'https://a:b/', 'https://a:1:2/', 'https://[::1/', 'https://a/é', 'https://a/ b', 'https://a/%zz', 'https://a/"']) {
    assert.equal(normalizeUrl(raw), undefined, raw)
  }
})
