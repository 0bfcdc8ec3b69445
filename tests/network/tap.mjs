// A real Tap on a real PDS, and Feedmill reading the Tap's channel.
//
//   TAP=<tap binary> node tap.mjs <feedmill binary> <lexicon folder> <folder for files>
//
// Records that were there before, and records written, edited and deleted by a
// real client, are in getFeed and listRecords as the PDS itself has them, also
// after Feedmill was killed; and the Tap is told of every message.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { TestNetworkNoAppView } from '@atproto/dev-env'
import { Mill, addsUp, freePort, serviceDid, until } from './mill.mjs'
import { POST, People, parts } from './people.mjs'

const [binary, lexicons, folder] = process.argv.slice(2)

const network = await TestNetworkNoAppView.create({
  pds: { port: await freePort(), hostname: 'localhost' },
  plc: { port: await freePort() },
})
const people = new People(network.pds)

class Tap {
  constructor(port) {
    this.port = port
    this.log = ''
  }

  async start() {
    const env = {
      ...process.env,
      TAP_BIND: `127.0.0.1:${this.port}`,
      TAP_DATABASE_URL: `sqlite://${join(folder, 'tap.db')}`,
      TAP_RELAY_URL: network.pds.url,
      TAP_PLC_URL: network.plc.url,
      TAP_FULL_NETWORK: 'true',
    }
    this.child = spawn(process.env.TAP, ['run'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on('data', (part) => (this.log += part))
    this.gone = once(this.child, 'exit')
    await until('the Tap answers', async () => (await fetch(this.at('health'))).ok)
  }

  at(path) {
    return `http://127.0.0.1:${this.port}/${path}`
  }

  // Messages that nobody has acknowledged.
  async waiting() {
    return (await (await fetch(this.at('stats/outbox-buffer'))).json()).outbox_buffer
  }

  async stop() {
    this.child.kill('SIGKILL')
    await this.gone
  }
}

const tap = new Tap(await freePort())
let mill

async function life() {
  const first = await people.write('bob', people.post('the first'))
  await people.write('carol', people.post('of carol'))
  await people.follow('alice', 'bob')
  await tap.start()
  await mill.start()
  await people.compare(mill, 'what was there before the Tap')

  const second = await people.write('bob', people.post('the second'))
  for (let n = 0; n < 5; n++) await people.write('bob', people.post(`number ${n}`))
  await people.compare(mill, 'new posts')

  const edited = { ...people.post('the second, edited'), createdAt: new Date(Date.UTC(2026, 0, 1, 0, 2)).toISOString() }
  await people.edit('bob', second.uri, edited)
  await people.compare(mill, 'an edit')
  await people.erase('bob', first.uri)
  await people.compare(mill, 'a delete')

  const writes = ['one', 'two'].map((text) => ({
    $type: 'com.atproto.repo.applyWrites#create', collection: POST, value: people.post(text),
  }))
  writes.push({ $type: 'com.atproto.repo.applyWrites#delete', ...parts(second.uri) })
  await people.repo('bob').applyWrites({ repo: people.did('bob'), writes })
  await people.compare(mill, 'several writes in one commit')

  const { uri } = await people.follow('alice', 'carol')
  await people.compare(mill, 'a follow')
  await people.erase('alice', uri)
  await people.compare(mill, 'an unfollow')
  await people.follow('alice', 'carol')
}

async function standing() {
  await people.agents.bob.com.atproto.server.deactivateAccount({})
  people.hidden.add('bob')
  await people.compare(mill, 'a deactivation')
  await people.agents.bob.com.atproto.server.activateAccount()
  people.hidden.delete('bob')
  await people.compare(mill, 'an activation')
}

async function restarts() {
  await mill.stop('SIGKILL')
  for (let n = 0; n < 4; n++) await people.write('carol', people.post(`unseen ${n}`))
  await mill.start()
  await people.compare(mill, 'Feedmill killed, and posts meanwhile')
  await tap.stop()
  for (let n = 0; n < 4; n++) await people.write('carol', people.post(`unheard ${n}`))
  await tap.start()
  await people.compare(mill, 'the Tap killed, and posts meanwhile')
  await until('every message is acknowledged', async () => (await tap.waiting()) === 0)
}

let status = 0
try {
  for (const name of ['alice', 'bob', 'carol']) await people.join(name)
  const port = await freePort()
  const did = await serviceDid(network.plc.url, `http://localhost:${port}`)
  const publishAs = `at://${people.did('alice')}/app.bsky.feed.generator/mine`
  const source = `tap = "ws://127.0.0.1:${tap.port}"`
  mill = new Mill({ binary, lexicons, folder, port, did, directory: network.plc.url, source, publishAs })
  await life()
  await standing()
  await restarts()
  const { accounting, dead_letters } = await mill.status()
  addsUp(accounting)
  assert.equal(dead_letters, 0, 'nothing of a real Tap is refused')
  await mill.stop()
  console.log(JSON.stringify({ ...people.found, accounting }))
} catch (error) {
  console.error(error)
  console.error(mill?.log.split('\n').slice(-20).join('\n'))
  console.error(tap.log.split('\n').slice(-20).join('\n'))
  mill?.child?.kill('SIGKILL')
  status = 1
}
tap.child?.kill('SIGKILL')
await network.close().catch((error) => console.error(error))
process.exit(status)
