// tests/log/replica.test.js in Node. Usage: node node.js <base URL>
import "fake-indexeddb/auto"
import { WebSocket } from "ws"
import { writeFile } from "node:fs/promises"
import { testReplica } from "./replica.test.js"

const url = process.argv[2]
globalThis.WebSocket ??= WebSocket
// The very file the server serves.
const source = await (await fetch(`${url}/log.js`)).text()
await writeFile(new URL("./log.mjs", import.meta.url), source)
const log = await import("./log.mjs")

let failed = 0
await testReplica({
  log,
  url,
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  check: (what, holds) => {
    console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
    failed += holds ? 0 : 1
  },
})
process.exit(failed ? 1 : 0)
