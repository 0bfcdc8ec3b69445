// The page in a real browser.
//
//   node page.mjs <address of a running Feedmill> <folder for screenshots>
//
// Loads the page as a newcomer would, reads as one who sees much, watches entries
// arrive, scrolls, and looks again at phone width and in the dark. Prints one
// JSON line and exits with 0 if everything held; else says what did not.
// Needs playwright-core beside it (tests/peers/install) and Chromium.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { open } from './browser.mjs'

const [address, folder] = process.argv.slice(2)
const { page, faults, elsewhere, at, number, until, finish } = await open(address)
const uri = (entry) => entry.getAttribute('data-uri', { timeout: 20_000 })
const first = () => uri(page.getByTestId('entry').first())
const last = () => uri(page.getByTestId('entry').last())

// Every entry on the page, in order, is what the server gives for the same reader.
async function equalsTheServer() {
  const call = await at('call').textContent()
  const asked = new URL(call.slice("curl '".length, -1))
  asked.searchParams.set('limit', '10')
  await until('the page shows what the server gives', async () => {
    const served = (await (await fetch(asked)).json()).records.map((record) => record.uri)
    const nodes = await page.getByTestId('entry').evaluateAll((all) => all.map((each) => each.dataset.uri))
    return served.length > 0 && served.every((uri, index) => nodes[index] === uri)
  })
}

// Chooses readers by turns until one has a full page of several people, and more below. Many follow
// few: they see little, and nothing at all once those few are gone.
async function busyReader() {
  await until('a reader can be chosen', async () => (await at('reader').locator('option').count()) > 2)
  await at('feed').selectOption('timeline')
  let turn = 0
  return until('a reader has a full page', async () => {
    const readers = await at('reader').locator('option').evaluateAll((all) => all.map((each) => each.value))
    const reader = readers[1 + (turn++ % (readers.length - 1))]
    await at('reader').selectOption(reader)
    await page.waitForTimeout(500) // until it has come, or it is another's turn
    const authors = await page.getByTestId('entry').evaluateAll((all) => all.map((each) => each.dataset.uri.split('/')[2]))
    const goesOn = (await page.locator('#end').textContent()) === 'More below…'
    return authors.length >= 30 && new Set(authors).size >= 5 && goesOn && reader
  })
}

// Reads as somebody who sees much. Accounts of the simulated network come and go; where the one
// chosen goes, its feed is empty, and another is chosen.
async function read() {
  for (let left = 3; ; left -= 1) {
    const chosen = await busyReader()
    try {
      return { chosen, shown: await watch(chosen) }
    } catch (error) {
      if (left === 0 || (await number('shown')) > 0) throw error
      await page.reload()
    }
  }
}

async function watch(chosen) {
  await equalsTheServer()
  assert.ok((await at('call').textContent()).includes(chosen), 'the command line names the chosen reader')

  // The counter moves, and new entries arrive at the top without a reload.
  const received = await number('received')
  await until('the counter moves', async () => (await number('received')) > received)
  const top = await first()
  await until('an entry arrives by itself', async () => (await number('arrived')) > 0 && (await first()) !== top)
  await page.screenshot({ path: join(folder, 'desktop.png') })

  // Scrolling loads more, in order and without repetition.
  const oldest = await last()
  const shown = await until('scrolling loads more', async () => {
    await page.mouse.wheel(0, 5000)
    return (await last()) !== oldest && number('shown')
  })
  const uris = await page.getByTestId('entry').evaluateAll((all) => all.map((each) => each.dataset.uri))
  assert.equal(new Set(uris).size, uris.length, 'no entry stands twice')

  // Paused, it stands still while the numbers go on.
  await page.evaluate(() => scrollTo(0, 0))
  await at('pause').click()
  await page.waitForTimeout(1500) // a look that had begun before may still end
  const still = await first()
  const then = await number('received')
  await until('the counter moves while paused', async () => (await number('received')) > then + 50)
  assert.equal(await first(), still, 'a paused feed stands still')
  await at('pause').click()
  return shown
}

async function run() {
  await page.goto(address)
  assert.equal(await page.title(), 'Feedmill')
  await until('the source is connected', async () => (await at('state').textContent()) === 'live')
  const { chosen, shown } = await read()

  // The keyboard walks the entries.
  await page.evaluate(() => document.activeElement?.blur())
  await page.keyboard.press('j')
  await page.keyboard.press('j')
  const focused = await page.evaluate(() => document.activeElement.dataset.testid)
  assert.equal(focused, 'entry', 'j moves to an entry')

  // The accounting is shown and adds up; the address keeps the choice.
  assert.match(await at('verdict').textContent(), /add up/)
  assert.doesNotMatch(await at('verdict').textContent(), /do not/)
  await page.reload()
  await until('the choice survives a reload', async () => (await at('reader').inputValue()) === chosen)

  // A reader that does not exist is explained, and does not stop the page.
  await page.goto(`${address}#feed=timeline&actor=not%20an%20actor`)
  await page.reload()
  await until('a wrong reader is explained', async () => (await at('note').textContent()).includes('not an actor'))
  const refusals = faults.splice(0)
  assert.ok(refusals.every((text) => text.includes('400')), `only the refusal itself is logged: ${refusals}`)
  await until('another reader can be chosen then', async () => {
    await at('another').click()
    await page.waitForTimeout(500) // until it has come, or it is another's turn
    return (await page.getByTestId('entry').count()) > 0
  })
  await until('the note goes away', async () => !(await at('note').isVisible()))

  // Phone width, in the dark: nothing is wider than the screen.
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.setViewportSize({ width: 390, height: 844 })
  await page.reload()
  await until('entries appear on a phone', async () => (await page.getByTestId('entry').count()) > 0)
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  assert.ok(wide <= 0, `the page is ${wide} pixels wider than the screen`)
  await page.screenshot({ path: join(folder, 'phone.png') })

  assert.deepEqual(faults, [], 'the console shows no errors')
  assert.deepEqual(elsewhere, [], 'nothing is asked of any other host')
  console.log(JSON.stringify({ shown, received: await number('received'), console_errors: faults.length }))
}

await finish(run, folder)
