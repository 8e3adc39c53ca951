// Usage: node pages.mjs <base URL> <path of Chromium>
// Looks at every page that the site serves: what axe-core finds in light and dark,
// 320 px, and, with JavaScript off, the keyboard alone.
import assert from 'node:assert/strict'
import axe from 'axe-core'
import { chromium } from 'playwright-core'

const [base, executablePath] = process.argv.slice(2)
const LANGUAGES = ['en', 'es', 'de', 'fr', 'ja']
const { names, accents } = await (await fetch(`${base}/samples`)).json()

// Chromium's sandbox does not run as root, which containers of CI are.
const args = process.getuid() === 0 ? ['--no-sandbox'] : []
const browser = await chromium.launch({ executablePath, args })

// open shows a page, without scripts unless options say otherwise, and takes down what it
// loads from elsewhere, what the Content-Security-Policy stops and what can't be had.
async function open(name, { lang = 'en', accent = '', width = 1024, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 800 }, javaScriptEnabled: false, ...options })
  const page = await context.newPage()
  const foreign = []
  const complaints = []
  let arrive
  const elsewhere = new Promise((resolve) => (arrive = resolve))
  page.on('console', (message) => complaints.push(message.text()))
  page.on('response', (answer) => answer.status() >= 400 && complaints.push(`${answer.status()} ${answer.url()}`))
  await page.route(
    (url) => url.origin !== base,
    (route) => {
      foreign.push(route.request().url())
      arrive()
      return route.fulfill({ status: 204 }) // leaves the browser where it is
    },
  )
  // A page without a logo leaves the browser to look for this one by itself.
  await page.route(`${base}/favicon.ico`, (route) => route.fulfill({ status: 204 }))
  const at = `${base}/page/${name}?lang=${lang}&accent=${accent}`
  await page.goto(at)
  return { page, at, foreign, complaints, elsewhere, close: () => context.close() }
}

// findings are what axe finds wrong, and what it can't tell of contrast.
async function findings(page, rules) {
  const { violations, incomplete } = await page.evaluate((rules) => globalThis.axe.run(document, rules), rules)
  const doubts = incomplete.filter((i) => i.id === 'color-contrast')
  return [...violations, ...doubts].map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => `${n.html} ${n.any.map((a) => a.message).join(' ')}`).join('\n    ')}`)
}

const widthOf = (page) => page.evaluate('document.documentElement.scrollWidth')

// look holds a page against everything that is true of all of them.
async function look(name, options) {
  // axe needs timers, which run only where scripts do.
  const { page, at, foreign, complaints, elsewhere, close } = await open(name, { ...options, javaScriptEnabled: true })
  if (name === 'leave') {
    await elsewhere // the browser goes by itself
    assert.ok(foreign.every((url) => url.startsWith('https://login.company.example/')), `${at}: went to ${foreign}`)
  } else {
    assert.deepEqual(foreign, [], `${at}: loads from elsewhere`)
  }
  assert.deepEqual(complaints, [], `${at}: the browser complains`)
  for (const details of await page.locator('details').all()) await details.locator('summary').click()
  await page.evaluate(axe.source) // as the debugger, which the page's own policy doesn't stop
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' })
  assert.deepEqual(await findings(page, {}), [], `${at}: axe finds in light`)
  await page.emulateMedia({ colorScheme: 'dark' })
  assert.deepEqual(await findings(page, { runOnly: ['color-contrast'] }), [], `${at}: axe finds in dark, which differs in colours only`)
  await page.setViewportSize({ width: 320, height: 640 })
  assert.ok((await widthOf(page)) <= 320, `${at}: scrolls sideways at 320 px`)
  await smallTargets(page, at)
  await close()
}

// smallTargets fails for what a finger would miss.
async function smallTargets(page, at) {
  for (const target of await page.locator('button:visible, .button, .scope, .field input, footer a').all()) {
    const box = await target.boundingBox()
    assert.ok(box.height >= 40, `${at}: ${await target.evaluate((e) => e.outerHTML)} is ${box.height} px high`)
  }
}

const focused = (page) =>
  page.evaluate(() => {
    const e = document.activeElement
    const s = getComputedStyle(e)
    return {
      is: e === document.body ? '' : `${e.tagName.toLowerCase()}#${e.id || e.value || e.textContent.trim()}`,
      shown: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,
    }
  })

// tabs reaches everything by Tab alone, in the order that it is in on the page, and sees where it is.
async function tabs(name) {
  const { page, at, close } = await open(name)
  const wanted = await page.locator('a[href], button:enabled:visible, input:not([type=hidden]), summary').count()
  await page.mouse.click(2, 2) // from where autofocus has begun to the top
  const seen = []
  for (let i = 0; i < wanted; i++) {
    await page.keyboard.press('Tab')
    const { is, shown } = await focused(page)
    assert.ok(is, `${at}: Tab leaves the page after ${seen}`)
    assert.ok(shown, `${at}: focus on ${is} can't be seen`)
    seen.push(is)
  }
  const tops = await page.evaluate(
    () => [...document.querySelectorAll('a[href], button:enabled, input:not([type=hidden]), summary')].filter((e) => e.offsetParent).map((e) => e.id || e.value || e.textContent.trim()),
  )
  assert.deepEqual(seen.map((s) => s.slice(s.indexOf('#') + 1)), tops, `${at}: Tab goes another way`)
  await close()
}

