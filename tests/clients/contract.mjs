// Two XRPC clients for TypeScript that others wrote, against a running Feedmill.
//
//   node contract.mjs <feedmill> <simulated host> <uri of the published feed>
//
// @atcute/client asks for everything, page by page, and what comes is held
// against what the host itself lists. @atproto/xrpc asks through lexicons that
// are written here by hand, so that it checks each answer's shape. Prints one
// JSON line; exits with 1 at the first thing that is not so.

import assert from 'node:assert/strict'
import { Client, simpleFetchHandler } from '@atcute/client'
import { XRPCError, XrpcClient } from '@atproto/xrpc'

const [mill, pds, feed] = process.argv.slice(2)
const POST = 'app.bsky.feed.post'
const FOLLOW = 'app.bsky.graph.follow'
const PROFILE = 'app.bsky.actor.profile'
const WAIT_MS = 60_000
const found = { posts: 0, feeds: 0, entries: 0, profiles: 0, errors: 0 }

const clientOf = (service) => new Client({ handler: simpleFetchHandler({ service }) })
const ours = clientOf(mill)
const theirs = clientOf(pds)

async function get(client, method, params) {
  const answer = await client.get(method, { params, as: 'json' })
  assert.ok(answer.ok, `${method} ${JSON.stringify(params)}: ${answer.status} ${JSON.stringify(answer.data)}`)
  return answer.data
}

async function whole(client, method, params, name = 'records') {
  const all = []
  let cursor
  do {
    const page = await get(client, method, { ...params, ...(cursor && { cursor }) })
    all.push(...page[name])
    cursor = page.cursor
  } while (cursor)
  return all
}

// ---- What the host says ----------------------------------------------------------

const repos = (await whole(theirs, 'com.atproto.sync.listRepos', { limit: 100 }, 'repos')).filter((repo) => repo.active !== false)
const listed = {}
for (const collection of [POST, FOLLOW, PROFILE]) {
  listed[collection] = new Map()
  for (const { did } of repos) {
    listed[collection].set(did, await whole(theirs, 'com.atproto.repo.listRecords', { repo: did, collection, limit: 100 }))
  }
}
const postsOf = (did) => listed[POST].get(did) ?? []
const everyPost = [...listed[POST].values()].flat()

const end = Date.now() + WAIT_MS
for (;;) {
  const status = await (await fetch(`${mill}/status`)).json()
  const read = status.collections.find((each) => each.collection === POST)?.records ?? 0
  if (read >= everyPost.length) break
  assert.ok(Date.now() < end, `${read} of ${everyPost.length} posts after a minute`)
  await new Promise((wake) => setTimeout(wake, 100))
}

// ---- @atcute/client ----------------------------------------------------------------

const uris = (records) => records.map((record) => record.uri)
function descends(records) {
  for (let at = 1; at < records.length; at++) {
    const [a, b] = [records[at - 1], records[at]]
    assert.ok(a.time_us > b.time_us || (a.time_us === b.time_us && a.uri > b.uri), `${a.uri} before ${b.uri}`)
  }
}
const sameSet = (is, should, what) => assert.deepEqual([...is].sort(), [...should].sort(), what)

async function lists() {
  const all = await whole(ours, 'com.example.post.listRecords', { limit: 7 })
  descends(all)
  sameSet(uris(all), uris(everyPost), 'every post is listed once')
  found.posts = all.length
  const byUri = new Map(everyPost.map((record) => [record.uri, record]))
  for (const record of all) {
    const { value, cid } = byUri.get(record.uri)
    assert.deepEqual({ value: record.value, cid: record.cid }, { value, cid }, record.uri)
    assert.equal(record.uri, `at://${record.did}/${record.collection}/${record.rkey}`)
  }
  for (const { uri } of all.slice(0, 10)) {
    const { value, cid } = await get(ours, 'com.example.post.getRecord', { uri })
    const [, , repo, collection, rkey] = uri.split('/')
    const host = await get(theirs, 'com.atproto.repo.getRecord', { repo, collection, rkey })
    assert.deepEqual({ value, cid }, { value: host.value, cid: host.cid })
  }
  const author = repos.map((repo) => repo.did).find((did) => postsOf(did).length > 1)
  const own = await whole(ours, 'com.example.post.listRecords', { actor: author, limit: 1 })
  sameSet(uris(own), uris(postsOf(author)), 'the posts of one author')
}

async function feeds() {
  for (const { did } of repos) {
    const followed = new Set((listed[FOLLOW].get(did) ?? []).map((record) => record.value.subject))
    const expected = [...followed].flatMap(postsOf)
    const wide = await whole(ours, 'com.example.getFeed', { feed: 'timeline', actor: did, limit: 200 })
    descends(wide)
    sameSet(uris(wide), uris(expected), `the feed of ${did}`)
    if (expected.length > 0 && expected.length < 60) {
      const narrow = await whole(ours, 'com.example.getFeed', { feed: 'timeline', actor: did, limit: 3 })
      assert.deepEqual(uris(narrow), uris(wide), 'any page size gives the same feed')
    }
    found.feeds += 1
    found.entries += wide.length
  }
}

async function profiles() {
  for (const { did } of repos.slice(0, 20)) {
    const { profiles } = await get(ours, 'com.example.getProfile', { actor: did })
    const [record] = listed[PROFILE].get(did) ?? []
    assert.equal(profiles[0].did, did)
    assert.deepEqual(profiles[0].value, record?.value)
    const handle = profiles[0].handle
    if (handle) assert.equal((await get(ours, 'com.example.getProfile', { actor: handle })).profiles[0].did, did)
    found.profiles += 1
  }
}

