// A replica of a log space in the browser.
//
// In:    the address of a Feedmill, a space, perhaps some of its feeds.
// Out:   the same blocks here, in IndexedDB, as they come; our own blocks there.
// Never: a block dropped because the server does not have it: it waits, and is
//        pushed again; a block kept that is not what its hash or signature says.
//
// No build step: import it, as it is, from the server that serves the log.
//
//   import { LogReplica } from "/log.js"
//   const log = await LogReplica.open({ space: "notes", actorId: "ada" })
//   log.addEventListener("change", async () => show(await log.read()))
//   await log.append("my-feed", new TextEncoder().encode("hello"))
//
// With `key: await newKey()` the actor is that key, and signs what it writes.
//
// The rules are those of docs/protocol.md: blocks are pushed without positions
// and pulled with them; a pulled page answers for a whole range of positions, so
// applying it makes that range equal; a replaced or rolled-back server is noticed
// and healed by walking from the start.

const PULL_BLOCKS_MAX = 500
const PUSH_BLOCKS_MAX = 100
const POLL_MS_MAX = 30_000
const PAUSE_MS_MIN = 250
const PAUSE_MS_MAX = 30_000
const REPLY_MS_MAX = 30_000

/** The server refused a request; `code` says why, `answer` holds the rest. */
export class LogError extends Error {
  constructor(answer) {
    super(answer.message ?? answer.error)
    this.code = answer.error
    this.answer = answer
  }
}

/** A pulled block is not what it says it is. Nothing of its page was kept. */
export class DamagedError extends Error {
  constructor(what, block) {
    super(`${what}: position ${block.position}, feed ${block.feedId}`)
    this.code = "damaged"
    this.block = block
  }
}

export class LogReplica extends EventTarget {
  #base
  #space
  #feeds
  #actorId
  #namespace
  #WebSocket
  #fetch
  #key
  #keys = new Map()
  #database
  #socket = null
  #timer = null
  #running = null
  #again = false
  #failures = 0
  #requests = 0
  #closed = false

  /**
   * Open the replica and begin to replicate.
   *
   * @param {object} options
   * @param {string} [options.url] where the server is; the page's own origin unless given
   * @param {string} options.space
   * @param {string[]} [options.feeds] only these feeds; all unless given
   * @param {string} [options.actorId] who writes here; the key itself where there is one
   * @param {CryptoKeyPair} [options.key] an Ed25519 key that signs what is written here: `newKey()`
   * @param {string} [options.namespace] given to feeds that are made here
   * @param {string} [options.name] of the database; one per replica
   */
  static async open(options) {
    const replica = new LogReplica(options)
    const indexedDB = options.indexedDB ?? globalThis.indexedDB
    const name = options.name ?? `feedmill log ${replica.#base} ${options.space} ${(options.feeds ?? []).join(" ")}`
    if (options.key) replica.#actorId = await actorOf(options.key.publicKey)
    replica.#database = await openDatabase(indexedDB, name)
    replica.#listen()
    replica.sync()
    return replica
  }