// sent is what a form has sent, as the site answers with it.
async function sent(page) {
  await page.waitForURL((url) => !url.pathname.startsWith('/page/'))
  return JSON.parse(await page.locator('body').innerText())
}

// tabTo presses Tab until a locator's element has the focus.
async function tabTo(page, locator) {
  for (let i = 0; i < 30; i++) {
    if (await locator.evaluate((e) => e === document.activeElement)) return
    await page.keyboard.press('Tab')
  }
  assert.fail(`Tab never comes to ${locator}`)
}

// autofocused waits until the browser has put the focus where the page wants it.
async function autofocused(page, locator) {
  for (let i = 0; i < 100; i++) {
    if (await locator.evaluate((e) => e === document.activeElement)) return
    await page.waitForTimeout(20)
  }
  assert.fail(`${locator} never gets the focus`)
}

async function press(page, locator, key = 'Enter') {
  await tabTo(page, locator)
  await page.keyboard.press(key)
}

const button = (page, value) => page.locator(`button[value="${value}"]`)

async function keyboardAlone() {
  let { page, close } = await open('login')
  await autofocused(page, page.locator('#field-0'))
  await page.keyboard.type('mia@example.com')
  await page.keyboard.press('Tab')
  await page.keyboard.type('a password')
  await page.keyboard.press('Enter')
  assert.deepEqual(await sent(page), { csrf: ['csrf-token'], 'field.email': ['mia@example.com'], 'field.password': ['a password'], action: ['login'] })
  await close()

  ;({ page, close } = await open('login'))
  await press(page, button(page, 'decline')) // with nothing filled in
  assert.deepEqual((await sent(page)).action, ['decline'])
  await close()

  ;({ page, close } = await open('consent'))
  const at = page.url()
  await tabTo(page, page.locator('#scope-1'))
  await page.keyboard.press('Enter')
  await page.waitForTimeout(50)
  assert.equal(page.url(), at, 'Enter in a tick box has decided')
  await page.keyboard.press('Space')
  await press(page, button(page, 'approve'))
  assert.deepEqual(await sent(page), { csrf: ['csrf-token'], scope: ['poppy:read'], action: ['approve'] })
  await close()

  ;({ page, close } = await open('consent'))
  await press(page, button(page, 'decline'), 'Space')
  assert.deepEqual((await sent(page)).action, ['decline'])
  await close()

  ;({ page, close } = await open('consent'))
  await press(page, button(page, 'restart'))
  assert.deepEqual(await sent(page), { csrf: ['csrf-token'], action: ['restart'] })
  await close()

  ;({ page, close } = await open('device'))
  await autofocused(page, page.locator('#user-code'))
  await page.keyboard.type('wdjb mjht')
  await page.keyboard.press('Enter')
  assert.deepEqual(await sent(page), { csrf: ['csrf-token'], user_code: ['wdjb mjht'] })
  await close()

  ;({ page, close } = await open('agents'))
  await press(page, button(page, 'grt_2'))
  assert.deepEqual(await sent(page), { link: ['link-token'], grant: ['grt_2'] })
  await close()
}

// equalButtons: neither answer is easier to find than the other.
async function equalButtons() {
  for (const width of [1024, 320]) {
    const { page, close } = await open('consent', { width })
    const [allow, decline] = await Promise.all(['approve', 'decline'].map((value) => button(page, value).boundingBox()))
    assert.equal(allow.width, decline.width, `at ${width} px`)
    assert.equal(allow.height, decline.height, `at ${width} px`)
    await close()
  }
}

// zoomed: text twice as large fits, too.
async function zoomed(name) {
  const { page, at, close } = await open(name, { width: 640, deviceScaleFactor: 2 })
  await page.evaluate(() => (document.documentElement.style.fontSize = '200%'))
  assert.ok((await widthOf(page)) <= 640, `${at}: scrolls sideways with text at 200 %`)
  await close()
}

let looks = 0
async function all(jobs, run) {
  const queue = [...jobs]
  const worker = async () => {
    for (let job; (job = queue.shift()); looks++) await run(job)
  }
  await Promise.all([worker(), worker(), worker()])
}

try {
  await all(names.flatMap((name) => LANGUAGES.map((lang) => [name, { lang }])), ([name, options]) => look(name, options))
  await all(
    ['login-wrong', 'consent', 'device-link', 'agents'].flatMap((name) => accents.map((accent) => [name, { accent }])),
    ([name, options]) => look(name, options),
  )
  await all(names.filter((name) => name !== 'leave'), tabs)
  await all(['login', 'consent', 'consent-device', 'agents'], zoomed)
  await keyboardAlone()
  await equalButtons()
  console.log(`${looks} looks in ${browser.version()}: nothing found`)
} finally {
  await browser.close()
}
