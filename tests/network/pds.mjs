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
import { TestNetworkNoAppView } from '@atproto/dev-env'
import { Mill, addsUp, freePort, serviceDid, until } from './mill.mjs'
import { POST, People, parts } from './people.mjs'

const [binary, lexicons, folder] = process.argv.slice(2)
const SKELETON = 'app.bsky.feed.getFeedSkeleton'

const network = await TestNetworkNoAppView.create({
  pds: { port: await freePort(), hostname: 'localhost' },
  plc: { port: await freePort() },
})
const { pds } = network
const people = new People(pds)
const { agents, found, hidden } = people

let mill
const compare = (step) => people.compare(mill, step)

async function life() {
  const first = await people.write('bob', people.post('the first'))
  await people.write('carol', people.post('of carol'))
  await people.follow('alice', 'bob')
  await mill.start()
  await compare('what was there before Feedmill')

  const second = await people.write('bob', people.post('the second'))
  for (let n = 0; n < 5; n++) await people.write('bob', people.post(`number ${n}`))
  await compare('new posts')

  const edited = { ...people.post('the second, edited'), createdAt: new Date(Date.UTC(2026, 0, 1, 0, 2)).toISOString() }
  await people.edit('bob', second.uri, edited)
  await compare('an edit')
  const { body } = await mill.ask('com.example.post.getRecord', { uri: second.uri })
  assert.equal(body.value.text, 'the second, edited')

  await people.erase('bob', first.uri)
  await compare('a delete')
  assert.equal((await mill.ask('com.example.post.getRecord', { uri: first.uri })).status, 404)

  const writes = ['one', 'two'].map((text) => ({ $type: 'com.atproto.repo.applyWrites#create', collection: POST, value: people.post(text) }))
  writes.push({ $type: 'com.atproto.repo.applyWrites#delete', ...parts(second.uri) })
  await agents.bob.com.atproto.repo.applyWrites({ repo: agents.bob.did, writes })
  await compare('several writes in one commit')

  const { uri } = await people.follow('alice', 'carol')
  await people.follow('carol', 'alice')
  await compare('follows')
  await people.erase('alice', uri)
  await compare('an unfollow')
  await people.follow('alice', 'carol')
  await compare('following again')
}

async function standing() {
  await agents.bob.com.atproto.server.deactivateAccount({})
  hidden.add('bob')
  await compare('a deactivation')
  await agents.bob.com.atproto.server.activateAccount()
  hidden.delete('bob')
  await compare('an activation')

  const takedown = async (applied) => {
    const subject = { $type: 'com.atproto.admin.defs#repoRef', did: agents.carol.did }
    const options = { encoding: 'application/json', headers: pds.adminAuthHeaders() }
    await agents.alice.com.atproto.admin.updateSubjectStatus({ subject, takedown: { applied } }, options)
  }
  await takedown(true)
  hidden.add('carol')
  await compare('a takedown')
  await takedown(false)
  hidden.delete('carol')
  await compare('a takedown taken back')

  await agents.alice.com.atproto.identity.updateHandle({ handle: 'alison.test' })
  await until('the new handle is known', async () => {
    const { status, body } = await mill.ask('com.example.getFeed', { feed: 'timeline', actor: 'alison.test' })
    return status === 200 && body.records.length > 0
  })
}

async function restart() {
  await mill.stop('SIGKILL')
  for (let n = 0; n < 4; n++) await people.write('carol', people.post(`unseen ${n}`))
  await mill.start()
  await compare('a kill, posts meanwhile, and a restart')
}

// The same entries, whoever vouches for the reader.
async function vouched(did, feed) {
  const expected = (await people.expectedFeed('alice')).map((record) => ({ post: record.uri }))
  const token = async (lxm) => (await agents.alice.com.atproto.server.getServiceAuth({ aud: did, lxm })).data.token
  const asked = await mill.ask(SKELETON, { feed }, { authorization: `Bearer ${await token(SKELETON)}` })
  assert.deepEqual(asked.body.feed, expected, JSON.stringify(asked))
  assert.ok(expected.length > 5)

  const other = await mill.ask(SKELETON, { feed }, { authorization: `Bearer ${await token('app.bsky.feed.getFeed')}` })
  assert.equal(other.status, 401, 'a token for another method')
  assert.deepEqual((await mill.ask(SKELETON, { feed })).body.feed, [], 'nobody follows nobody')

  const headers = { authorization: `Bearer ${agents.alice.session.accessJwt}`, 'atproto-proxy': `${did}#bsky_fg` }
  const proxied = await fetch(`${pds.url}/xrpc/${SKELETON}?${new URLSearchParams({ feed })}`, { headers })
  const body = await proxied.json()
  assert.equal(proxied.status, 200, JSON.stringify(body))
  assert.deepEqual(body.feed, expected, 'through the PDS')
  found.vouched = expected.length
}

let status = 0
try {
  for (const name of ['alice', 'bob', 'carol']) await people.join(name)
  const port = await freePort()
  const did = await serviceDid(network.plc.url, `http://localhost:${port}`)
  const feed = `at://${agents.alice.did}/app.bsky.feed.generator/mine`
  const relay = pds.url.replace('http', 'ws')
  mill = new Mill({ binary, lexicons, folder, port, did, directory: network.plc.url, source: `firehose = "${relay}"`, publishAs: feed })
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
