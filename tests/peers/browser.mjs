// A real browser on a page of Feedmill.
//
//   const { page, at, until, ... } = await open(address)
//
// Collects what the console complains of and what is asked of any other host.
// Needs playwright-core beside it (tests/peers/install) and Chromium.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const executablePath = process.env.FEEDMILL_CHROMIUM ?? '/usr/bin/chromium'
const WAIT_MS = 150_000 // a loaded machine is slow, not wrong

export async function open(address) {
  if (!existsSync(executablePath)) {
    console.error(`no browser at ${executablePath}: apt-get install chromium, or set FEEDMILL_CHROMIUM`)
    process.exit(2)
  }
  const profile = mkdtempSync(join(tmpdir(), 'feedmill-browser-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    viewport: { width: 1280, height: 900 },
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
    ],
  })
  context.setDefaultTimeout(WAIT_MS)
  const [faults, elsewhere, asked] = [[], [], []]
  const page = context.pages()[0] ?? (await context.newPage())
  page.on('console', (message) => message.type() === 'error' && faults.push(message.text()))
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('request', (request) => {
    asked.push(request.url())
    if (!request.url().startsWith(address) && !request.url().startsWith('data:')) elsewhere.push(request.url())
  })
  const at = (name) => page.getByTestId(name)
  const number = async (name) => Number((await at(name).textContent()).replaceAll(/[^0-9.]/g, ''))

  // Waits until `look` gives something true, and returns it.
  async function until(what, look) {
    const end = Date.now() + WAIT_MS
    for (;;) {
      const seen = await look()
      if (seen) return seen
      assert.ok(Date.now() < end, `waited in vain until ${what}`)
      await new Promise((wake) => setTimeout(wake, 100))
    }
  }

  // Runs a script to its end and leaves the process: 0 if everything held.
  async function finish(run, folder) {
    let failed = false
    try {
      await run()
    } catch (error) {
      failed = true
      console.error(error.message ?? error)
      if (faults.length > 0) console.error('console:', faults)
      await page.screenshot({ path: join(folder, 'failed.png') }).catch(() => {})
    } finally {
      await context.close()
      rmSync(profile, { recursive: true, force: true })
    }
    process.exit(failed ? 1 : 0)
  }
  return { page, faults, elsewhere, asked, at, number, until, finish }
}
