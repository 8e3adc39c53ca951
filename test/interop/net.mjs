// HTTPS for clients that reach names without DNS: a fetch whose connections go where
// the server's ready file says, trusting the server's own CA.
import https from 'node:https'

const MAX_BODY = 1 << 20

// route says where to connect for a URL: an address of hosts, or loopback for names
// below .localhost, which have no other meaning.
function route(url, hosts) {
  const port = Number(url.port || 443)
  const target = hosts[url.host] ?? hosts[url.hostname]
  if (target) {
    const colon = target.lastIndexOf(':')
    return { host: target.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(target.slice(colon + 1)) }
  }
  if (url.hostname === 'localhost' || url.hostname.endsWith('.localhost')) {
    return { host: '127.0.0.1', port }
  }
  return { host: url.hostname, port }
}

// foreignFetch makes a fetch(url, options) that follows no redirect and keeps the name
// of the URL in Host and SNI.
export function foreignFetch({ hosts, ca }) {
  return (input, options = {}) => {
    const url = new URL(input)
    const headers = { ...options.headers, host: url.host }
    const body = options.body == null ? undefined : Buffer.from(options.body.toString())
    if (body) headers['content-length'] = String(body.length)
    return new Promise((resolve, reject) => {
      const request = https.request(
        {
          ...route(url, hosts),
          path: url.pathname + url.search,
          method: options.method ?? 'GET',
          headers,
          servername: url.hostname,
          ca,
          agent: false,
          signal: options.signal ?? AbortSignal.timeout(60_000),
        },
        (answer) => {
          const chunks = []
          let size = 0
          answer.on('data', (chunk) => {
            size += chunk.length
            if (size > MAX_BODY) answer.destroy(new Error('the answer is too large'))
            chunks.push(chunk)
          })
          answer.on('error', reject)
          answer.on('end', () => {
            const received = new Headers()
            for (let i = 0; i < answer.rawHeaders.length; i += 2) {
              received.append(answer.rawHeaders[i], answer.rawHeaders[i + 1])
            }
            const empty = answer.statusCode === 204 || answer.statusCode === 304
            const response = new Response(empty ? null : Buffer.concat(chunks), {
              status: answer.statusCode,
              headers: received,
            })
            Object.defineProperty(response, 'url', { value: url.href })
            resolve(response)
          })
        },
      )
      request.on('error', reject)
      request.end(body)
    })
  }
}
