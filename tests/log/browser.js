// tests/log/replica.test.js in headless Chromium. Usage: node browser.js <base URL>
import { chromium } from "playwright-core"
import { readFile } from "node:fs/promises"

const url = process.argv[2]
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium"
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
const browser = await chromium.launch({ executablePath, args })
const page = await (await browser.newContext()).newPage()
let failed = 0
const check = (what, holds) => {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  failed += holds ? 0 : 1
}
await page.exposeFunction("check", check)
await page.goto(`${url}/log.js`)

const source = await readFile(new URL("./replica.test.js", import.meta.url), "utf8")
await page.evaluate(async ({ source, url }) => {
  const { testReplica } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })))
  const log = await import("/log.js")
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
  await testReplica({ log, url, check: window.check, sleep })
}, { source, url })

// The page goes away without a goodbye; what was written is still there.
const space = `reload ${Date.now()}`
const read = (options) =>
  page.evaluate(async ({ space, write }) => {
    const { LogReplica } = await import("/log.js")
    const log = await LogReplica.open({ space, actorId: "ada", name: space })
    if (write) await log.append("f", write)
    return (await log.read()).map((block) => new TextDecoder().decode(block.data)).join(" ")
  }, options)
await read({ space, write: "before" })
await page.reload()
check("a page that is reloaded finds its blocks", (await read({ space })) === "before")
await page.reload()
check("and goes on writing behind them", (await read({ space, write: "after" })) === "before after")

await browser.close()
process.exit(failed ? 1 : 0)
