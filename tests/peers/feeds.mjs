// The page in a real browser, on feeds that are not plain: merged, direct, private.
//
//   node feeds.mjs <address> <folder for screenshots> <facts as JSON>
//
// facts: guest (a reader of the merged feed), own (a reader's token of the direct
// API), token (one of service-auth for getFeed).
// Prints one JSON line and exits with 0 if everything held; else says what did not.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { open } from './browser.mjs'

const [address, folder, given] = process.argv.slice(2)
const facts = JSON.parse(given)
const { page, faults, elsewhere, asked, at, until, finish } = await open(address)
const entries = () => page.getByTestId('entry').evaluateAll((all) => all.map((each) => each.textContent))
const shows = (words) => until(`an entry says ${words}`, async () => (await entries()).some((text) => text.includes(words)))
const end = (words) => until(`the end says ${words}`, async () => (await at('end').textContent()).includes(words))
const feedCalls = () => asked.filter((url) => url.includes('/xrpc/')).length

// Looks happen each second; several of them pass.
async function looks(count) {
  const before = asked.filter((url) => url.endsWith('/status')).length
  await until('time passes', async () => asked.filter((url) => url.endsWith('/status')).length >= before + count)
}

// Only refusals are logged, and no more of them than there were.
function refusals(status, count) {
  const logged = faults.splice(0)
  assert.equal(logged.length, count, `${logged}`)
  assert.ok(logged.every((text) => text.includes(status)), `${logged}`)
}

async function enter(token) {
  await at('token').fill(token)
  await at('token').press('Enter')
}

async function merged() {
  await at('feed').selectOption('doings')
  await at('reader').selectOption(facts.guest)
  await shows('A card about birds')
  const [entry] = await entries()
  for (const words of ['Reading list', 'COLLECTED', '2 records']) {
    assert.ok(entry.includes(words), `${words} is not in ${entry}`)
  }
  assert.ok((await at('call').textContent()).includes('getFollowingFeed'))
  await looks(3)
  assert.equal((await entries()).length, 2, 'nothing comes twice')
  assert.ok(!(await at('note').isVisible()))
  await page.screenshot({ path: join(folder, 'merged.png') })
  assert.deepEqual(faults, [])
}

async function direct() {
  await at('feed').selectOption('photos')
  await end('enter a token')
  const calls = feedCalls()
  await looks(3)
  assert.equal(feedCalls(), calls, 'nothing is asked for without a token')
  await page.screenshot({ path: join(folder, 'token.png') })
  // A wrong token is refused once, and not tried again.
  await enter('guess')
  await until('the refusal is shown', async () => (await at('note').textContent()).startsWith('BadJwt: '))
  await looks(3)
  refusals('401', 1)
  // A reader's own token names its reader.
  await enter(facts.own)
  await shows('a photo of a bird')
  await looks(2)
  assert.equal((await entries()).length, 1)
  assert.ok(!(await at('note').isVisible()))
  assert.equal(await at('token').inputValue(), '', 'the token is not left in sight')
  assert.ok(!page.url().includes(facts.own))
  assert.deepEqual(faults, [])
}

async function service() {
  await at('feed').selectOption('timeline')
  await end('enter a token')
  await enter(facts.token)
  await shows('a private post')
  // Such a token is good for one request: nothing more is asked for.
  const calls = feedCalls()
  await looks(3)
  assert.equal(feedCalls(), calls)
  assert.deepEqual(faults, [])
}

async function run() {
  await page.goto(`${address}#feed=doings&actor=${facts.guest}`)
  await until('a feed is chosen', async () => (await at('feed').inputValue()) !== '')
  await merged()
  await direct()
  await service()
  assert.deepEqual(elsewhere, [], 'nothing is asked of any other host')
  console.log(JSON.stringify({ console_errors: faults.length }))
}

await finish(run, folder)
