import { admit, answer, incoming } from './http.js'
import type { Session } from './session.js'
import type { Verifier } from './verifier.js'

/**
 * A route handler of Next, or of all that takes a Request and gives a Response. handle serves what
 * agents may ask for and gets their Session; the rest is answered as the protocol says.
 */
export function agents<R extends Request, C extends unknown[]>(
  verifier: Verifier,
  handle: (request: R, session: Session, ...context: C) => Response | Promise<Response>,
): (request: R, ...context: C) => Promise<Response> {
  return async (request, ...context) => {
    const decision = await admit(verifier, incoming(request))
    if (!decision.allowed) return answer(decision)
    const response = await handle(request, decision.session, ...context)
    if (decision.headers.length === 0) return response
    const out = new Response(response.body, response) // the headers of some Responses can't be changed
    for (const [name, value] of decision.headers) out.headers.append(name, value)
    return out
  }
}
