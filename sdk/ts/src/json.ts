// JSON that strangers wrote. It is stricter than JSON.parse: a repeated member name, an
// unpaired surrogate, invalid UTF-8, a NUL and deep nesting are refused, so that two
// layers never read one document in two ways.

/** A number as it is written. */
export class Num {
  constructor(readonly raw: string) {}

  /** Whole seconds since 1970 (RFC 7519 2), a fraction being cut off; undefined for what is no date. */
  date(): number | undefined {
    const n = Number(this.raw)
    return n >= 0 && n <= MAX_DATE ? Math.trunc(n) : undefined
  }
}

/** A value; the members of an object are in their order. */
export type Json = null | boolean | string | Num | Json[] | JsonObject
export type JsonObject = Map<string, Json>

const MAX_DATE = 253402300799 // the end of the year 9999
const MAX_DEPTH = 32

/** Reads an object; undefined where the document is anything else or not sound. */
export function parseObject(raw: Uint8Array): JsonObject | undefined {
  try {
    const reader = new Reader(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(raw))
    const value = reader.document()
    return value instanceof Map ? value : undefined
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return undefined // TypeError: no UTF-8
    throw error
  }
}

/** The text of a string; '' for every other value and for none. */
export function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : ''
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
const SPACE = /[ \t\n\r]*/y

class Reader {
  private at = 0

  constructor(private readonly src: string) {}

  document(): Json {
    this.space()
    const value = this.value(MAX_DEPTH)
    this.space()
    if (this.at !== this.src.length) throw new SyntaxError()
    return value
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.src)
    if (!found) throw new SyntaxError()
    this.at = pattern.lastIndex
    return found[0]
  }

  private space(): void {
    this.match(SPACE)
  }

  private take(c: string): boolean {
    if (this.src[this.at] !== c) return false
    this.at++
    return true
  }

  private value(depth: number): Json {
    switch (this.src[this.at]) {
      case '{':
        return this.object(depth)
      case '[':
        return this.array(depth)
      case '"':
        return this.string()
      case 't':
        return this.word('true', true)
      case 'f':
        return this.word('false', false)
      case 'n':
        return this.word('null', null)
    }
    return new Num(this.match(NUMBER))
  }

  private word<T extends Json>(spelling: string, value: T): T {
    if (!this.src.startsWith(spelling, this.at)) throw new SyntaxError()
    this.at += spelling.length
    return value
  }

  private string(): string {
    const literal = this.match(STRING)
    // A raw character can't be half of a pair in what was UTF-8, but an escape can.
    const value = JSON.parse(literal) as string
    if (literal.includes('\\u') && (value.includes('\0') || !soundEscapes(literal))) throw new SyntaxError()
    return value
  }

  private object(depth: number): JsonObject {
    if (depth <= 0) throw new SyntaxError()
    const out: JsonObject = new Map()
    this.at++
    this.space()
    if (this.take('}')) return out
    for (;;) {
      if (this.src[this.at] !== '"') throw new SyntaxError()
      const name = this.string()
      if (out.has(name)) throw new SyntaxError()
      this.space()
      if (!this.take(':')) throw new SyntaxError()
      this.space()
      out.set(name, this.value(depth - 1))
      this.space()
      if (this.take('}')) return out
      if (!this.take(',')) throw new SyntaxError()
      this.space()
    }
  }

  private array(depth: number): Json[] {
    if (depth <= 0) throw new SyntaxError()
    const out: Json[] = []
    this.at++
    this.space()
    if (this.take(']')) return out
    for (;;) {
      out.push(this.value(depth - 1))
      this.space()
      if (this.take(']')) return out
      if (!this.take(',')) throw new SyntaxError()
      this.space()
    }
  }
}

/** Whether the escaped surrogates of a string literal come in pairs of a high and a low one. */
function soundEscapes(literal: string): boolean {
  let high = -1 // where a low one has to follow
  for (const escape of literal.matchAll(/\\(?:u([0-9a-fA-F]{4})|.)/g)) {
    const code = escape[1] === undefined ? 0 : parseInt(escape[1], 16)
    const isLow = code >= 0xdc00 && code <= 0xdfff
    if (high >= 0 ? !isLow || escape.index !== high : isLow) return false
    high = code >= 0xd800 && code <= 0xdbff ? escape.index + escape[0].length : -1
  }
  return high < 0
}