  constructor({ url, space, feeds, actorId, key, namespace, WebSocket, fetch }) {
    super()
    this.#base = (url ?? globalThis.location.origin).replace(/\/$/, "")
    this.#space = space
    this.#feeds = feeds
    this.#actorId = actorId
    this.#namespace = namespace
    this.#key = key
    this.#WebSocket = WebSocket ?? globalThis.WebSocket
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis)
  }

  /** Write the next block of a feed. It is kept at once and pushed when possible. */
  async append(feedId, data, { timestamp = Date.now() } = {}) {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data
    let block
    for (;;) {
      const tip = await this.#look((stores) => get(stores.tips, feedId))
      block = await this.#next(feedId, tip, { timestamp, data: toBase64(bytes) })
      // The tip is looked at again inside the transaction: two tabs never take the same sequence.
      const kept = await this.#change(async (stores) => {
        const now = await get(stores.tips, feedId)
        if (now?.sequence !== tip?.sequence || now?.actorId !== tip?.actorId) return false
        hold(stores, block)
        stores.tips.put(tipOf(block))
        return true
      })
      if (kept) break
    }
    this.#changed()
    this.sync()
    return block
  }

  /** The block behind `tip`, hashed, and signed where there is a key. */
  async #next(feedId, tip, content) {
    const block = { feedId, actorId: this.#actorId, sequence: (tip?.sequence ?? 0) + 1, ...content }
    if (tip) {
      block.predSequence = tip.sequence
      block.predActorId = tip.actorId
      if (tip.hash) block.predHash = tip.hash
    }
    block.hash = blockHash(this.#space, block)
    if (this.#key) {
      const signature = await crypto.subtle.sign("Ed25519", this.#key.privateKey, fromHex(block.hash))
      block.signature = toBase64(new Uint8Array(signature))
    }
    return block
  }

  /**
   * Blocks in read order: by position, then those without one by sequence and
   * actor. `data` is a Uint8Array, `position` undefined while a block waits.
   */
  async read({ feedId, after = 0 } = {}) {
    const wanted = (block) => !feedId || block.feedId === feedId
    return this.#look(async (stores) => {
      const placed = await all(stores.blocks.index("position"), IDBKeyRange.lowerBound(after, true))
      const waiting = await all(stores.blocks.index("waiting"))
      return [...placed, ...waiting].filter(wanted).map((block) => ({
        feedId: block.feedId,
        actorId: block.actorId,
        sequence: block.sequence,
        timestamp: block.timestamp,
        position: block.position,
        refused: block.refused,
        data: block.data === undefined ? undefined : fromBase64(block.data),
      }))
    })
  }

  /** How far this replica has come, and how many blocks still wait. */
  async status() {
    return this.#look(async (stores) => {
      const state = await get(stores.state, "state")
      const waiting = await all(stores.blocks.index("waiting"))
      return { after: state?.after ?? 0, epoch: state?.epoch, waiting: waiting.filter((b) => !b.refused).length }
    })
  }

  /** Pull and push until nothing is left. Resolves when that is so, or failed. */
  sync() {
    if (this.#running) {
      this.#again = true
      return this.#running
    }
    this.#running = this.#syncAll().finally(() => {
      this.#running = null
      if (this.#again && !this.#closed) {
        this.#again = false
        this.sync()
      }
    })
    return this.#running
  }

  /** Stop, and let go of the database. */
  async close() {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#socket?.close()
    await this.#running
    this.#database.close()
  }

  // --- Replication -----------------------------------------------------------

  async #syncAll() {
    clearTimeout(this.#timer)
    let pause = POLL_MS_MAX
    try {
      do {
        await this.#pullAll()
      } while (!this.#closed && (await this.#pushSome()))
      this.#failures = 0
    } catch (error) {
      // Offline is a state, not a fault: try again later.
      pause = Math.min(PAUSE_MS_MIN * 2 ** this.#failures++, PAUSE_MS_MAX)
      if (error.answer?.retryAfterMs) pause = Math.max(pause, error.answer.retryAfterMs)
      this.dispatchEvent(Object.assign(new Event("trouble"), { error }))
    }
    if (!this.#closed) this.#timer = setTimeout(() => this.sync(), pause)
  }

  async #pullAll() {
    for (;;) {
      if (this.#closed) return
      const { state, heldMax } = await this.#look(async (stores) => ({
        state: (await get(stores.state, "state")) ?? { after: 0, healing: false },
        heldMax: await highest(stores),
      }))
      let page
      try {
        page = await this.#ask("query", {
          ...(this.#feeds ? { feedIds: this.#feeds } : {}),
          cursor: state.cursor ?? state.after,
          limit: PULL_BLOCKS_MAX,
          skipGone: true,
        })
      } catch (error) {
        if (error.code === "unknownSpace" && !state.epoch) return
        if (!isOtherHistory(error)) throw error
        await this.#heal(error.answer.epoch)
        continue
      }
      const replaced = state.epoch !== undefined && state.epoch !== page.epoch
      if (replaced || (!state.healing && page.maxPosition < heldMax)) {
        await this.#heal(page.epoch)
        continue
      }
      if (page.after !== state.after) throw new Error("the page is not the one asked for")
      for (const block of page.blocks) await this.#verify(block)
      const moved = await this.#change((stores) => adopt(stores, state, page))
      if (moved) this.#changed()
      if (!page.hasMore) return
    }
  }

  /** Hold a pulled block against its hash and, where the actor is a key, its signature. */
  async #verify(block) {
    const hash = blockHash(this.#space, block)
    if (block.hash !== undefined && block.hash !== hash) throw new DamagedError("not what its hash says", block)
    block.hash = hash
    if (!block.actorId.startsWith(KEY_PREFIX)) return
    // Where the browser knows no Ed25519, hashes are all that is checked.
    if (!globalThis.crypto?.subtle) return
    let key = this.#keys.get(block.actorId)
    if (key === undefined) {
      const raw = fromHex(block.actorId.slice(KEY_PREFIX.length))
      key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]).catch((error) => {
        if (error.name === "NotSupportedError") return null
        throw new DamagedError("its actor is not a key", block)
      })
      this.#keys.set(block.actorId, key)
    }
    if (key === null) return
    const signature = fromBase64(block.signature ?? "")
    const holds = await crypto.subtle.verify("Ed25519", key, signature, fromHex(hash))
    if (!holds) throw new DamagedError("its signature does not hold", block)
  }

  /** The server is not what it was: walk everything again, losing nothing. */
  #heal(epoch) {
    return this.#change((stores) => {
      stores.state.put({ epoch, after: 0, healing: true }, "state")
    })
  }

  /** Push what waits; true if there may be more to do. */
  async #pushSome() {
    const waiting = await this.#look(async (stores) => {
      const blocks = await all(stores.blocks.index("waiting"))
      return blocks.filter((block) => !block.refused).slice(0, PUSH_BLOCKS_MAX)
    })
    if (waiting.length === 0) return false
    // One append names one namespace; a block pulled from a server has its own.
    const namespace = waiting[0].namespace ?? this.#namespace
    const batch = waiting.filter((block) => (block.namespace ?? this.#namespace) === namespace)
    // Positions count only in the history that was pulled, so a push names it.
    const { cursor } = (await this.#look((stores) => get(stores.state, "state"))) ?? {}
    let answer
    try {
      answer = await this.#ask("append", { namespace, cursor, blocks: batch.map(wire) })
    } catch (error) {
      if (isOtherHistory(error)) {
        await this.#heal(error.answer.epoch)
        return true
      }
      if (!error.answer?.blocks || error.code === "spaceFull") throw error
      await this.#change((stores) => {
        for (const refused of error.answer.blocks) {
          const block = batch[refused.index]
          if (block) stores.blocks.put({ ...block, refused: refused.error })
        }
      })
      this.#changed()
      return true
    }
    const state = await this.#look((stores) => get(stores.state, "state"))
    if (state?.epoch !== undefined && state.epoch !== answer.epoch) return true
    if (answer.positions.length !== batch.length) throw new Error("the server gives no positions")
    await this.#change(async (stores) => {
      for (const [index, block] of batch.entries()) await place(stores, block, answer.positions[index])
    })
    this.#changed()
    return true
  }

  async #ask(kind, message) {
    const requestId = `${Date.now()}-${++this.#requests}`
    const url = `${this.#base}/log/${encodeURIComponent(this.#space)}/${kind}`
    const response = await this.#fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ requestId, ...message }),
      signal: AbortSignal.timeout(REPLY_MS_MAX),
    })
    const answer = await response.json()
    if (answer.requestId !== requestId) throw new Error("the reply is to another request")
    if (answer.error) throw new LogError(answer)
    return answer
  }

  /** Ask for hints. Without them the replica polls. */
  #listen() {
    if (!this.#WebSocket || this.#closed) return
    const socket = new this.#WebSocket(`${this.#base.replace(/^http/, "ws")}/log/${encodeURIComponent(this.#space)}`)
    this.#socket = socket
    socket.onopen = () => {
      const wanted = this.#feeds ? { feedIds: this.#feeds } : {}
      socket.send(JSON.stringify({ type: "subscribe", requestId: "hints", ...wanted }))
      this.sync()
    }
    socket.onmessage = ({ data }) => {
      if (JSON.parse(data).type === "advanced") this.sync()
    }
    socket.onclose = () => {
      if (!this.#closed) setTimeout(() => this.#listen(), PAUSE_MS_MIN * 2 ** Math.min(this.#failures + 1, 7))
    }
    socket.onerror = () => {}
  }

  #changed() {
    this.dispatchEvent(new Event("change"))
  }

  // --- The database ----------------------------------------------------------

  #look(work) {
    return transact(this.#database, "readonly", work)
  }

  #change(work) {
    return transact(this.#database, "readwrite", work)
  }
}

