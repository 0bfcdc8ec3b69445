// tests/log/model.js in headless Chromium, with a server that it can roll back.
// Usage: node model.run.js <feedmill> [<first seed> [<seeds> [<steps>]]]
import { chromium } from "playwright-core"
import { spawn } from "node:child_process"
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

const [binary, first = "1", seeds = "3", steps = "120"] = process.argv.slice(2)
const folder = await mkdtemp(join(tmpdir(), "feedmill-model-"))
const port = await new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address()
    server.close(() => resolve(port))
  })
})
const url = `http://127.0.0.1:${port}`
await writeFile(
  join(folder, "feedmill.toml"),
  `namespace = "com.example"
[store]
url = "sqlite::memory:"
[log]
file = "log.db"
read = "anyone"
append = "anyone"
create = "anyone"
block_bytes_max = 2000
batch_bytes_max = 6000
[serve]
bind = "127.0.0.1:${port}"
rate_max = 1000000
`
)

let server
async function start() {
  server = spawn(binary, ["serve", join(folder, "feedmill.toml")], { cwd: folder, stdio: ["ignore", "pipe", "ignore"] })
  for await (const text of server.stdout) if (String(text).includes("serving on")) return
  throw new Error("the server does not start")
}
async function stop() {
  const ended = new Promise((resolve) => server.once("exit", resolve))
  server.kill("SIGKILL")
  await ended
}
/** The names of the log's files in a folder. */
async function files(at) {
  return (await readdir(at)).filter((name) => name.startsWith("log.db"))
}
async function move(from, to) {
  for (const name of await files(to)) await rm(join(to, name))
  for (const name of await files(from)) await cp(join(from, name), join(to, name))
}
const copy = await mkdtemp(join(tmpdir(), "feedmill-model-copy-"))
const disasters = {
  copy: () => move(folder, copy),
  rollBack: () => move(copy, folder),
  replace: async () => {
    for (const name of await files(folder)) await rm(join(folder, name))
  },
}
async function disaster(kind) {
  await stop()
  await disasters[kind]()
  await start()
}

let failed = 0
const check = (what, holds) => {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  failed += holds ? 0 : 1
}
await start()
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
        const { LogReplica } = await import("/log.js")
        await playModel({ LogReplica, url, seed, steps, check: window.check, disaster: window.disaster })
      },
      { source, url, seed, steps: Number(steps) }
    )
  }
} finally {
  await browser.close()
  await stop()
  await rm(folder, { recursive: true })
  await rm(copy, { recursive: true })
}
process.exit(failed ? 1 : 0)
