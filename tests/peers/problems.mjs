// The page in a real browser while something is wrong with the process.
//
//   node problems.mjs <address> <folder>
//
// Begins while the process is on standby. Says in <folder> what it has seen, in files named
// `standby` and `live`; whoever runs it changes the process after each: first it may
// start, then the store stops answering.
// Prints one JSON line and exits with 0 if everything held; else says what did not.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { open } from './browser.mjs'

const [address, folder] = process.argv.slice(2)
const { page, faults, at, until, finish } = await open(address)
const text = (name) => at(name).textContent()
const seen = (name) => writeFileSync(join(folder, name), '')

// The console names each answer that is not good; anything else is a fault of the page.
function onlyRefusals() {
  const others = faults.splice(0).filter((fault) => !/status of (500|503)/.test(fault))
  assert.deepEqual(others, [])
}

async function standby() {
  await until('it says that the process waits', async () => (await text('state')) === 'standby')
  assert.match(await text('problems'), /^standby: another process ingests into this store/)
  assert.match(await text('note'), /^standby: another process ingests/)
  onlyRefusals()
  await page.screenshot({ path: join(folder, 'standby.png') })
  seen('standby')
}

async function live() {
  await until('the process is ready', async () => (await text('records')) === '1')
  assert.ok(!(await at('problems').isVisible()), await text('problems'))
  await until('the trouble is over', async () => !(await at('note').isVisible()))
  onlyRefusals()
  seen('live')
}

async function failing() {
  await until('the store does not answer', async () => (await text('problems')).includes('store_error: '))
  assert.equal(await text('records'), '–')
  assert.equal(await text('verdict'), 'The store does not answer.')
  assert.ok(!(await text('note')).includes('undefined'), await text('note'))
  onlyRefusals()
  await page.screenshot({ path: join(folder, 'failing.png') })
}

await finish(async () => {
  await page.goto(address)
  await standby()
  await live()
  await failing()
  console.log(JSON.stringify({ problems: await text('problems') }))
}, folder)
