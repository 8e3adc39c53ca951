/** The error codes that a request can be refused with here; the server has more. */
export type Reason =
  | 'invalid_request'
  | 'invalid_token'
  | 'invalid_dpop_proof'
  | 'rate_limited'
  | 'access_denied'
  | 'sign_in_required'
  | 'insufficient_scope'

/** Why a request is refused. Its message is safe to show to anybody. */
export class Problem extends Error {
  constructor(
    readonly reason: Reason,
    detail: string,
    readonly more: { scope?: string; retryAfterMs?: number } = {},
  ) {
    super(detail)
  }
}
