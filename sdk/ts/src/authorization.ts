import { MAX_JWT } from './jose.js'
import { Problem } from './problem.js'

/** The one credential of a request. The token is not verified. */
export interface Authorization {
  readonly scheme: 'DPoP' | 'Bearer'
  readonly token: string
}

/** Reads the values of the Authorization header field (RFC 9110 11.2 and 11.4). */
export function parseAuthorization(values: readonly string[]): Authorization {
  const [value] = values
  if (value === undefined) throw new Problem('invalid_token', 'the request has no Authorization header')
  if (values.length > 1) throw new Problem('invalid_request', 'more than one Authorization header')
  if (Buffer.byteLength(value) > MAX_JWT) throw new Problem('invalid_request', 'the Authorization header is larger than 16 KiB')
  const [, name = '', token = ''] = /^([^ ]*) *(.*)$/s.exec(value.replace(/^[ \t]+|[ \t]+$/g, '')) ?? []
  const scheme = name.toLowerCase() === 'dpop' ? 'DPoP' : name.toLowerCase() === 'bearer' ? 'Bearer' : undefined
  if (!scheme) throw new Problem('invalid_token', 'the Authorization scheme is not DPoP')
  if (!/^[A-Za-z0-9\-._~+/]+=*$/.test(token)) throw new Problem('invalid_request', 'the Authorization header does not hold exactly one token')
  return { scheme, token }
}
