// The page in a real browser, where there is a log.
//
//   node log.mjs <address> <folder for screenshots>
//
// Everybody may append to the log, and read every space but `secret`.
// Prints one JSON line and exits with 0 if everything held; else says what did not.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { open } from './browser.mjs'

const [address, folder] = process.argv.slice(2)
const { page, faults, elsewhere, at, until, finish } = await open(address)
const shown = async () => (await at('log').isVisible()) && (await at('log').textContent())

async function append(space, sequence) {
  const block = { actorId: 'ada', sequence, timestamp: 1, data: btoa('x'.repeat(2000)) }
  const response = await fetch(`${address}/log/${encodeURIComponent(space)}/append`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ requestId: sequence, blocks: [block] }),
  })
  assert.equal(response.status, 200)
}

finish(async () => {
  await page.goto(address)
  await append('notes', 1)
  await append('secret', 1)
  await until('the space is shown', async () => (await shown()) && (await shown()).includes('notes'))
  await append('notes', 2)
  const text = await until('it has grown', async () => (await shown()).includes('position 2, 1 feed, 5 KiB') && (await shown()))
  assert.ok(!text.includes('secret'), text)
  assert.ok(text.includes('others1'), text)
  assert.ok(!(await at('aside').isVisible()))
  await page.screenshot({ path: join(folder, 'log.png') })
  assert.deepEqual(faults, [])
  assert.deepEqual(elsewhere, [])
  console.log(JSON.stringify({ console_errors: faults.length }))
}, folder)
