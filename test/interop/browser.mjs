// A User's browser as far as sign-in pages without scripts need one: cookies, redirects,
// forms. It understands the HTML it is given and knows no page by name.

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ' }

const decode = (text) =>
  text.replace(/&(#x[0-9a-f]+|#\d+|\w+);/gi, (whole, name) => {
    if (name[0] !== '#') return ENTITIES[name] ?? whole
    return String.fromCodePoint(name[1] === 'x' ? parseInt(name.slice(2), 16) : Number(name.slice(1)))
  })

function attributes(tag) {
  const found = {}
  for (const [, name, double, single, bare] of tag.matchAll(/([\w:-]+)(?:=(?:"([^"]*)"|'([^']*)'|([^\s>]+)))?/g)) {
    found[name.toLowerCase()] ??= decode(double ?? single ?? bare ?? '')
  }
  return found
}

// A page is what one answer showed.
class Page {
  constructor(url, answer, html) {
    this.url = url
    this.status = answer.status
    this.headers = answer.headers
    this.html = html
    this.text = decode(html.replace(/<(style|head)[\s\S]*?<\/\1>/g, ' ').replace(/<[^>]+>/g, ' ')).replace(/\s+/g, ' ')
  }

  // The forms with what they hold before anybody touches them.
  get forms() {
    return [...this.html.matchAll(/<form\b([^>]*)>([\s\S]*?)<\/form>/g)].map(([, tag, body]) => {
      const form = attributes(tag)
      const values = []
      const buttons = []
      for (const [, kind, rest] of body.matchAll(/<(input|button)\b([^>]*)>/g)) {
        const field = attributes(rest)
        if (kind === 'button' || field.type === 'submit') buttons.push(field)
        else if (field.name && (field.type !== 'checkbox' || 'checked' in field)) values.push([field.name, field.value ?? ''])
      }
      return { action: new URL(form.action || this.url, this.url).href, method: (form.method ?? 'get').toUpperCase(), values, buttons }
    })
  }

  // Where the page sends the browser by itself.
  get refresh() {
    const tag = [...this.html.matchAll(/<meta\b([^>]*)>/g)].map(([, rest]) => attributes(rest)).find((m) => m['http-equiv'] === 'refresh')
    const target = tag?.content?.match(/url=(.*)$/i)?.[1]
    return target && new URL(target, this.url).href
  }
}

// newBrowser makes a browser with an empty cookie jar.
export function newBrowser(fetch) {
  const jar = new Map()

  function keep(url, headers) {
    const cookies = jar.get(url.hostname) ?? new Map()
    jar.set(url.hostname, cookies)
    for (const line of headers.getSetCookie()) {
      const [pair, ...settings] = line.split(';').map((part) => part.trim())
      const name = pair.slice(0, pair.indexOf('='))
      if (settings.some((s) => /^max-age=0$/i.test(s) || /^expires=thu, 01 jan 1970/i.test(s))) cookies.delete(name)
      else cookies.set(name, pair.slice(name.length + 1))
    }
  }

  // send follows redirects and immediate refreshes until leaves says that the browser
  // has arrived where it wanted to go, and returns that page or, when left, its URL alone.
  async function send(target, options, leaves) {
    let url = new URL(target)
    for (let hops = 0; hops < 20; hops++) {
      if (leaves?.(url)) return { left: url }
      const cookies = [...(jar.get(url.hostname) ?? [])].map(([name, value]) => `${name}=${value}`).join('; ')
      const answer = await fetch(url.href, {
        ...options,
        headers: { accept: 'text/html', 'sec-fetch-site': 'same-origin', ...options.headers, ...(cookies && { cookie: cookies }) },
      })
      keep(url, answer.headers)
      const location = answer.status >= 300 && answer.status < 400 && answer.headers.get('location')
      const page = new Page(url.href, answer, location ? '' : await answer.text())
      const next = location ? new URL(location, url).href : page.refresh
      if (!next) return page
      url = new URL(next)
      options = {}
    }
    throw new Error(`redirects without end at ${url}`)
  }

  return {
    jar,
    open: (url, leaves) => send(url, { headers: { 'sec-fetch-site': 'none' } }, leaves),
    // submit sends a form as it is but for values, by the button whose value is given.
    submit(page, { button, values = {}, without = [], form = 0 } = {}, leaves) {
      const { action, method, values: before, buttons } = page.forms.find((f) => button && f.buttons.some((b) => b.value === button)) ?? page.forms[form]
      const body = new URLSearchParams(before.filter(([name, value]) => !(name in values) && !without.includes(value)))
      for (const [name, value] of Object.entries(values)) body.append(name, value)
      const pressed = buttons.find((b) => b.value === button)
      if (pressed?.name) body.append(pressed.name, pressed.value)
      return send(action, { method, body, headers: { 'content-type': 'application/x-www-form-urlencoded', origin: new URL(action).origin } }, leaves)
    },
  }
}