/** Whether the server no longer has the history that a cursor is from. */
function isOtherHistory({ code }) {
  return ["replaced", "rolledBack", "badCursor"].includes(code)
}

/** Make what is held in (after, covered] equal to the page. True if anything changed. */
async function adopt(stores, state, page) {
  const present = new Set(page.blocks.map(keyOf))
  const evicted = new Map((page.evicted ?? []).map(({ feedId, through }) => [feedId, through]))
  let changed = false
  if (page.covered > page.after) {
    const range = IDBKeyRange.bound(page.after, page.covered, true, false)
    for (const held of await all(stores.blocks.index("position"), range)) {
      // What was evicted is known again when it is pushed, unless that is long ago.
      const through = Math.min(evicted.get(held.feedId) ?? 0, page.forgotten ?? 0)
      if (!present.has(held.key) && held.position > through) {
        unplace(stores, held)
        changed = true
      }
    }
  }
  for (const theirs of page.blocks) {
    const ours = await get(stores.blocks, keyOf(theirs))
    if (ours?.position === theirs.position && same(ours, theirs)) continue
    changed = true
    if (ours && ours.hash !== theirs.hash) stores.conflicts.put(ours)
    const { position, ...block } = theirs
    await place(stores, block, position)
    const tip = await get(stores.tips, block.feedId)
    const isTie = tip?.sequence === block.sequence && tip.actorId < block.actorId
    if (!tip || tip.sequence < block.sequence || isTie) {
      stores.tips.put(tipOf(block))
    }
  }
  let healing = state.healing
  if (healing && !page.hasMore) {
    healing = false
    const beyond = IDBKeyRange.lowerBound(page.covered, true)
    for (const held of await all(stores.blocks.index("position"), beyond)) {
      unplace(stores, held)
      changed = true
    }
  }
  stores.state.put({ epoch: page.epoch, after: page.covered, cursor: page.nextCursor, healing }, "state")
  return changed
}

