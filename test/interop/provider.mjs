// A Company's own identity provider: node-oidc-provider with its built-in login page.
import https from 'node:https'
import { once } from 'node:events'
import Provider from 'oidc-provider'

// serveProvider answers at issuer, on port. The account is what the User types as login.
export async function serveProvider({ issuer, port, cert, key, client, redirectURI }) {
  const provider = new Provider(issuer, {
    clients: [{ client_id: client.id, client_secret: client.secret, redirect_uris: [redirectURI] }],
    cookies: { keys: ['interop'] },
    claims: { openid: ['sub'], email: ['email'] },
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@shop.example` }) }),
  })
  const server = https.createServer({ cert, key }, provider.callback())
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}
