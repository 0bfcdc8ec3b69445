// The simulated network, read by implementations that share no code with it.
//
//   node network.mjs <relay ws address> <pds> <plc> <did:web> [repositories] [frames]
//
// Whole repositories and frames of the stream, fetched as from any network,
// are opened with @atcute's CAR, CBOR, tree and key packages: every block is
// hashed; every commit signature is verified with the key from the directory;
// each tree is walked with its heights checked and built anew from its
// records; each commit's operations are undone until the tree before it comes
// out (Sync 1.1). What is found must be what the host lists. Prints one JSON
// line; exits with 1 at the first thing that is not so.

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { get } from 'node:http'
import * as CAR from '@atcute/car'
import * as CBOR from '@atcute/cbor'
import * as CID from '@atcute/cid'
import { getPublicKeyFromDidController, verifySig } from '@atcute/crypto'
import { MemoryBlockStore, NodeStore, NodeWalker, NodeWrangler } from '@atcute/mst'
import { fromUint8Array as entriesOf, isCommit } from '@atcute/repo'
import WebSocket from 'ws'

const [relay, pds, plc, web, repositoriesText = '40', framesText = '400'] = process.argv.slice(2)
const REPOSITORIES = Number(repositoriesText)
const FRAMES = Number(framesText)
const WAIT_MS = 120_000

const former = [] // commits that need a change of key after them
const changed = new Map() // the newest #identity event of each account
const found = { repositories: 0, records: 0, blocks: 0, frames: 0, signatures: { p256: 0, secp256k1: 0 }, kinds: {}, undone: 0 }

async function ask(path) {
  const response = await fetch(pds + path)
  assert.ok(response.ok, `${path}: ${response.status}`)
  return response
}

// ---- Keys --------------------------------------------------------------------

// A did:web document is asked for under the host's own name, at the simulator's address.
function webDocument(did) {
  const host = did.slice('did:web:'.length)
  return new Promise((resolve, reject) => {
    get(`${web}/.well-known/did.json`, { headers: { host } }, (response) => {
      let text = ''
      response.on('data', (part) => (text += part)).on('end', () => resolve(JSON.parse(text)))
    }).on('error', reject)
  })
}

const keys = new Map()
async function keyOf(did, again = false) {
  if (again || !keys.has(did)) {
    const document = did.startsWith('did:web:') ? await webDocument(did) : await (await fetch(`${plc}/${did}`)).json()
    assert.equal(document.id, did)
    const method = document.verificationMethod.find((each) => each.id.endsWith('#atproto'))
    keys.set(did, getPublicKeyFromDidController(method))
  }
  return keys.get(did)
}

// ---- Archives ----------------------------------------------------------------

// The blocks of an archive, each of them hashed.
function blocksOf(bytes) {
  const reader = CAR.fromUint8Array(bytes)
  const blocks = new Map()
  for (const entry of reader) {
    const digest = createHash('sha256').update(entry.bytes).digest()
    assert.deepEqual(Buffer.from(entry.cid.digest.contents), digest, `block ${CID.toString(entry.cid)} is what its CID says`)
    blocks.set(CID.toString(entry.cid), entry.bytes)
    found.blocks += 1
  }
  assert.equal(reader.roots.length, 1)
  return { root: reader.roots[0].$link, blocks }
}

// A commit and its signature. One that the key of today does not verify was
// made with a former key, if the stream tells of a change after it (`seq`).
async function commitOf(did, { root, blocks }, seq) {
  const commit = CBOR.decode(blocks.get(root))
  assert.ok(isCommit(commit), `the root of ${did} is a commit`)
  assert.equal(commit.did, did)
  const { sig, ...unsigned } = commit
  for (const again of [false, true]) {
    const key = await keyOf(did, again)
    if (!(await verifySig(key, CBOR.fromBytes(sig), CBOR.encode(unsigned)))) continue
    found.signatures[key.type] += 1
    return commit
  }
  assert.ok(seq !== undefined, `the commit of ${did} is signed by its key`)
  former.push({ did, seq })
  return commit
}

// A record is the one encoding of what it says. What it says may be wrong on purpose.
function canonical(bytes) {
  assert.deepEqual(Buffer.from(CBOR.encode(CBOR.decode(bytes))), Buffer.from(bytes))
}

const link = (cid) => ({ $link: cid })

