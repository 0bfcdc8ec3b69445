// A real PDS, a real client, and Feedmill reading the PDS over subscribeRepos.
//
//   node pds.mjs <feedmill binary> <lexicon folder> <folder for files>
//
// Accounts are made; records are written, edited and deleted; people are
// followed, unfollowed, deactivated and taken down. After each step the feeds
// and lists of Feedmill must be what the PDS itself says, put together here in
// the plainest way. Then the PDS vouches for a reader, with a token that the
// reader asked for and with one that it makes itself when it proxies.

import assert from 'node:assert/strict'
import { AtpAgent } from '@atproto/api'
import { TestNetworkNoAppView } from '@atproto/dev-env'
import { Mill, addsUp, freePort, serviceDid, until } from './mill.mjs'

const [binary, lexicons, folder] = process.argv.slice(2)
const POST = 'app.bsky.feed.post'
const FOLLOW = 'app.bsky.graph.follow'
const SKELETON = 'app.bsky.feed.getFeedSkeleton'
const found = { steps: 0, compared: 0 }

const network = await TestNetworkNoAppView.create({
  pds: { port: await freePort(), hostname: 'localhost' },
  plc: { port: await freePort() },
})
const { pds } = network
const people = {}
const hidden = new Set()

async function join(name) {
  const agent = new AtpAgent({ service: pds.url })
  await agent.createAccount({ email: `${name}@example.com`, handle: `${name}.test`, password: 'a long password' })
  people[name] = agent
}

let minute = 0
function post(text) {
  const createdAt = new Date(Date.UTC(2026, 0, 1, 0, minute++)).toISOString()
  return { $type: POST, text, createdAt, langs: ['en'] }
}
const write = async (name, record) =>
  (await people[name].com.atproto.repo.createRecord({ repo: people[name].did, collection: record.$type, record })).data
const follow = (name, other) =>
  write(name, { $type: FOLLOW, subject: people[other].did, createdAt: new Date().toISOString() })
const parts = (uri) => ({ collection: uri.split('/').at(-2), rkey: uri.split('/').at(-1) })
const erase = (name, uri) => people[name].com.atproto.repo.deleteRecord({ repo: people[name].did, ...parts(uri) })

// What the PDS says that somebody has, by an administrator's right: the hidden have it too.
async function listed(name, collection) {
  const records = []
  let cursor
  do {
    const { data } = await people[name].com.atproto.repo.listRecords({ repo: people[name].did, collection, limit: 100, cursor })
    records.push(...data.records)
    cursor = data.cursor
  } while (cursor)
  return records
}

const newestFirst = (a, b) =>
  a.value.createdAt < b.value.createdAt ? 1 : a.value.createdAt > b.value.createdAt ? -1 : a.uri < b.uri ? 1 : -1
const shown = (records) => records.map(({ uri, cid, value, record }) => ({ uri, cid, text: (value ?? record).text }))

async function expectedFeed(name) {
  const followed = new Set((await listed(name, FOLLOW)).map((record) => record.value.subject))
  const seen = Object.keys(people).filter((other) => followed.has(people[other].did) && !hidden.has(other))
  const posts = await Promise.all(seen.map((other) => listed(other, POST)))
  return shown(posts.flat().sort(newestFirst))
}

let mill
async function compare(step) {
  for (const name of Object.keys(people).filter((name) => !hidden.has(name))) {
    const feed = await expectedFeed(name)
    const list = shown((await listed(name, POST)).sort(newestFirst))
    const actor = people[name].did
    const same = async (what, method, params, expected) => {
      let is
      await until(`${step}: ${what} of ${name} is ${JSON.stringify(expected)}`, async () => {
        is = shown(await mill.whole(method, params))
        return JSON.stringify(is) === JSON.stringify(expected) || Promise.reject(new Error(`it is ${JSON.stringify(is)}`))
      })
      found.compared += is.length
    }
    await same('the feed', 'com.example.getFeed', { feed: 'timeline', actor }, feed)
    await same('the list', 'com.example.post.listRecords', { actor }, list)
  }
  for (const name of hidden) {
    await until(`${step}: nothing of ${name} is listed`, async () => {
      const { status, body } = await mill.ask('com.example.post.listRecords', { actor: people[name].did })
      return status !== 200 || body.records.length === 0
    })
  }
  found.steps += 1
}

