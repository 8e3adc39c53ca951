// What axe-core finds in a page as it is shown, scripts or not: what runs here is the
// browser's debugger's, so the page's own policy stays as it is.
import axe from 'axe-core'

export async function findings(page) {
  const { violations, incomplete } = await page.evaluate(`${axe.source}; axe.run(document, { resultTypes: ['violations', 'incomplete'] })`)
  const doubts = incomplete.filter((i) => i.id === 'color-contrast')
  return [...violations, ...doubts].map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => `${n.html} ${n.any.map((a) => a.message).join(' ')}`).join('\n    ')}`)
}