/** Whether the two are one block; its content may have gone meanwhile. */
function same(ours, theirs) {
  return ours.hash === theirs.hash && (ours.purged !== undefined) === (theirs.purged !== undefined)
}

function tipOf({ feedId, sequence, actorId, hash }) {
  return { feedId, sequence, actorId, hash }
}

/** Keep a block that has no position yet. */
function hold(stores, block) {
  stores.blocks.put({ ...block, key: keyOf(block), waiting: [block.sequence, block.actorId, block.feedId] })
}

/** Put a block at a position; whoever stands there waits again. */
async function place(stores, block, position) {
  const holder = await get(stores.blocks.index("position"), position)
  if (holder && holder.key !== keyOf(block)) unplace(stores, holder)
  const { waiting, refused, ...rest } = block
  stores.blocks.put({ ...rest, key: keyOf(block), position })
}

function unplace(stores, { position, ...block }) {
  hold(stores, block)
}

function keyOf(block) {
  return JSON.stringify([block.feedId, block.sequence, block.actorId])
}

/** A block as the wire wants it. */
function wire({ key, waiting, refused, position, namespace, ...block }) {
  return block
}

function openDatabase(indexedDB, name) {
  const request = indexedDB.open(name, 1)
  request.onupgradeneeded = () => {
    const blocks = request.result.createObjectStore("blocks", { keyPath: "key" })
    // A block without one of these fields is not in that index.
    blocks.createIndex("position", "position", { unique: false })
    blocks.createIndex("waiting", "waiting")
    request.result.createObjectStore("tips", { keyPath: "feedId" })
    request.result.createObjectStore("state")
    request.result.createObjectStore("conflicts", { autoIncrement: true })
  }
  return done(request)
}

const STORES = ["blocks", "tips", "state", "conflicts"]

/** Run `work` in one transaction; it may wait for requests of it, nothing else. */
function transact(database, mode, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORES, mode)
    const stores = Object.fromEntries(STORES.map((name) => [name, transaction.objectStore(name)]))
    let answer
    transaction.oncomplete = () => resolve(answer)
    transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"))
    Promise.resolve(work(stores)).then(
      (value) => (answer = value),
      (error) => {
        reject(error)
        transaction.abort()
      }
    )
  })
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}

const get = (source, key) => done(source.get(key))
const all = (source, range) => done(source.getAll(range))

async function highest(stores) {
  const cursor = await done(stores.blocks.index("position").openCursor(null, "prev"))
  return cursor?.value.position ?? 0
}

