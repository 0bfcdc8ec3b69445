// The browser's replica in Node, with servers of its own: one that strangers may not use, and one
// that is brought back from a copy. Usage: node servers.run.js <feedmill>
import "fake-indexeddb/auto"
import { WebSocket } from "ws"
import { LogReplica } from "feedmill-log"
import { serveLog } from "./served.js"

const [binary] = process.argv.slice(2)
let failed = 0
const check = (what, holds) => {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`)
  failed += holds ? 0 : 1
}
const until = async (what, done) => {
  for (let tries = 0; tries < 400; tries++) {
    if (await done()) return check(what, true)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  check(what, false)
}
const append = async (url, blocks, headers = {}) => {
  const options = { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify({ requestId: 1, blocks }) }
  const answer = await (await fetch(`${url}/log/notes/append`, options)).json()
  if (answer.error) throw new Error(answer.message)
}
const block = (feedId, sequence) => ({ feedId, actorId: "joe", sequence, timestamp: 1, data: btoa(String(sequence)) })

// A token is shown in every request, and in the handshake of the socket.
async function token() {
  const server = await serveLog(binary, [], { FEEDMILL_LOG_TOKEN: "secret" })
  const { url } = server
  let [trouble, hints, accepted] = [undefined, 0, undefined]
  class Listening extends WebSocket {
    constructor(...address) {
      super(...address)
      this.addEventListener("open", () => (accepted = this.protocol))
      this.addEventListener("message", ({ data }) => (hints += data.includes("advanced") ? 1 : 0))
    }
  }
  const stranger = await LogReplica.open({ url, space: "notes", name: "stranger", WebSocket })
  stranger.addEventListener("trouble", ({ error }) => (trouble = error))
  stranger.sync()
  await until("without a token nothing is answered", () => trouble?.code === "unauthorized")
  const log = await LogReplica.open({ url, space: "notes", name: "known", token: "secret", WebSocket: Listening })
  await log.append("f", "mine")
  await until("with one a block is sent", async () => (await log.status()).waiting === 0)
  await until("the socket is let in", () => accepted === "feedmill.log")
  const before = hints
  await append(url, [block("g", 1)], { authorization: "Bearer secret" })
  await until("and tells what comes", async () => hints > before && (await log.read()).length === 2)
  await Promise.all([stranger, log].map((log) => log.close()))
  await server.end()
}

// A replica of the tail holds its part after the server was brought back from a copy.
async function tail() {
  const server = await serveLog(binary, ['read = "anyone"', 'append = "anyone"', 'create = "anyone"'])
  const { url } = server
  for (let done = 0; done < 3000; done += 1000) {
    await append(url, Array.from({ length: 1000 }, (_, at) => block("f", done + at + 1)))
  }
  const log = await LogReplica.open({ url, space: "notes", name: "tail", tail: true, WebSocket })
  await until("the tail has begun", async () => (await log.status()).epoch !== undefined)
  await append(url, Array.from({ length: 10 }, (_, at) => block("f", 3001 + at)))
  await until("ten blocks came", async () => (await log.read()).length === 10)
  await server.copy()
  await append(url, [block("f", 3011)])
  log.sync()
  await until("and one more", async () => (await log.read()).length === 11)
  await server.rollBack()
  await append(url, [block("g", 1)])
  log.sync()
  const whole = async () => {
    const { waiting, after } = await log.status()
    return waiting === 0 && after === 3012 && (await log.read()).filter(({ position }) => position !== undefined)
  }
  await until("what the server lost is there again", async () => Boolean(await whole()))
  const held = (await whole()) || []
  check(`the part of ten is no larger for it: ${held.length} with the two that came since`, held.length === 12)
  await log.close()
  await server.end()
}

await token()
await tail()
process.exit(failed ? 1 : 0)
