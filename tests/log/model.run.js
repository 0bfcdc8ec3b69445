// tests/log/model.js in headless Chromium, with a server that it can roll back.
// Usage: node model.run.js <feedmill> [<first seed> [<seeds> [<steps>]]]
import { chromium } from "playwright-core"
import { readFile } from "node:fs/promises"
import { serveLog } from "./served.js"

const [binary, first = "1", seeds = "3", steps = "120"] = process.argv.slice(2)
const open = ['read = "anyone"', 'append = "anyone"', 'create = "anyone"', "block_bytes_max = 2000", "batch_bytes_max = 6000"]
const server = await serveLog(binary, open)
const { url } = server
const disasters = { copy: server.copy, rollBack: server.rollBack, replace: server.lose }
const disaster = (kind) => disasters[kind]()

let failed = 0
const check = (what, holds) => {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  failed += holds ? 0 : 1
}
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium"
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
const browser = await chromium.launch({ executablePath, args })
try {
  const page = await (await browser.newContext()).newPage()
  page.setDefaultTimeout(0)
  await page.exposeFunction("check", check)
  await page.exposeFunction("disaster", disaster)
  await page.goto(`${url}/log.js`)
  const source = await readFile(new URL("./model.js", import.meta.url), "utf8")
  for (let seed = Number(first); seed < Number(first) + Number(seeds); seed++) {
    await page.evaluate(
      async ({ source, url, seed, steps }) => {
        const { playModel } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })))
        const { LogReplica, newKey } = await import("/log.js")
        await playModel({ LogReplica, newKey, url, seed, steps, check: window.check, disaster: window.disaster })
      },
      { source, url, seed, steps: Number(steps) }
    )
  }
} finally {
  await browser.close()
  await server.end()
}
process.exit(failed ? 1 : 0)
