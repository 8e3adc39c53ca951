// The operator of the server under test: it makes Companies whose Users sign in.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import * as oauth from 'oauth4webapi'

// newOperator works with the ready file's key, by fetch.
export function newOperator(ready, fetch) {
  const via = { [oauth.customFetch]: fetch }

  async function api(method, path, body) {
    const answer = await fetch(`${ready.api_origin}/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${ready.operator_api_key}`, 'content-type': 'application/json' },
      body: body && JSON.stringify(body),
    })
    assert.equal(answer.status, 200, `${method} ${path}: ${await answer.clone().text()}`)
    return answer.json()
  }

  return {
    api,
    // company makes a published Company with a connection to its accounts and settings,
    // and reads its metadata as an agent does.
    async company(slug, name, connection, settings) {
      const made = await api('POST', 'companies', { slug: `${slug}-${randomUUID().slice(0, 8)}`, display_name: name, kind: 'COMPANY_KIND_TEST' })
      const set = await api('PATCH', `${made.name}/signInConnection`, connection)
      await api('PATCH', `${made.name}/discoverySettings`, { conversations_enabled: true, ...settings })
      const { issuer } = await api('POST', `${made.name}:publish`, {})
      const at = new URL(issuer)
      const as = await oauth.processDiscoveryResponse(at, await oauth.discoveryRequest(at, { algorithm: 'oauth2', ...via }))
      return { name: made.name, as, set }
    },
  }
}