async function life() {
  const first = await write('bob', post('the first'))
  await write('carol', post('of carol'))
  await follow('alice', 'bob')
  await mill.start()
  await compare('what was there before Feedmill')

  const second = await write('bob', post('the second'))
  for (let n = 0; n < 5; n++) await write('bob', post(`number ${n}`))
  await compare('new posts')

  const edited = { ...post('the second, edited'), createdAt: new Date(Date.UTC(2026, 0, 1, 0, 2)).toISOString() }
  await people.bob.com.atproto.repo.putRecord({ repo: people.bob.did, ...parts(second.uri), record: edited })
  await compare('an edit')
  const { body } = await mill.ask('com.example.post.getRecord', { uri: second.uri })
  assert.equal(body.value.text, 'the second, edited')

  await erase('bob', first.uri)
  await compare('a delete')
  assert.equal((await mill.ask('com.example.post.getRecord', { uri: first.uri })).status, 404)

  const writes = ['one', 'two'].map((text) => ({ $type: 'com.atproto.repo.applyWrites#create', collection: POST, value: post(text) }))
  writes.push({ $type: 'com.atproto.repo.applyWrites#delete', ...parts(second.uri) })
  await people.bob.com.atproto.repo.applyWrites({ repo: people.bob.did, writes })
  await compare('several writes in one commit')

  const { uri } = await follow('alice', 'carol')
  await follow('carol', 'alice')
  await compare('follows')
  await erase('alice', uri)
  await compare('an unfollow')
  await follow('alice', 'carol')
  await compare('following again')
}

async function standing() {
  await people.bob.com.atproto.server.deactivateAccount({})
  hidden.add('bob')
  await compare('a deactivation')
  await people.bob.com.atproto.server.activateAccount()
  hidden.delete('bob')
  await compare('an activation')

  const takedown = async (applied) => {
    const subject = { $type: 'com.atproto.admin.defs#repoRef', did: people.carol.did }
    const options = { encoding: 'application/json', headers: pds.adminAuthHeaders() }
    await people.alice.com.atproto.admin.updateSubjectStatus({ subject, takedown: { applied } }, options)
  }
  await takedown(true)
  hidden.add('carol')
  await compare('a takedown')
  await takedown(false)
  hidden.delete('carol')
  await compare('a takedown taken back')

  await people.alice.com.atproto.identity.updateHandle({ handle: 'alison.test' })
  await until('the new handle is known', async () => {
    const { status, body } = await mill.ask('com.example.getFeed', { feed: 'timeline', actor: 'alison.test' })
    return status === 200 && body.records.length > 0
  })
}

async function restart() {
  await mill.stop('SIGKILL')
  for (let n = 0; n < 4; n++) await write('carol', post(`unseen ${n}`))
  await mill.start()
  await compare('a kill, posts meanwhile, and a restart')
}

// The same entries, whoever vouches for the reader.
async function vouched(did, feed) {
  const expected = (await expectedFeed('alice')).map((record) => ({ post: record.uri }))
  const token = async (lxm) => (await people.alice.com.atproto.server.getServiceAuth({ aud: did, lxm })).data.token
  const asked = await mill.ask(SKELETON, { feed }, { authorization: `Bearer ${await token(SKELETON)}` })
  assert.deepEqual(asked.body.feed, expected, JSON.stringify(asked))
  assert.ok(expected.length > 5)

  const other = await mill.ask(SKELETON, { feed }, { authorization: `Bearer ${await token('app.bsky.feed.getFeed')}` })
  assert.equal(other.status, 401, 'a token for another method')
  assert.deepEqual((await mill.ask(SKELETON, { feed })).body.feed, [], 'nobody follows nobody')

  const headers = { authorization: `Bearer ${people.alice.session.accessJwt}`, 'atproto-proxy': `${did}#bsky_fg` }
  const proxied = await fetch(`${pds.url}/xrpc/${SKELETON}?${new URLSearchParams({ feed })}`, { headers })
  const body = await proxied.json()
  assert.equal(proxied.status, 200, JSON.stringify(body))
  assert.deepEqual(body.feed, expected, 'through the PDS')
  found.vouched = expected.length
}

let status = 0
try {
  for (const name of ['alice', 'bob', 'carol']) await join(name)
  const port = await freePort()
  const did = await serviceDid(network.plc.url, `http://localhost:${port}`)
  const feed = `at://${people.alice.did}/app.bsky.feed.generator/mine`
  const relay = pds.url.replace('http', 'ws')
  mill = new Mill({ binary, lexicons, folder, port, did, directory: network.plc.url, relay, publishAs: feed })
  await life()
  await standing()
  await restart()
  await vouched(did, feed)
  const { accounting, dead_letters } = await mill.status()
  addsUp(accounting)
  assert.equal(dead_letters, 0, 'nothing of a real PDS is refused')
  await mill.stop()
  console.log(JSON.stringify({ ...found, accounting }))
} catch (error) {
  console.error(error)
  console.error(mill?.log.split('\n').slice(-30).join('\n'))
  mill?.child?.kill('SIGKILL')
  status = 1
}
await network.close().catch((error) => console.error(error))
process.exit(status)
