import type { MiddlewareHandler } from 'hono'
import { admit, answer, incoming } from './http.js'
import type { Session } from './session.js'
import type { Verifier } from './verifier.js'

/** What c.get() has behind agents(). */
export type AgentEnv = { Variables: { agentSession: Session } }

/**
 * Middleware for Hono. It serves what agents may ask for, with the Session as
 * c.get('agentSession'), and answers the rest as the protocol says.
 */
export function agents(verifier: Verifier): MiddlewareHandler<AgentEnv> {
  return async (c, next) => {
    const decision = await admit(verifier, incoming(c.req.raw))
    if (!decision.allowed) return answer(decision)
    c.set('agentSession', decision.session)
    await next()
    for (const [name, value] of decision.headers) c.header(name, value, { append: true })
    return undefined
  }
}
