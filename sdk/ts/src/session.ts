import { timestampDate } from '@bufbuild/protobuf/wkt'
import type { AgentSession } from './gen/poppyfield/admin/v1/access_pb.js'

/** Who a request comes from: a User at the Company, through a Personal Agent. */
export interface Session {
  /** companies/{company}/sessions/{id} */
  readonly name: string
  readonly clientId: string
  readonly agentName: string
  /** The agent's User ID; unique only together with clientId. */
  readonly user: string
  readonly signedIn: boolean
  /** That the User proved to be theirs; '' while signed out. */
  readonly account: string
  readonly scopes: readonly string[]
  /** Until when this is so at the latest, in milliseconds since 1970. */
  readonly expiresAt: number
}

/** Reads a Session that the server sent. Requests share it, so it can't be changed. */
export function sessionOf(s: AgentSession): Session {
  return Object.freeze({
    name: s.session,
    clientId: s.clientId,
    agentName: s.agentName,
    user: s.user,
    signedIn: s.signedIn,
    account: s.account,
    scopes: Object.freeze([...s.scopes]),
    expiresAt: s.expireTime ? timestampDate(s.expireTime).getTime() : 0,
  })
}
