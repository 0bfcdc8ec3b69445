// Our validator beside the one of the reference implementation.
//
//   node compare.mjs <validate binary> <folder with node_modules/@atproto/lexicon> <lexicon folder>... [--seed=1] [--count=20000]
//
// Valid records of many collections are mutated at random, also into hostile
// ones (the seed is printed). Both validators check them, and every disagreement
// is printed with both reasons. Intended differences are listed in `agreed`; any
// other makes the exit code 1. The binary is
// `cargo build -p record --example validate`; `tests/clients/install` prints
// the folder of the package.

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'

const options = Object.fromEntries(
  process.argv.filter((arg) => arg.startsWith('--')).map((arg) => arg.slice(2).split('=')),
)
const [binary, modules, ...folders] = process.argv.slice(2).filter((arg) => !arg.startsWith('--'))
const { Lexicons, jsonToLex } = createRequire(join(resolve(modules), 'x.js'))('@atproto/lexicon')
const seed = Number(options.seed ?? 1)
const count = Number(options.count ?? 20000)

// What we do differently on purpose: [what the reference says, what we say, why].
// `null` matches a side that accepts.
const agreed = [
  [null, /format language/, 'the published vectors require a primary language of two or three lower-case letters, and no variant twice'],
  [null, /mimeType: expected one of|size: expected integer of at most/, 'the reference does not check accept and maxSize'],
  [null, /^JSON outside the data model/, 'the reference leaves a malformed link, blob or $type as a plain object'],
  [null, /format at-uri, received ".*(%|#|\/")/, 'the published vectors accept no percent sign, no fragment and no slash at the end'],
  [null, /format cid, received "Qm/, 'the published vectors accept no CID of version 0'],
  [null, /format uri, received "[^a-z]/i, 'a scheme begins with a letter'],
  [null, /expected object with \$type, received blob/, 'a blob with further fields is a plain object to the reference'],
  [null, /format uri, received .*\\?u?\x00/, 'the reference accepts control characters in a URI'],
  [null, /format datetime, received "\d{4}.\d\d-|format datetime, received "\d{4}-\d\d.\d\d/, 'the reference accepts other separators in a date'],
  [null, /^not JSON: .*hex escape/, 'a lone surrogate is not text, in JSON or in CBOR'],
  [/^Invalid key: __proto__$/, null, 'dangerous in JavaScript only; the data model has no forbidden keys'],
  [/must be a uri$/, null, 'the published vectors accept schemes with points and hyphens, and an empty authority'],
  [/must be a cid string$/, null, 'the published vectors accept CIDs of any base and length, so only characters are checked'],
  [/must be an valid atproto datetime/, null, 'the published vectors accept many digits of fraction with any zone'],
  [/should be a blob ref$/, null, 'further fields in a blob are kept, as in any object'],
  [/only have one hash segment$|without anchor: #|Unexpected end of data$|Non-base32 character$|multibase decoder must be provided$/, null, 'the reference throws on an invalid $type or CID where any value is allowed'],
]

let state = BigInt(seed) * 0x9e3779b97f4a7c15n + 1n
function random(below) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn
  return Number((state >> 33n) % BigInt(below))
}
const pick = (list) => list[random(list.length)]

const CID = 'bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity'
const uri = 'at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.post/3jzfcijpj2z2a'
const ref = { uri, cid: CID }
const blob = (mimeType) => ({ $type: 'blob', ref: { $link: CID }, mimeType, size: 1000 })
const createdAt = '2026-11-15T20:00:00.000Z'
const facets = [
  {
    index: { byteStart: 0, byteEnd: 4 },
    features: [
      { $type: 'app.bsky.richtext.facet#link', uri: 'https://example.com/a' },
      { $type: 'app.bsky.richtext.facet#mention', did: 'did:plc:7iza6de2dwap2sbkpav7c6c6' },
      { $type: 'app.bsky.richtext.facet#tag', tag: 'tag' },
    ],
  },
]
const good = [
  { $type: 'app.bsky.feed.post', text: 'hello', createdAt, langs: ['en', 'pt-BR'], tags: ['a'], facets },
  { $type: 'app.bsky.feed.post', text: 'hello', createdAt, reply: { root: ref, parent: ref }, labels: { $type: 'com.atproto.label.defs#selfLabels', values: [{ val: 'x' }] } },
  { $type: 'app.bsky.feed.post', text: 'x', createdAt, embed: { $type: 'app.bsky.embed.images', images: [{ alt: '', image: blob('image/png'), aspectRatio: { width: 1, height: 2 } }] } },
  { $type: 'app.bsky.feed.post', text: 'x', createdAt, embed: { $type: 'app.bsky.embed.recordWithMedia', record: { record: ref }, media: { $type: 'app.bsky.embed.external', external: { uri: 'https://example.com', title: '', description: '', thumb: blob('image/png') } } } },
  { $type: 'app.bsky.feed.like', subject: ref, createdAt, via: ref },
  { $type: 'app.bsky.feed.threadgate', post: uri, createdAt, allow: [{ $type: 'app.bsky.feed.threadgate#mentionRule' }], hiddenReplies: [uri] },
  { $type: 'app.bsky.feed.generator', did: 'did:web:example.com', displayName: 'x', createdAt, avatar: blob('image/png'), descriptionFacets: facets },
  { $type: 'app.bsky.graph.follow', subject: 'did:plc:7iza6de2dwap2sbkpav7c6c6', createdAt },
  { $type: 'app.bsky.graph.list', purpose: 'app.bsky.graph.defs#modlist', name: 'x', createdAt },
  { $type: 'app.bsky.actor.profile', displayName: 'x', description: 'y', avatar: blob('image/png'), pinnedPost: ref },
  { $type: 'app.bsky.labeler.service', policies: { labelValues: ['a'], labelValueDefinitions: [{ identifier: 'a', severity: 'inform', blurs: 'none', locales: [{ lang: 'en', name: 'x', description: 'y' }] }] }, createdAt },
  { $type: 'network.cosmik.card', type: 'URL', content: { $type: 'network.cosmik.card#urlContent', url: 'https://example.com' }, createdAt },
  { $type: 'network.cosmik.collectionLink', collection: ref, card: ref, addedBy: 'did:web:example.com', addedAt: createdAt },
]

const texts = [
  '', 'x', 'hello world', 'ä'.repeat(200), '👩‍👩‍👦‍👦'.repeat(70), 'a'.repeat(301), '\r\n'.repeat(200), 'e\u0301'.repeat(400), 'a'.repeat(3001),
  'did:plc:abc', 'did:plc:', 'did:web:localhost%3A1234', 'did:x:%', 'alice.test', 'alice', 'at://alice.test', 'at://alice.test/', 'at://did:plc:abc/app.bsky.feed.post', uri + '#x',
  createdAt, '2026-11-15', '2026-11-15T20:00:00-00:00', '2026-02-30T20:00:00Z', '2026-11-15T20:00:00.123456789+01:45', '0000-01-01T00:00:00+01:00',
  'en', 'JA', 'jaja', 'en-US', 'de-419-DE', 'en-a-foo-a-bar', 'i-default', 'x-y', 'en_US', 'https://example.com', 'http:', 'dns:x', 'content-type:x', 'https://例え.jp', 'https://a b', CID, 'bafy', 'Qm' + 'b'.repeat(44),
  '3jzfcijpj2z2a', '3jzfcijpj2z21', 'com.example.thing', 'example.com', 'app.bsky.richtext.facet#link', 'app.bsky.richtext.facet', 'app.bsky.embed.images', 'app.bsky.embed.images#main', 'app.bsky.embed.record', 'blob', 'self', '..', 'image/png', 'text/plain',
]
function fresh() {
  const kinds = [
    () => null, () => random(2) === 0, () => random(5000) - 100, () => 1000000000, () => pick(texts), () => pick(texts), () => pick(texts),
    () => [], () => ({}), () => [pick(texts)], () => ({ $link: CID }), () => ({ $bytes: 'AQID' }), () => blob(pick(['image/png', 'text/plain'])), () => ({ cid: CID, mimeType: 'image/png' }),
    () => ({ $type: pick(texts) }), () => ref, () => Array.from({ length: random(12) }, () => pick(texts)),
  ]
  return structuredClone(pick(kinds)())
}
// What no honest author writes.
const nested = (depth) => Array.from({ length: depth }).reduce((inner, _, at) => (at % 2 ? { a: inner } : [inner]), 'x')
const hostile = [
  () => nested(5 + random(60)), () => 'x'.repeat(100_000), () => '\u{10ffff}'.repeat(1000), () => '\u0000\u202e\ufeff', () => '\ud800',
  () => Number.MAX_SAFE_INTEGER, () => -Number.MAX_SAFE_INTEGER, () => 2 ** 53, () => 1e300, () => 1.5, () => -0,
  () => JSON.parse('{"__proto__":{"text":"x"},"constructor":1,"toString":null}'), () => ({ $type: '__proto__' }), () => ({ $type: 'constructor' }),
  () => ({ '': '' }), () => ({ ['k'.repeat(5000)]: 1 }), () => Array.from({ length: 2000 }, () => ({})),
  () => ({ $link: 'x' }), () => ({ $link: CID, more: 1 }), () => ({ $bytes: '!!' }), () => ({ $type: 'blob' }), () => ({ $type: 'blob', ref: CID, mimeType: 1, size: -1 }),
]
function places(value, found = []) {
  if (value !== null && typeof value === 'object') {
    for (const key of Object.keys(value)) {
      found.push([value, key])
      places(value[key], found)
    }
  }
  return found
}
function mutated() {
  const record = structuredClone(pick(good))
  const nsid = record.$type
  for (let times = random(3); times > 0; times--) {
    const [holder, key] = pick(places(record))
    const how = random(7)
    if (how === 0) Array.isArray(holder) ? holder.splice(Number(key), 1) : delete holder[key]
    else if (how === 1) Array.isArray(holder) ? holder.push(fresh()) : (holder[pick(['extra', '$type', 'text', 'uri'])] = fresh())
    else if (how === 2 && typeof holder[key] === 'string') {
      const at = random(holder[key].length + 1)
      holder[key] = holder[key].slice(0, at) + pick(['', ' ', '/', 'é', '0', '%', 'Z', '#', '.', '\u0000']) + holder[key].slice(at + random(2))
    } else if (how === 3) holder[key] = pick(hostile)()
    else holder[key] = fresh()
  }
  return { nsid, record }
}

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    return statSync(path).isDirectory() ? files(path) : path.endsWith('.json') ? [path] : []
  })
}
const documents = new Map(
  folders.flatMap(files).map((path) => JSON.parse(readFileSync(path, 'utf8'))).map((doc) => [doc.id, doc]),
)
const lexicons = new Lexicons([...documents.values()].filter((doc) => doc.defs.main?.type !== 'permission-set'))

