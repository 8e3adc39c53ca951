// Opens a page in Chromium, hands it a command for every line of JSON on stdin, and
// writes what it reports to stdout. It ends with stdin.
//
//   node stream.mjs URL CHROMIUM
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'

const [url, executablePath] = process.argv.slice(2)
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

// Chromium's sandbox does not run as root, which containers of CI are.
const browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ['--no-sandbox'] : [] })
const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage()
page.on('pageerror', (error) => write({ failed: String(error) }))
page.on('console', (message) => console.error(message.text()))
await page.exposeFunction('report', write)
await page.goto(url)
for await (const line of createInterface({ input: process.stdin })) {
  await page.evaluate((command) => void globalThis.obey(command), JSON.parse(line))
}
await browser.close()
