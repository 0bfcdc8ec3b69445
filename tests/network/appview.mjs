// The official network: PDS, AppView, and Feedmill as its feed generator.
//
//   node appview.mjs <feedmill binary> <lexicon folder> <folder for files>
//   DB_POSTGRES_URL and REDIS_HOST name the AppView's stores.
//
// A reader asks his PDS for a feed, as the Bluesky app does. The PDS asks the
// AppView, the AppView finds our service by the feed's record, asks our
// skeleton with a token of its own making, and hydrates what it got.

import assert from 'node:assert/strict'
import { AtpAgent } from '@atproto/api'
import { TestNetwork } from '@atproto/dev-env'
import { Mill, addsUp, freePort, serviceDid, until } from './mill.mjs'

const [binary, lexicons, folder] = process.argv.slice(2)
const network = await TestNetwork.create({
  dbPostgresSchema: 'feedmill',
  pds: { port: await freePort(), hostname: 'localhost' },
  bsky: { port: await freePort() },
  plc: { port: await freePort() },
})
const people = {}

async function join(name) {
  const agent = new AtpAgent({ service: network.pds.url })
  await agent.createAccount({ email: `${name}@example.com`, handle: `${name}.test`, password: 'a long password' })
  people[name] = agent
}

// The feed as the app gets it: page by page, hydrated.
async function shown(name, feed) {
  const posts = []
  let cursor
  do {
    const { data } = await people[name].app.bsky.feed.getFeed({ feed, limit: 3, cursor })
    posts.push(...data.feed.map((entry) => entry.post))
    cursor = data.cursor
  } while (cursor)
  return posts
}

async function same(name, feed, texts) {
  await network.processAll()
  const posts = await until(`${name} sees ${texts}`, async () => {
    const posts = await shown(name, feed)
    const is = posts.map((post) => post.record.text)
    return JSON.stringify(is) === JSON.stringify(texts) ? posts : Promise.reject(new Error(`it is ${is}`))
  })
  for (const post of posts) assert.ok(post.author.handle.endsWith('.test') && post.likeCount !== undefined, 'hydrated')
}

let mill
let status = 0
try {
  for (const name of ['alice', 'bob', 'carol']) await join(name)
  const port = await freePort()
  const did = await serviceDid(network.plc.url, `http://localhost:${port}`)
  const feed = `at://${people.alice.did}/app.bsky.feed.generator/mine`
  const relay = network.pds.url.replace('http', 'ws')
  mill = new Mill({ binary, lexicons, folder, port, did, directory: network.plc.url, source: `firehose = "${relay}"`, publishAs: feed })
  await mill.start()
  await people.alice.com.atproto.repo.putRecord({
    repo: people.alice.did,
    collection: 'app.bsky.feed.generator',
    rkey: 'mine',
    record: { $type: 'app.bsky.feed.generator', did, displayName: 'Mine', createdAt: new Date().toISOString() },
  })
  await people.alice.follow(people.bob.did)
  const uris = []
  for (const text of ['one', 'two', 'three', 'four', 'five']) uris.push((await people.bob.post({ text })).uri)
  await people.carol.post({ text: 'unseen' })
  await same('alice', feed, ['five', 'four', 'three', 'two', 'one'])
  await same('carol', feed, [])

  await people.bob.deletePost(uris[2])
  await people.carol.follow(people.bob.did)
  await same('alice', feed, ['five', 'four', 'two', 'one'])
  await same('carol', feed, ['five', 'four', 'two', 'one'])

  const { data } = await people.alice.app.bsky.feed.getFeedGenerator({ feed })
  assert.deepEqual([data.isOnline, data.isValid], [true, true], 'the AppView found our description')
  addsUp((await mill.status()).accounting)
  await mill.stop()
  console.log(JSON.stringify({ hydrated: 13, generator: data.view.displayName }))
} catch (error) {
  console.error(error)
  console.error(mill?.log.split('\n').slice(-30).join('\n'))
  mill?.child?.kill('SIGKILL')
  status = 1
}
await network.close().catch((error) => console.error(error))
process.exit(status)
