const MAX_KEYS = 100_000

/** A rate limiter (GCRA) for many keys. When it is full, the key that was asked for longest ago is forgotten. */
export class Limiter {
  private readonly due = new Map<string, number>()

  constructor(private readonly maxKeys = MAX_KEYS) {}

  /** How many milliseconds key has to wait; 0: it may go on. A refused try costs nothing; perMinute 0 is no limit. */
  wait(key: string, perMinute: number, now: number): number {
    if (perMinute <= 0) return 0
    const interval = 60_000 / perMinute
    const due = Math.max(this.due.get(key) ?? now, now)
    const wait = due - now - interval * (perMinute - 1)
    // Below a thousandth of a millisecond it is the arithmetic's.
    const allowed = wait < 0.001
    this.due.delete(key)
    if (this.due.size >= this.maxKeys) for (const oldest of this.due.keys()) {
      this.due.delete(oldest)
      break
    }
    this.due.set(key, allowed ? due + interval : due)
    return allowed ? 0 : wait
  }
}