async function repository(did) {
  // Its host goes on writing meanwhile, so what it lists is read before and after.
  for (;;) {
    const before = await (await ask(`/xrpc/com.atproto.sync.getLatestCommit?did=${did}`)).json()
    const bytes = new Uint8Array(await (await ask(`/xrpc/com.atproto.sync.getRepo?did=${did}`)).arrayBuffer())
    const listed = await listing(did)
    const after = await (await ask(`/xrpc/com.atproto.sync.getLatestCommit?did=${did}`)).json()
    if (before.cid !== after.cid) continue

    const archive = blocksOf(bytes)
    assert.equal(archive.root, after.cid)
    const commit = await commitOf(did, archive)
    assert.equal(commit.rev, after.rev)
    const read = new Map()
    for (const entry of entriesOf(bytes)) {
      canonical(entry.bytes)
      read.set(`${entry.collection}/${entry.rkey}`, entry.cid.$link)
    }
    assert.deepEqual(new Map([...read].sort()), new Map([...listed].sort()), `${did} holds what its host lists`)

    const store = new NodeStore(new MemoryBlockStore(new Map(archive.blocks)))
    const walker = await NodeWalker.create(store, commit.data.$link)
    const walked = []
    for await (const [path, cid] of walker.entries()) walked.push([path, cid.$link])
    assert.deepEqual(walked, [...walked].sort(([a], [b]) => (a < b ? -1 : 1)), `the tree of ${did} is in order`)
    assert.deepEqual(new Map(walked), read)

    const anew = new NodeWrangler(new NodeStore(new MemoryBlockStore()))
    let root = (await anew.ns.get(null)).cid?.$link ?? null
    for (const [path, cid] of walked) root = await anew.putRecord(root, path, link(cid))
    if (walked.length > 0) assert.equal(root, commit.data.$link, `the tree of ${did}, built anew, has the same root`)
    found.repositories += 1
    found.records += walked.length
    return
  }
}

async function isActive(did) {
  return (await (await ask(`/xrpc/com.atproto.sync.getRepoStatus?did=${did}`)).json()).active
}

async function listing(did) {
  const { collections } = await (await ask(`/xrpc/com.atproto.repo.describeRepo?repo=${did}`)).json()
  const listed = new Map()
  for (const collection of collections) {
    let cursor = ''
    do {
      const page = await (await ask(`/xrpc/com.atproto.repo.listRecords?repo=${did}&collection=${collection}&limit=100${cursor}`)).json()
      for (const record of page.records) listed.set(record.uri.slice(`at://${did}/`.length), record.cid)
      cursor = page.cursor ? `&cursor=${encodeURIComponent(page.cursor)}` : ''
    } while (cursor)
  }
  return listed
}

// ---- Frames ------------------------------------------------------------------

// The first frames of the stream; the socket stays open, to hear of changes of key.
function frames(count) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${relay}/xrpc/com.atproto.sync.subscribeRepos?cursor=0`)
    const late = setTimeout(() => { socket.terminate(); reject(new Error(`${count} frames did not come in time`)) }, WAIT_MS)
    const all = []
    socket.on('error', reject)
    socket.on('message', (data) => {
      const [header, rest] = CBOR.decodeFirst(new Uint8Array(data))
      if (header.t === '#identity') {
        const { did, seq } = CBOR.decode(rest)
        changed.set(did, seq)
      }
      if (all.length < count && all.push(new Uint8Array(data)) === count) { clearTimeout(late); resolve(all) }
    })
  })
}

async function frame(bytes, last) {
  const [header, rest] = CBOR.decodeFirst(bytes)
  const body = CBOR.decode(rest)
  assert.equal(header.op, 1)
  found.frames += 1
  found.kinds[header.t] = (found.kinds[header.t] ?? 0) + 1
  if (body.seq !== undefined) assert.ok(body.seq > last, 'sequence numbers grow')
  if (header.t === '#sync') await commitOf(body.did, blocksOf(CBOR.fromBytes(body.blocks)), body.seq)
  if (header.t === '#commit' && !body.tooBig) await commitFrame(body)
  return body.seq ?? last
}

async function commitFrame(body) {
  const archive = blocksOf(CBOR.fromBytes(body.blocks))
  assert.equal(archive.root, body.commit.$link)
  const commit = await commitOf(body.repo, archive, body.seq)
  assert.equal(commit.rev, body.rev)
  const store = new NodeStore(new MemoryBlockStore(new Map(archive.blocks)))
  const walker = () => NodeWalker.create(store, commit.data.$link)
  for (const op of body.ops) {
    const there = await (await walker()).findRpath(op.path)
    assert.equal(there?.$link, op.cid?.$link, `${op.action} of ${op.path} is in the tree`)
    if (op.action === 'delete') continue
    canonical(archive.blocks.get(op.cid.$link))
  }
  if (!body.prevData) return
  const wrangler = new NodeWrangler(store)
  let root = commit.data.$link
  for (const op of [...body.ops].reverse()) {
    root = op.action === 'create' ? await wrangler.deleteRecord(root, op.path) : await wrangler.putRecord(root, op.path, op.prev)
  }
  assert.equal(root, body.prevData.$link, `${body.repo} ${body.rev}: its operations undone give the tree before`)
  found.undone += 1
}

// ---- All of it -----------------------------------------------------------------

try {
  let seq = 0
  for (const bytes of await frames(FRAMES)) seq = await frame(bytes, seq)
  const { repos } = await (await ask('/xrpc/com.atproto.sync.listRepos?limit=500')).json()
  for (const { did } of repos) {
    if (found.repositories === REPOSITORIES) break
    // The world goes on: an account may hide between two questions, and its host then says so.
    await repository(did).catch(async (error) => { if (await isActive(did)) throw error })
  }
  for (const { did, seq } of former) {
    assert.ok(changed.get(did) > seq, `${did} changed its key after ${seq}, or its signature is wrong`)
  }
  found.signatures.former = former.length
  console.log(JSON.stringify(found))
  process.exit(0)
} catch (error) {
  console.error(error.message ?? error)
  console.error(JSON.stringify(found))
  process.exit(1)
}
