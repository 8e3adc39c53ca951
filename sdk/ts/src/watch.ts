import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Client } from '@connectrpc/connect'
import type { AccessService } from './gen/poppyfield/admin/v1/access_pb.js'
import type { Knowledge } from './knowledge.js'

const FIRST_PAUSE = 100
const MAX_PAUSE = 5_000
/** When a stream is given up: its frames come late, or one of the clocks was set. */
const TOO_LATE = 5_000

/** What is watched, and for whom. */
export interface Watch {
  readonly client: Client<typeof AccessService>
  readonly company: string
  readonly known: Knowledge
  readonly now: () => number
  readonly signal: AbortSignal
  readonly log: (message: string, error: unknown) => void
}

/** Keeps what is known true until the signal comes. */
export async function watch(w: Watch): Promise<void> {
  let pause = FIRST_PAUSE
  while (!w.signal.aborted) {
    let why: unknown
    let synced = false
    try {
      await follow(w, () => {
        synced = true
      })
    } catch (error) {
      why = error
    }
    w.known.lose()
    if (w.signal.aborted) return
    if (synced) pause = FIRST_PAUSE
    w.log('not watching sessions: every request is asked about', why)
    await sleep(pause, w.signal)
    pause = Math.min(2 * pause, MAX_PAUSE)
  }
}

/** Reads one stream to its end. */
async function follow(w: Watch, onSynced: () => void): Promise<void> {
  const stop = new AbortController()
  const signal = AbortSignal.any([w.signal, stop.signal])
  const late = lateness()
  let synced = false
  try {
    for await (const { frame } of w.client.watchSessions({ parent: w.company }, { signal })) {
      const now = w.now()
      switch (frame.case) {
        case 'synced':
          w.known.lose()
          synced = true
          onSynced()
          w.known.check(now - late(timestampMs(frame.value), now))
          break
        case 'session':
          w.known.forget(frame.value)
          break
        case 'all':
          w.known.forgetAll()
          break
        case 'heartbeat': {
          const by = late(timestampMs(frame.value), now)
          if (by > TOO_LATE) throw new Error('the watch of Sessions lags behind')
          if (synced) w.known.check(now - by)
        }
      }
    }
  } finally {
    stop.abort()
  }
}

/** Says how much later than others a frame of a stream came: the two clocks need not agree for that. */
function lateness(): (sent: number, received: number) => number {
  let least = Infinity
  return (sent, received) => {
    least = Math.min(least, received - sent)
    return received - sent - least
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
  })
}
