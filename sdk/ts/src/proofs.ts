import { createHash } from 'node:crypto'
import { MAX_AGE, MAX_FUTURE, type VerifiedProof } from './dpop.js'

/** For how long a proof that was taken may come again. */
const REMEMBERED = MAX_AGE + MAX_FUTURE

const BUCKET_TIME = 10_000
// One bucket more than fit into the time: the oldest is in use until its last proof is too old.
const BUCKETS = REMEMBERED / BUCKET_TIME + 2
const MAX_PROOFS = 1_000_000

/** Remembers the proofs that were taken, within a fixed number. */
export class ProofMemory {
  private readonly buckets: Set<string>[] = Array.from({ length: BUCKETS }, () => new Set<string>())
  private newest = 0
  private count = 0
  private until = 0

  constructor(private readonly max = MAX_PROOFS) {}

  /** Remembers a proof that is new. */
  claim(proof: VerifiedProof, now: number): 'fresh' | 'seen' | 'full' {
    const key = createHash('sha256').update(`${proof.jkt}\0${proof.jti}`).digest().toString('latin1', 0, 16)
    const at = this.advance(now)
    if (this.buckets.some((b) => b.has(key))) return 'seen'
    if (this.count >= this.max) {
      this.saturate(now)
      return 'full'
    }
    this.buckets[at % BUCKETS]?.add(key)
    this.count++
    return 'fresh'
  }

  /** Leaves everything to the server until a proof of now is too old. */
  saturate(now: number): void {
    this.until = now + 2 * REMEMBERED
  }

  /** Whether a proof may be good that is remembered nowhere here. */
  saturated(now: number): boolean {
    return now < this.until
  }

  private advance(now: number): number {
    const at = Math.floor(now / BUCKET_TIME)
    if (at <= this.newest) return this.newest // a clock that was set back forgets nothing
    for (let n = Math.max(this.newest + 1, at - BUCKETS + 1); n <= at; n++) {
      const bucket = this.buckets[n % BUCKETS]
      this.count -= bucket?.size ?? 0
      bucket?.clear()
    }
    this.newest = at
    return at
  }
}