const WRONG = [
  ['com.example.getFeed', {}, 400, 'InvalidRequest'],
  ['com.example.getFeed', { feed: 'nope', actor: repos[0].did }, 400, 'UnknownFeed'],
  ['com.example.getFeed', { feed: 'timeline', actor: repos[0].did, cursor: 'x' }, 400, 'BadCursor'],
  ['com.example.getFeed', { feed: 'timeline', actor: repos[0].did, limit: 0 }, 400, 'InvalidRequest'],
  ['com.example.post.listRecords', { nope: 1 }, 400, 'InvalidRequest'],
  ['com.example.post.getRecord', { uri: `at://${repos[0].did}/${POST}/never` }, 404, 'RecordNotFound'],
  ['com.example.post.getRecord', { uri: 'nope' }, 400, 'InvalidRequest'],
  ['com.example.getProfile', {}, 400, 'InvalidRequest'],
  ['com.example.never', {}, 501, 'MethodNotImplemented'],
  ['app.bsky.feed.getFeedSkeleton', { feed: 'at://did:web:x.example/app.bsky.feed.generator/no' }, 400, 'UnknownFeed'],
]

async function errors() {
  for (const [method, params, status, name] of WRONG) {
    const answer = await ours.get(method, { params, as: 'json' })
    assert.deepEqual([answer.ok, answer.status, answer.data.error], [false, status, name], `${method} ${JSON.stringify(params)}`)
    assert.ok(answer.data.message)
    found.errors += 1
  }
}

// ---- @atproto/xrpc, with lexicons written by hand --------------------------------------

const text = { type: 'string' }
const object = (required, properties) => ({ type: 'object', required, properties })
const output = (schema) => ({ encoding: 'application/json', schema })
const query = (id, required, parameters, schema) => ({
  lexicon: 1,
  id,
  defs: { main: { type: 'query', parameters: { type: 'params', required, properties: parameters }, output: output(schema) } },
})
const entry = object(['uri', 'cid', 'value', 'did', 'collection', 'rkey', 'time_us'], {
  uri: { type: 'string', format: 'at-uri' },
  cid: { type: 'string', format: 'cid' },
  value: { type: 'unknown' },
  did: { type: 'string', format: 'did' },
  collection: { type: 'string', format: 'nsid' },
  rkey: { type: 'string', format: 'record-key' },
  time_us: { type: 'integer' },
})
const paging = { limit: { type: 'integer', minimum: 1, maximum: 200 }, cursor: text }
const page = object(['records'], { records: { type: 'array', items: entry }, cursor: text })
const skeleton = object(['feed'], { feed: { type: 'array', items: object(['post'], { post: { type: 'string', format: 'at-uri' } }) }, cursor: text })
const LEXICONS = [
  query('com.example.getFeed', ['feed', 'actor'], { feed: text, actor: { type: 'string', format: 'at-identifier' }, ...paging }, page),
  query('com.example.post.listRecords', [], { actor: text, ...paging }, page),
  query('com.example.post.getRecord', ['uri'], { uri: text }, entry),
  query('com.example.getProfile', ['actor'], { actor: text }, object(['profiles'], {
    profiles: { type: 'array', items: { ...object(['did'], { did: { type: 'string', format: 'did' }, handle: text, value: { type: 'unknown' } }), nullable: ['handle'] } },
  })),
  query('app.bsky.feed.getFeedSkeleton', ['feed'], { feed: text, ...paging }, skeleton),
  query('app.bsky.feed.describeFeedGenerator', [], {}, object(['did', 'feeds'], {
    did: { type: 'string', format: 'did' },
    feeds: { type: 'array', items: object(['uri'], { uri: { type: 'string', format: 'at-uri' } }) },
  })),
]

async function typed() {
  const client = new XrpcClient(mill, LEXICONS)
  const call = async (method, params) => (await client.call(method, params)).data
  const reader = repos.map((repo) => repo.did).find((did) => (listed[FOLLOW].get(did) ?? []).length > 2)
  const first = await call('com.example.getFeed', { feed: 'timeline', actor: reader, limit: 5 })
  assert.ok(first.records.length > 0)
  const { records } = await call('com.example.post.listRecords', { limit: 50 })
  assert.equal((await call('com.example.post.getRecord', { uri: records[0].uri })).uri, records[0].uri)
  assert.equal((await call('com.example.getProfile', { actor: reader })).profiles[0].did, reader)
  assert.deepEqual(await call('app.bsky.feed.getFeedSkeleton', { feed }), { feed: [] })
  const described = await call('app.bsky.feed.describeFeedGenerator', {})
  assert.deepEqual(described, { did: 'did:web:feeds.example', feeds: [{ uri: feed }] })
  const refused = await call('com.example.getFeed', { feed: 'nope', actor: reader }).catch((error) => error)
  assert.ok(refused instanceof XRPCError)
  assert.deepEqual([refused.status, refused.error], [400, 'UnknownFeed'])
}

await lists()
await feeds()
await profiles()
await errors()
await typed()
assert.ok(found.posts > 50 && found.entries > 100, JSON.stringify(found))
console.log(JSON.stringify({ client: '@atcute/client, @atproto/xrpc', ...found }))
process.exit(0)