function toBase64(bytes) {
  let text = ""
  for (const byte of bytes) text += String.fromCharCode(byte)
  return btoa(text)
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

// --- Hashes and keys ---------------------------------------------------------

const KEY_PREFIX = "ed25519:"
const HASH_DOMAIN = "feedmill log block 1"

/** A key to write with. It can be kept in IndexedDB, and never leaves the browser. */
export function newKey() {
  return crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])
}

/** The actor id of a public key. */
export async function actorOf(publicKey) {
  return KEY_PREFIX + toHex(new Uint8Array(await crypto.subtle.exportKey("raw", publicKey)))
}

/** The content hash of a block in a space, as docs/protocol.md defines it. */
export function blockHash(space, block) {
  const encoder = new TextEncoder()
  const parts = []
  const number = (value) => {
    const bytes = new DataView(new ArrayBuffer(8))
    bytes.setBigUint64(0, BigInt(value))
    parts.push(new Uint8Array(bytes.buffer))
  }
  const text = (value) => {
    const bytes = encoder.encode(value)
    number(bytes.length)
    parts.push(bytes)
  }
  parts.push(encoder.encode(HASH_DOMAIN))
  text(space)
  text(block.feedId)
  text(block.actorId)
  number(block.sequence)
  if (block.predActorId === undefined) {
    parts.push(Uint8Array.of(0))
  } else {
    parts.push(Uint8Array.of(block.predHash === undefined ? 1 : 2))
    number(block.predSequence)
    text(block.predActorId)
    if (block.predHash !== undefined) parts.push(fromHex(block.predHash))
  }
  number(block.timestamp)
  const data = block.purged ? undefined : fromBase64(block.data)
  number(block.purged ? block.purged.bytes : data.length)
  parts.push(block.purged ? fromHex(block.purged.hash) : sha256([data]))
  return toHex(sha256(parts))
}

/** The first 32 bits of the fractional parts of a root of each of the first primes. */
function rootsOfPrimes(count, root) {
  const found = []
  for (let candidate = 2; found.length < count; candidate++) {
    let isPrime = true
    for (let divisor = 2; divisor * divisor <= candidate; divisor++) isPrime &&= candidate % divisor !== 0
    if (isPrime) found.push(((root(candidate) % 1) * 2 ** 32) >>> 0)
  }
  return found
}

const SHA_START = rootsOfPrimes(8, Math.sqrt)
const SHA_ROUNDS = rootsOfPrimes(64, Math.cbrt)

/**
 * SHA-256 of several pieces as one. The browser has its own only in secure
 * contexts, and a replica must be able to check what it reads everywhere.
 */
function sha256(parts) {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  const padded = new Uint8Array((((length + 8) >> 6) + 1) << 6)
  let at = 0
  for (const part of parts) {
    padded.set(part, at)
    at += part.length
  }
  padded[at] = 0x80
  const view = new DataView(padded.buffer)
  view.setBigUint64(padded.length - 8, BigInt(length) * 8n)
  const state = Uint32Array.from(SHA_START)
  const words = new Uint32Array(64)
  for (let block = 0; block < padded.length; block += 64) compress(state, words, view, block)
  const digest = new DataView(new ArrayBuffer(32))
  state.forEach((word, index) => digest.setUint32(index * 4, word))
  return new Uint8Array(digest.buffer)
}

function compress(state, words, view, block) {
  const turn = (word, by) => (word >>> by) | (word << (32 - by))
  for (let i = 0; i < 64; i++) {
    if (i < 16) {
      words[i] = view.getUint32(block + i * 4)
      continue
    }
    const [early, late] = [words[i - 15], words[i - 2]]
    const low = turn(early, 7) ^ turn(early, 18) ^ (early >>> 3)
    const high = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10)
    words[i] = words[i - 16] + low + words[i - 7] + high
  }
  let [a, b, c, d, e, f, g, h] = state
  for (let i = 0; i < 64; i++) {
    const choice = (e & f) ^ (~e & g)
    const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choice + SHA_ROUNDS[i] + words[i]) | 0
    const majority = (a & b) ^ (a & c) ^ (b & c)
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority) | 0
    ;[h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0]
  }
  ;[a, b, c, d, e, f, g, h].forEach((word, index) => (state[index] += word))
}

function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
}

function fromHex(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16))
}
