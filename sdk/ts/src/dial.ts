import type { Transport } from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'

/** How the admin API is reached. */
export interface DialOptions {
  /** Certificates to trust in the place of the machine's, PEM. */
  readonly ca?: string | Buffer
  /** The name in the server's certificate, where the address has another. */
  readonly serverName?: string
}

/** Reaches the gRPC port of the admin API, "host:port", over TLS and with an API key. */
export function dial(address: string, key: string, options: DialOptions = {}): Transport {
  return createGrpcTransport({
    baseUrl: `https://${address}`,
    pingIntervalMs: 10_000, // a connection that died in silence is noticed
    nodeOptions: { ...(options.ca && { ca: options.ca }), ...(options.serverName && { servername: options.serverName }) },
    interceptors: [
      (next) => (request) => {
        request.header.set('authorization', `Bearer ${key}`)
        return next(request)
      },
    ],
  })
}
