// What the server under test fetches and calls: the agent's documents and a Company's
// conversation backend, on one HTTPS port, told apart by name.
import https from 'node:https'
import { once } from 'node:events'

// serve answers the agent's documents and records webhooks; reply says what a webhook
// gets as its answer.
export async function serve({ port, cert, key, documents, reply }) {
  const webhooks = []
  const waiting = []
  const server = https.createServer({ cert, key }, async (request, response) => {
    const path = new URL(request.url, 'https://any').pathname
    if (request.method === 'GET' && documents[path]) {
      response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'max-age=60' })
      response.end(JSON.stringify(documents[path]))
      return
    }
    if (request.method === 'POST' && path === '/webhook') {
      const chunks = []
      for await (const chunk of request) chunks.push(chunk)
      const webhook = { headers: request.headers, body: Buffer.concat(chunks).toString('utf8') }
      webhooks.push(webhook)
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(reply(JSON.parse(webhook.body))))
      waiting.splice(0).forEach((wake) => wake())
      return
    }
    response.writeHead(404).end()
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    webhooks,
    // webhook waits for the one that carries a text.
    async webhook(text) {
      const timeout = AbortSignal.timeout(30_000)
      for (;;) {
        const found = webhooks.find((w) => JSON.parse(w.body).data?.message?.text === text)
        if (found) return found
        await Promise.race([
          new Promise((wake) => waiting.push(wake)),
          once(timeout, 'abort').then(() => Promise.reject(new Error(`no webhook with ${JSON.stringify(text)}`))),
        ])
      }
    },
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}
