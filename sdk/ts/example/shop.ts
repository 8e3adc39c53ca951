// A shop: an orders API that Personal Agents may call, and the agent that answers their
// messages. COMPANY, ADMIN (host:port), API_KEY, BASE_URL and WEBHOOK_KEYS (separated by
// commas) configure it; ADMIN_CA is a file with a certificate to trust.
//
//   npm run build && node dist/example/shop.js
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import express, { type Express } from 'express'
import { Conversations, dial, Verifier } from '../src/index.js'
import { agents, sessionOf } from '../src/express.js'
import { backend, conversationName, later, onNode, stream, Webhooks } from '../src/webhook/index.js'

interface Order {
  id: string
  account: string
  status: string
}

const ORDERS: Order[] = [
  { id: 'ord_1', account: 'acc-1', status: 'on its way' },
  { id: 'ord_2', account: 'acc-2', status: 'delivered' },
]

export function shop(verifier: Verifier, webhooks: Webhooks, conversations: Conversations): Express {
  const app = express()
  app.set('case sensitive routing', true)
  app.disable('x-powered-by')

  app.get('/orders/:id', agents(verifier), (req, res) => {
    const { account } = sessionOf(req)
    const order = ORDERS.find((o) => o.id === req.params.id && o.account === account)
    if (order) res.json(order)
    else res.status(404).json({ error: 'not_found' })
  })

  app.post('/agent', onNode(backend(webhooks, {
    message({ data, id }) {
      const { text } = data.message
      if (!data.expected.reply) return {}
      if (/person/i.test(text)) return { messages: [{ text: 'One moment.' }], hand_off: { reason: text } }
      if (/story/i.test(text)) return stream(story())
      if (/kitchen/i.test(text)) {
        conversations.respond(conversationName(data), { messages: [{ text: 'It is in the oven.' }] }, { delivery: id }).catch(console.error)
        return later()
      }
      if (!/order/i.test(text)) return `You said: ${text}`
      if (data.session.account === null) return { authorization: { error: 'sign_in_required' } }
      const orders = ORDERS.filter((o) => o.account === data.session.account)
      return { messages: [{ text: orders.map((o) => `${o.id} is ${o.status}.`).join(' ') || 'There is none.', data: { orders } }] }
    },
  }, console.error)))
  return app
}

async function* story(): AsyncGenerator<string> {
  yield 'Once upon a time '
  yield 'there was a parcel.'
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const setting = (name: string): string => process.env[name] ?? (() => { throw new Error(`${name} is not set`) })()
  const ca = process.env['ADMIN_CA']
  const transport = dial(setting('ADMIN'), setting('API_KEY'), ca ? { ca: readFileSync(ca) } : {})
  const verifier = new Verifier({ company: setting('COMPANY'), transport, baseUrl: setting('BASE_URL'), local: true, log: console.error })
  shop(verifier, new Webhooks(setting('WEBHOOK_KEYS').split(',')), new Conversations(transport)).listen(Number(process.env['PORT'] ?? 8080))
}
