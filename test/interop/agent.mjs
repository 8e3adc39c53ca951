// A personal agent's side that is ours: its client document, its keys, its assertions.
// Everything OAuth is left to oauth4webapi.
import { randomBytes } from 'node:crypto'
import * as jose from 'jose'

const KID = 'interop-1'

// newAgent makes an agent whose documents are served at origin.
export async function newAgent(origin) {
  const keys = await jose.generateKeyPair('ES256', { extractable: true })
  const publicKey = { ...(await jose.exportJWK(keys.publicKey)), kid: KID, alg: 'ES256', use: 'sig' }
  const clientId = `${origin}/agent.json`
  const documents = {
    '/agent.json': {
      client_id: clientId,
      client_name: 'Interop Agent',
      jwks_uri: `${origin}/jwks.json`,
      redirect_uris: [`${origin}/callback`],
      token_endpoint_auth_method: 'private_key_jwt',
    },
    '/jwks.json': { keys: [publicKey] },
  }
  return {
    clientId,
    documents,
    signingKey: { key: keys.privateKey, kid: KID },
    // sessionAssertion names the User at one Company, for one minute.
    sessionAssertion: (tokenEndpoint, user) =>
      new jose.SignJWT({})
        .setProtectedHeader({ alg: 'ES256', kid: KID })
        .setIssuer(clientId)
        .setSubject(user)
        .setAudience(tokenEndpoint)
        .setIssuedAt()
        .setExpirationTime('60s')
        .setJti(randomBytes(16).toString('base64url'))
        .sign(keys.privateKey),
    // browserAssertion has a browser join the User's Session.
    browserAssertion: (endpoint, user, session, returnTo) =>
      new jose.SignJWT({ session_id: session, return_to: returnTo })
        .setProtectedHeader({ typ: 'poppy-browser+jwt', alg: 'ES256', kid: KID })
        .setIssuer(clientId)
        .setSubject(user)
        .setAudience(endpoint)
        .setIssuedAt()
        .setExpirationTime('60s')
        .setJti(randomBytes(16).toString('base64url'))
        .sign(keys.privateKey),
  }
}
