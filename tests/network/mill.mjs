// Feedmill beside the official network: started, asked, killed, started again.
//
// In:    the binary, a folder for its files, and where PDS and directory are.
// Out:   answers of its XRPC methods, and the place where waiting gave up.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { Secp256k1Keypair } from '@atproto/crypto'
import * as plc from '@did-plc/lib'

const WAIT_MS = 60_000 // a loaded machine is slow, not wrong

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

// Waits until `look` gives something true, and returns it.
export async function until(what, look) {
  const end = Date.now() + WAIT_MS
  let last
  for (;;) {
    try {
      const seen = await look()
      if (seen) return seen
      last = seen
    } catch (error) {
      last = error
    }
    assert.ok(Date.now() < end, `waited in vain until ${what}: ${last?.message ?? last}`)
    await new Promise((wake) => setTimeout(wake, 50))
  }
}

// A did:plc whose feed generator is at `endpoint`: who Feedmill is to the network.
export async function serviceDid(directory, endpoint) {
  const key = await Secp256k1Keypair.create()
  const operation = await plc.signOperation(
    {
      type: 'plc_operation',
      verificationMethods: { atproto: key.did() },
      rotationKeys: [key.did()],
      alsoKnownAs: [],
      services: { bsky_fg: { type: 'BskyFeedGenerator', endpoint } },
      prev: null,
    },
    key,
  )
  const did = await plc.didForCreateOp(operation)
  await new plc.Client(directory).sendOperation(did, operation)
  return did
}

export class Mill {
  constructor({ binary, lexicons, folder, port, did, directory, source, publishAs }) {
    this.binary = binary
    this.url = `http://127.0.0.1:${port}`
    this.log = ''
    this.config = join(folder, 'feedmill.toml')
    writeFileSync(this.config, `
namespace = "com.example"
lexicons = [${JSON.stringify(lexicons)}]
[collections.follow]
collection = "app.bsky.graph.follow"
[collections.post]
collection = "app.bsky.feed.post"
[feeds.timeline]
follow = "follow"
targets = ["post"]
publish_as = "${publishAs}"
[[source]]
name = "pds"
${source}
[store]
url = "sqlite://${join(folder, 'store.db')}"
[intake]
plc_url = "${directory}"
verify = "full"
reconnect_ms = 50
[serve]
bind = "127.0.0.1:${port}"
public_url = "http://localhost:${port}"
service_did = "${did}"
`)
  }

  async start() {
    this.child = spawn(this.binary, ['run', this.config], { stdio: ['ignore', 'ignore', 'pipe'] })
    this.child.stderr.on('data', (part) => (this.log += part))
    this.gone = once(this.child, 'exit')
    await until('feedmill serves', async () => (await fetch(`${this.url}/xrpc/_health`)).ok)
  }

  async stop(signal = 'SIGTERM') {
    this.child.kill(signal)
    const [code] = await this.gone
    if (signal === 'SIGTERM') assert.equal(code, 0, 'it ends well when asked to')
  }

  async ask(method, params = {}, headers = {}) {
    const response = await fetch(`${this.url}/xrpc/${method}?${new URLSearchParams(params)}`, { headers })
    return { status: response.status, body: await response.json() }
  }

  // A whole list or feed, page by page.
  async whole(method, params) {
    const records = []
    let cursor
    do {
      const { status, body } = await this.ask(method, { ...params, limit: 2, ...(cursor && { cursor }) })
      assert.equal(status, 200, JSON.stringify(body))
      records.push(...body.records)
      cursor = body.cursor
    } while (cursor)
    return records
  }

  async status() {
    return (await fetch(`${this.url}/status`)).json()
  }
}

export function addsUp(accounting) {
  const { received, ...outcomes } = accounting
  const sum = Object.values(outcomes).reduce((a, b) => a + b, 0)
  assert.equal(sum, received, `every unit is counted once: ${JSON.stringify(accounting)}`)
}
