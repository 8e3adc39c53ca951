// A resource server's look at a token, by a library that knows RFC 7662 and nothing of
// us: introspect.mjs ISSUER ENDPOINT CA CLIENT_ID SECRET TOKEN. It prints the answer.
import { readFileSync } from 'node:fs'
import * as oauth from 'oauth4webapi'
import { foreignFetch } from './net.mjs'

const [issuer, endpoint, ca, clientId, secret, token] = process.argv.slice(2)
const server = { issuer, introspection_endpoint: endpoint }
const client = { client_id: clientId }
const response = await oauth.introspectionRequest(server, client, oauth.ClientSecretBasic(secret), token, {
  [oauth.customFetch]: foreignFetch({ hosts: {}, ca: readFileSync(ca) }),
})
try {
  console.log(JSON.stringify(await oauth.processIntrospectionResponse(server, client, response)))
} catch (error) {
  console.log(JSON.stringify({ error: error.error ?? error.cause?.[0]?.parameters?.error ?? error.code, status: response.status }))
}
