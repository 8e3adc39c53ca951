import type { AccessTable } from './access.js'
import type { Session } from './session.js'

/** How old what is known may be, in milliseconds: then a change may be there that was not told. */
const MAX_KNOWN = 1_000
const MAX_TOKENS = 100_000

/** What a token is worth. */
export interface Standing {
  readonly session: Session
  /** Thumbprint of the key that it is bound to; '' for a Bearer token. */
  readonly jkt: string
  readonly resource: string
  /** It has to be asked for again. */
  readonly until: number
}

/** What requests are judged by. */
export interface RuleSet {
  readonly apis: AccessTable
  readonly requestsPerMinute: number
  readonly nonceRequired: boolean
}

/** A question that is under way: what changed meanwhile decides whether its answer may be kept. */
interface Question {
  all: boolean
  readonly sessions: Set<string>
}

/** What is known as long as a watch says that nothing of it has changed. */
export class Knowledge {
  private checked = -Infinity // every change before it was told
  private ruleSet: RuleSet | undefined
  private readonly tokens = new Map<string, Standing>() // by tokenHash
  private readonly bySession = new Map<string, Set<string>>()
  private readonly asking = new Map<string, Question>()
  private askingRules: Question | undefined

  constructor(private readonly maxTokens = MAX_TOKENS) {}

  /** Whether what is known is kept true. A clock that was set back makes nothing younger. */
  current(now: number): boolean {
    const age = now - this.checked
    return age >= 0 && age <= MAX_KNOWN
  }

  rules(now: number): RuleSet | undefined {
    return this.current(now) ? this.ruleSet : undefined
  }

  standing(hash: string, now: number): Standing | undefined {
    const standing = this.tokens.get(hash)
    return standing && now < standing.until && this.current(now) ? standing : undefined
  }

  /** Notes that every change before at was told. */
  check(at: number): void {
    this.checked = at
  }

  /** Forgets everything, and what is being asked for. */
  forgetAll(): void {
    this.ruleSet = undefined
    this.forgetTokens()
    for (const question of this.asking.values()) question.all = true
    if (this.askingRules) this.askingRules.all = true
  }

  /** Forgets everything, and trusts nothing until the next check. */
  lose(): void {
    this.forgetAll()
    this.check(-Infinity)
  }

  /** Forgets the tokens of one Session. */
  forget(session: string): void {
    for (const hash of this.bySession.get(session) ?? []) this.tokens.delete(hash)
    this.bySession.delete(session)
    for (const question of this.asking.values()) question.sessions.add(session)
  }

  /** Asks for a token, unless somebody does or nothing is kept true, and keeps the answer unless it may be out of date. */
  async askToken(hash: string, now: number, ask: () => Promise<Standing | undefined>): Promise<void> {
    if (this.asking.has(hash) || !this.current(now)) return
    const question: Question = { all: false, sessions: new Set() }
    this.asking.set(hash, question)
    try {
      const found = await ask()
      if (found && !question.all && !question.sessions.has(found.session.name)) this.keep(hash, found)
    } finally {
      this.asking.delete(hash)
    }
  }

  /** Asks for the rules, unless they are known, in the same way. */
  async askRules(now: number, ask: () => Promise<RuleSet | undefined>): Promise<void> {
    if (this.ruleSet || this.askingRules || !this.current(now)) return
    const question: Question = { all: false, sessions: new Set() }
    this.askingRules = question
    try {
      const found = await ask()
      if (found && !question.all) this.ruleSet = found
    } finally {
      this.askingRules = undefined
    }
  }

  private keep(hash: string, standing: Standing): void {
    if (this.tokens.size >= this.maxTokens) this.forgetTokens()
    this.tokens.set(hash, standing)
    const name = standing.session.name
    const hashes = this.bySession.get(name) ?? new Set()
    this.bySession.set(name, hashes.add(hash))
  }

  private forgetTokens(): void {
    this.tokens.clear()
    this.bySession.clear()
  }
}
