import type { IncomingMessage, ServerResponse } from 'node:http'
import { admit } from './http.js'
import type { Session } from './session.js'
import type { Verifier } from './verifier.js'

declare global {
  // Express's own way to say what its requests have.
  namespace Express {
    interface Request {
      /** Who asks, behind agents(). */
      agentSession?: Session
    }
  }
}

type NodeRequest = IncomingMessage & { originalUrl?: string; agentSession?: Session }

/**
 * Middleware for Express, and for all that calls middleware as it does. It serves what agents may
 * ask for, with the Session as req.agentSession, and answers the rest as the protocol says.
 */
export function agents(verifier: Verifier): (req: NodeRequest, res: ServerResponse, next: (error?: unknown) => void) => void {
  return (req, res, next) => {
    const incoming = {
      method: req.method ?? '',
      target: req.originalUrl ?? req.url ?? '',
      authorization: req.headersDistinct['authorization'] ?? [],
      dpop: req.headersDistinct['dpop'] ?? [],
    }
    admit(verifier, incoming).then((decision) => {
      for (const [name, value] of decision.headers) res.appendHeader(name, value)
      if (decision.allowed) {
        req.agentSession = decision.session
        next()
        return
      }
      const body = Buffer.from(decision.body)
      res.writeHead(decision.status, { 'Content-Type': 'application/json', 'Content-Length': body.length })
      res.end(body)
    }).catch(next)
  }
}

/** The Session of a request behind agents(). */
export function sessionOf(req: { agentSession?: Session }): Session {
  if (!req.agentSession) throw new Error('the request did not come through agents()')
  return req.agentSession
}