const lines = Array.from({ length: count }, mutated)
const run = spawnSync(binary, folders, {
  input: lines.map((line) => JSON.stringify(line)).join('\n') + '\n',
  maxBuffer: 1 << 30,
  encoding: 'utf8',
})
if (run.status !== 0) throw new Error(run.stderr)
const ours = run.stdout.trimEnd().split('\n').map((line) => JSON.parse(line))

const tally = { bothAccept: 0, bothRefuse: 0, agreed: 0, open: 0 }
const shown = new Set()
lines.forEach(({ nsid, record }, index) => {
  let theirs = null
  try {
    lexicons.assertValidRecord(nsid, jsonToLex(record))
  } catch (error) {
    theirs = String(error.message)
  }
  const mine = ours[index].ok ? null : ours[index].message
  if ((theirs === null) === (mine === null)) return void tally[mine === null ? 'bothAccept' : 'bothRefuse']++
  const fits = (pattern, text) => (pattern === null ? text === null : text !== null && pattern.test(text))
  if (agreed.some(([their, our]) => fits(their, theirs) && fits(our, mine))) return void tally.agreed++
  tally.open++
  const key = `${theirs} | ${mine}`.replace(/[0-9]+|".*?"/g, '_')
  if (shown.size < 40 && !shown.has(key)) {
    shown.add(key)
    console.log(JSON.stringify({ theirs, mine, record }))
  }
})
console.log(JSON.stringify({ seed, count, ...tally }))
process.exitCode = tally.open > 0 ? 1 : 0
