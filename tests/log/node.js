// tests/log/replica.test.js in Node, with the package as npm packs it. Usage: node node.js <base URL>
import "fake-indexeddb/auto"
import { WebSocket } from "ws"
import { readFile } from "node:fs/promises"
import { fileURLToPath } from "node:url"
import * as log from "feedmill-log"
import { testReplica } from "./replica.test.js"

const url = process.argv[2]
globalThis.WebSocket ??= WebSocket

let failed = 0
const check = (what, holds) => {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  failed += holds ? 0 : 1
}
const served = await (await fetch(`${url}/log.js`)).text()
const packed = await readFile(fileURLToPath(import.meta.resolve("feedmill-log")), "utf8")
check("the package holds the file that the server serves", served === packed)
await testReplica({ log, url, check, sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)) })
process.exit(failed ? 1 : 0)
