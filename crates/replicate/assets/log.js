// A replica of a log space in the browser, or wherever there is an IndexedDB.
//
// In:    the address of a Feedmill, a space, perhaps some of its feeds.
// Out:   the same blocks here, in IndexedDB, as they come; our own blocks there.
// Never: a block dropped because the server does not have it: it waits, and is
//        pushed again, or is listed with the reason; a block kept that is not
//        what its hash or signature says.
//
// No build step: import it, as it is, from the server that serves the log.
//
//   import { LogReplica } from "/log.js"
//   const log = await LogReplica.open({ space: "notes" })
//   log.addEventListener("change", async () => show(await log.read()))
//   await log.append("my-feed", "hello")
//
// Each replica writes as an actor of its own: a key that is made when it is first
// opened, kept in its database, and signs what it writes. `docs/log.md` is the guide.
//
// The rules are those of docs/protocol.md: blocks are pushed without positions
// and pulled with them; a pulled page answers for a whole range of positions, so
// applying it makes that range equal; a replaced or rolled-back server is noticed
// and healed by walking from the start.

const PULL_BLOCKS_MAX = 1000
const PUSH_BLOCKS_MAX = 500
/** Characters of base64 in one push, unless one block alone has more. */
const PUSH_CHARACTERS_MAX = 2 << 20
const POLL_MS_MAX = 30_000
const PAUSE_MS_MIN = 250
const PAUSE_MS_MAX = 30_000
const REPLY_MS_MAX = 30_000
/** Refusals that another sequence cures. */
const CURABLE = ["conflict", "predecessor"]
/** Refusals that end when the server has room again. */
const PASSING = ["spaceFull", "spaceBytes"]

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
  #mode
  #actorId
  #namespace
  #WebSocket
  #fetch
  #token
  #created = false
  #key
  #keys = new Map()
  #database
  #socket = null
  #subscribed = true
  #timer = null
  #socketTimer = null
  #running = null
  #again = false
  #failures = 0
  #socketFailures = 0
  #pushBlocks = PUSH_BLOCKS_MAX
  #requests = 0
  #closed = false

  /**
   * Open the replica and begin to replicate.
   *
   * @param {object} options
   * @param {string} [options.url] where the server is; the page's own origin unless given
   * @param {string} options.space
   * @param {string[]} [options.feeds] only these feeds; all unless given
   * @param {number} [options.from] only what has this position or a higher one
   * @param {boolean} [options.tail] only what comes after the first contact
   * @param {number} [options.since] only what got its position at this time or later, in Unix milliseconds
   * @param {CryptoKeyPair} [options.key] an Ed25519 key that signs what is written here: `newKey()`
   * @param {string} [options.actorId] who writes here, by name and without a signature; two replicas must not share it
   * @param {string} [options.namespace] given to feeds that are made here
   * @param {string} [options.token] that the server asks for; letters, digits and - . _ ~ only
   * @param {string} [options.name] of the database; one per replica
   */
  static async open(options) {
    const indexedDB = options.indexedDB ?? globalThis.indexedDB
    if (!indexedDB || !globalThis.IDBKeyRange) {
      throw new TypeError("there is no IndexedDB here: in Node, import one first, such as fake-indexeddb/auto")
    }
    const replica = new LogReplica(options)
    const name = options.name ?? `feedmill log ${replica.#base} ${options.space} ${(options.feeds ?? []).join(" ")}`
    replica.#database = await openDatabase(indexedDB, name)
    await replica.#become(options)
    await replica.#change((stores) => setMode(stores, replica.#mode))
    replica.#listen()
    replica.sync()
    return replica
  }

  constructor({ url, space, feeds, from = 0, tail = false, since, namespace, token, WebSocket, fetch }) {
    super()
    if (typeof space !== "string" || space === "") throw new TypeError("a replica needs the name of a space")
    if ((from > 0) + tail + (since !== undefined) > 1) throw new TypeError("give one of from, tail and since")
    this.#base = (url ?? globalThis.location.origin).replace(/\/$/, "")
    this.#space = space
    this.#feeds = feeds
    this.#mode = { from, tail, since, feeds }
    this.#namespace = namespace
    this.#token = token
    this.#WebSocket = WebSocket ?? globalThis.WebSocket
    this.#fetch = fetch ?? globalThis.fetch.bind(globalThis)
  }

  /** Who writes here: the key or the name that was given, or else an actor of this replica's own. */
  async #become({ actorId, key }) {
    if (key) {
      ;[this.#key, this.#actorId] = [key, await actorOf(key.publicKey)]
      if (actorId !== undefined && actorId !== this.#actorId) throw new TypeError("the key is of another actor")
      return
    }
    if (actorId !== undefined) {
      this.#actorId = actorId
      return
    }
    let own = await this.#look((stores) => get(stores.state, "actor"))
    if (!own) {
      const fresh = await newActor()
      own = await this.#change(async (stores) => {
        const other = await get(stores.state, "actor") // of another tab, which was first
        if (!other) stores.state.put(fresh, "actor")
        return other ?? fresh
      })
    }
    ;[this.#key, this.#actorId] = [own.key, own.actorId]
  }

  /** Who writes here. */
  get actorId() {
    return this.#actorId
  }

  /** Write the next block of a feed. Resolves when it is durable here; it is pushed when possible. */
  async append(feedId, data, { timestamp = Date.now() } = {}) {
    if (this.#feeds && !this.#feeds.includes(feedId)) throw new RangeError(`this replica does not replicate the feed ${feedId}`)
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data
    let block
    for (;;) {
      const tip = await this.#look((stores) => get(stores.tips, feedId))
      block = await this.#next(feedId, tip, { timestamp, data: toBase64(bytes) })
      // The tip is looked at again inside the transaction: two tabs never take the same sequence.
      const kept = await this.#change(async (stores) => {
        const now = await get(stores.tips, feedId)
        if (now?.sequence !== tip?.sequence || now?.actorId !== tip?.actorId || now?.hash !== tip?.hash) return false
        hold(stores, { ...block, local: true })
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
    const block = follow(tip, { feedId, actorId: this.#actorId, ...content }, (tip?.sequence ?? 0) + 1)
    if (block.sequence > Number.MAX_SAFE_INTEGER) throw new RangeError("the feed has used up its sequences")
    block.hash = blockHash(this.#space, block)
    if (this.#key) {
      const signature = await crypto.subtle.sign("Ed25519", this.#key.privateKey, fromHex(block.hash))
      block.signature = toBase64(new Uint8Array(signature))
    }
    return block
  }

  /**
   * Blocks in read order: by position, then those without one by sequence and
   * actor. `data` is a Uint8Array, `position` undefined while a block waits,
   * `refused` the reason why the server will not take it.
   */
  async read({ feedId, after = 0 } = {}) {
    const wanted = (block) => !feedId || block.feedId === feedId
    return this.#look(async (stores) => {
      const placed = await all(stores.blocks.index("position"), IDBKeyRange.lowerBound(after, true))
      const waiting = await all(stores.blocks.index("waiting"))
      return [...placed, ...waiting].filter(wanted).map(shown)
    })
  }

  /** Blocks that the server does not have and will not take as they are; `refused` says why. */
  async conflicts() {
    return this.#look(async (stores) => {
      const lost = (await all(stores.conflicts)).map((block) => ({ ...block, refused: "conflict", position: undefined }))
      const waiting = await all(stores.blocks.index("waiting"))
      return [...lost, ...waiting.filter((block) => block.refused)].map(shown)
    })
  }

  /** Push what was refused again: the reason may be gone. */
  async retryRefused() {
    await this.#change(async (stores) => {
      for (const { refused, ...block } of await all(stores.blocks.index("waiting"))) {
        if (refused) stores.blocks.put(block)
      }
    })
    return this.sync()
  }

  /** Drop what was refused. */
  async discardRefused() {
    await this.#change(async (stores) => {
      for (const block of await all(stores.blocks.index("waiting"))) {
        if (block.refused) stores.blocks.delete(block.key)
      }
    })
    this.#changed()
  }

  /** Drop the blocks whose key another block took. */
  forgetConflicts() {
    return this.#change((stores) => done(stores.conflicts.clear()))
  }

  /** How far this replica has come, how many blocks still wait, and how many the server will not take. */
  async status() {
    return this.#look(async (stores) => {
      const state = await get(stores.state, "state")
      const waiting = await all(stores.blocks.index("waiting"))
      const refused = waiting.filter((block) => block.refused).length
      const aside = refused + (await done(stores.conflicts.count()))
      return { after: state?.after ?? 0, epoch: state?.epoch, waiting: waiting.length - refused, aside }
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
    clearTimeout(this.#socketTimer)
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
      if (!this.#subscribed) this.#subscribe()
    } catch (error) {
      // Offline is a state, not a fault: try again later.
      pause = Math.max(pauseAfter(this.#failures++), error.answer?.retryAfterMs ?? 0)
      this.#tell("trouble", { error })
    }
    if (!this.#closed) this.#timer = setTimeout(() => this.sync(), pause)
  }

  async #pullAll() {
    let ahead = null
    for (;;) {
      if (this.#closed) return
      const { state, heldMax } = await this.#look(async (stores) => ({
        state: await get(stores.state, "state"),
        heldMax: await highest(stores),
      }))
      // The next page travels while this one is checked and written.
      const fits = ahead && ahead.cursor === state.cursor && !state.healing
      const asked = fits ? ahead : this.#askPage(startOf(state), heldMax)
      ahead = null
      let page
      try {
        page = await asked.page
      } catch (error) {
        if (error.code === "unknownSpace" && !state.epoch) return
        if (error.code === "beyondEnd" && (state.healing || error.answer.maxPosition >= asked.heldMax)) {
          // It was set to begin where the server has not come yet: it begins at that end.
          await this.#change((stores) => stores.state.put({ ...state, after: error.answer.maxPosition }, "state"))
          continue
        }
        if (!isOtherHistory(error)) throw error
        await this.#heal(error.answer.epoch)
        continue
      }
      const replaced = state.epoch !== undefined && state.epoch !== page.epoch
      if (replaced || (!state.healing && page.maxPosition < asked.heldMax)) {
        await this.#heal(page.epoch)
        continue
      }
      if (state.resolved && page.after !== state.after) throw new Error("the page is not the one asked for")
      if (page.hasMore) {
        ahead = { ...this.#askPage({ cursor: page.nextCursor }, Math.max(heldMax, page.covered)), cursor: page.nextCursor }
        ahead.page.catch(() => {}) // whoever waits for it is told
      }
      const checks = page.blocks.map((block) => this.#verify(block))
      await Promise.all(checks)
      const adopted = await this.#change((stores) => adopt(stores, this.#space, this.#feeds, state, page))
      if (adopted?.changed) this.#changed()
      if (adopted?.aside.length > 0) this.#tell("conflict", { blocks: adopted.aside.map(shown) })
      if (!page.hasMore) return
    }
  }

  #askPage(start, heldMax) {
    const wanted = this.#feeds ? { feedIds: this.#feeds } : {}
    return { heldMax, page: this.#ask("query", { ...wanted, ...start, limit: PULL_BLOCKS_MAX, skipGone: true }) }
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
      key = crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]).catch((error) => {
        if (error.name === "NotSupportedError") return null
        throw new DamagedError("its actor is not a key", block)
      })
      this.#keys.set(block.actorId, key)
    }
    key = await key
    if (key === null) return
    const signature = fromBase64(block.signature ?? "")
    const holds = await crypto.subtle.verify("Ed25519", key, signature, fromHex(hash))
    if (!holds) throw new DamagedError("its signature does not hold", block)
  }

  /**
   * The server is not what it was: walk again what was asked for, losing nothing. If the server still
   * has the history before that, its start is where it was; else everything is walked.
   */
  #heal(epoch) {
    return this.#change(async (stores) => {
      const { mode, start, sentBack } = await get(stores.state, "state")
      // Sent back twice without a page between: the server does not have the start either.
      const again = start !== undefined && !sentBack
      const from = again ? { ...start, start } : { after: 0, cursor: undefined, start: undefined }
      stores.state.put({ mode, epoch, ...from, sentBack: again, resolved: true, healing: true }, "state")
    })
  }

  /** Push what waits; true if there may be more to do. */
  async #pushSome() {
    const { batch, lost } = await this.#look((stores) => toPush(stores, this.#namespace, this.#pushBlocks))
    if (lost !== undefined) return this.#reissue(lost)
    if (batch.length === 0) return false
    // Positions count only in the history that was pulled, so a push names it.
    const { cursor } = await this.#look((stores) => get(stores.state, "state"))
    const namespace = batch[0].namespace ?? this.#namespace
    let answer
    try {
      answer = await this.#ask("append", { namespace, cursor, blocks: batch.map(wire) })
    } catch (error) {
      return this.#refused(batch, error)
    }
    const state = await this.#look((stores) => get(stores.state, "state"))
    if (state.epoch !== undefined && state.epoch !== answer.epoch) return true
    if (answer.positions.length !== batch.length) throw new Error("the server gives no positions: it is a replica itself")
    await this.#change((stores) => placeAll(stores, batch, answer.positions))
    this.#pushBlocks = Math.min(this.#pushBlocks * 2, PUSH_BLOCKS_MAX)
    this.#changed()
    return true
  }

  /** What becomes of a push that was refused: true if it is worth going on at once. */
  async #refused(batch, error) {
    if (isOtherHistory(error)) {
      await this.#heal(error.answer.epoch)
      return true
    }
    const named = (error.answer?.blocks ?? []).filter(({ index }) => batch[index])
    let aside = named.filter((block) => !PASSING.includes(block.error))
    if (named.length === 0) {
      if (!["tooLarge", "badRequest"].includes(error.code)) throw error
      if (batch.length > 1) {
        // Nobody says which block it is, or all of them are too much: half of them may do.
        this.#pushBlocks = Math.ceil(batch.length / 2)
        return true
      }
      aside = [{ index: 0, error: error.code }]
    }
    if (aside.length === 0) throw error
    const set = aside.map((block) => ({ ...batch[block.index], refused: block.error }))
    await this.#change((stores) => Promise.all(set.map((block) => replace(stores, block))))
    this.#changed()
    const lasting = set.filter((block) => !isLost(block))
    if (lasting.length > 0) this.#tell("conflict", { blocks: lasting.map(shown) })
    return true
  }

  /** Write the blocks of a feed again that lost their key, behind its newest block at the server. */
  async #reissue(feedId) {
    const { feeds } = await this.#ask("list", { feedId })
    const newest = feeds.find((feed) => feed.feedId === feedId)?.tip
    await this.#change(async (stores) => {
      const waiting = await all(stores.blocks.index("waiting"))
      const lost = waiting.filter((block) => block.feedId === feedId && isLost(block))
      await reissue(stores, this.#space, feedId, lost, newest)
    })
    this.#changed()
    return true
  }

  async #ask(kind, message) {
    const requestId = `${Date.now()}-${++this.#requests}`
    const url = `${this.#base}/log/${encodeURIComponent(this.#space)}/${kind}`
    const headers = { "content-type": "application/json" }
    if (this.#token) headers.authorization = `Bearer ${this.#token}`
    const response = await this.#fetch(url, {
      method: "POST",
      headers,
      body: JSON.stringify({ requestId, ...message }),
      signal: AbortSignal.timeout(REPLY_MS_MAX),
    })
    const answer = await response.json()
    if (answer.error === "unknownSpace" && kind !== "create" && !this.#created) {
      // Whoever may create spaces creates this one; for others it stays unknown.
      this.#created = true
      const made = await this.#ask("create", {}).catch((error) => {
        if (!["unauthorized", "notAllowed"].includes(error.code)) throw error
      })
      if (made) return this.#ask(kind, message)
    }
    if (answer.error) throw new LogError(answer)
    if (answer.requestId !== requestId) throw new Error("the reply is to another request")
    return answer
  }

  /** Ask for hints. Without them the replica polls. */
  #listen() {
    if (!this.#WebSocket || this.#closed) return
    const address = `${this.#base.replace(/^http/, "ws")}/log/${encodeURIComponent(this.#space)}`
    // A browser sets no headers here, so the token is one more protocol that is offered.
    const protocols = this.#token ? ["feedmill.log", `feedmill.token.${this.#token}`] : ["feedmill.log"]
    const socket = new this.#WebSocket(address, protocols)
    this.#socket = socket
    socket.onopen = () => {
      this.#socketFailures = 0
      this.#subscribe()
      this.sync()
    }
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data)
      // The space may not be there yet: it is asked again after the next round.
      this.#subscribed = !message.error
      if (!message.error) this.sync()
    }
    socket.onclose = () => {
      this.#subscribed = true
      if (this.#closed) return
      this.#socketTimer = setTimeout(() => this.#listen(), pauseAfter(this.#socketFailures++))
    }
    socket.onerror = () => {}
  }

  #subscribe() {
    const wanted = this.#feeds ? { feedIds: this.#feeds } : {}
    this.#socket.send(JSON.stringify({ type: "subscribe", requestId: "hints", ...wanted }))
  }

  #changed() {
    this.dispatchEvent(new Event("change"))
  }

  #tell(name, fields) {
    this.dispatchEvent(Object.assign(new Event(name), fields))
  }

  // --- The database ----------------------------------------------------------

  #look(work) {
    return transact(this.#database, "readonly", work)
  }

  #change(work) {
    return transact(this.#database, "readwrite", work)
  }
}

/** How long to wait after so many failures in a row; not quite the same for everybody. */
function pauseAfter(failures) {
  return Math.min(PAUSE_MS_MIN * 2 ** failures, PAUSE_MS_MAX) * (1 + Math.random() / 4)
}

/** Whether the server no longer has the history that a cursor is from. */
function isOtherHistory({ code }) {
  return ["replaced", "rolledBack", "badCursor", "beyondEnd"].includes(code)
}

/** An actor of a replica's own: a key, or where there are none a name that nobody else has. */
async function newActor() {
  try {
    const key = await newKey()
    return { key, actorId: await actorOf(key.publicKey) }
  } catch {
    // Pages that were not served securely have no keys, and older browsers none of this kind.
    return { actorId: `replica-${toHex(crypto.getRandomValues(new Uint8Array(16)))}` }
  }
}

/** Note what is asked for. Who asks for something else walks again, and answers for what is held already. */
async function setMode(stores, { from, tail, since, feeds }) {
  const mode = JSON.stringify([from, tail, since ?? null, feeds ?? null])
  const state = await get(stores.state, "state")
  if (state?.mode === mode) return
  const lowest = (await done(stores.blocks.index("position").openKeyCursor()))?.key
  const fresh = { mode, epoch: state?.epoch, after: Math.max(from - 1, 0), resolved: !tail && since === undefined, tail, since }
  if (lowest !== undefined) {
    const asked = tail ? Infinity : fresh.resolved ? fresh.after : 0
    Object.assign(fresh, { after: state?.healing ? 0 : Math.min(asked, lowest - 1), resolved: true })
  }
  stores.state.put({ ...fresh, healing: state?.healing ?? false }, "state")
}

/** Where the next page starts. */
function startOf({ cursor, after, resolved, tail, since }) {
  if (cursor !== undefined) return { cursor }
  if (resolved) return { cursor: after }
  return tail ? { tail } : { since }
}

/** A block as readers see it. */
function shown(block) {
  const { feedId, actorId, sequence, timestamp, position, refused, data } = block
  const bytes = data === undefined ? undefined : fromBase64(data)
  return { feedId, actorId, sequence, timestamp, position, refused, data: bytes }
}

/**
 * Make what is held in (after, covered] of the feeds asked for equal to the page. Tells whether anything
 * changed, and which blocks lost their key and cannot be written again; nothing if the page is not wanted any more.
 */
async function adopt(stores, space, feeds, asked, page) {
  const state = await get(stores.state, "state")
  if (state.cursor !== asked.cursor || state.after !== asked.after || state.mode !== asked.mode) return undefined
  const newest = await highest(stores)
  const waits = await done(stores.blocks.index("waiting").count())
  const aside = []
  let changed = page.blocks.length > 0
  if (newest <= page.after && waits === 0) {
    // Nothing is held that the page could touch.
    for (const { position, ...block } of page.blocks) stores.blocks.put({ ...block, key: keyOf(block), position })
  } else {
    const lost = new Map()
    changed = await merge(stores, feeds, page, lost, aside)
    await raiseTips(stores, page.blocks)
    for (const [feedId, blocks] of lost) {
      const pulled = page.blocks.filter((block) => block.feedId === feedId)
      aside.push(...(await reissue(stores, space, feedId, blocks, pulled.reduce(later))))
    }
  }
  await raiseTips(stores, page.blocks)
  let { healing, start } = state
  if (healing && !page.hasMore) {
    healing = false
    const beyond = IDBKeyRange.lowerBound(page.covered, true)
    for (const held of await all(stores.blocks.index("position"), beyond)) {
      unplace(stores, held)
      changed = true
    }
  }
  if (state.cursor === undefined && page.after > 0) {
    const cursor = page.startCursor ?? (page.covered === page.after ? page.nextCursor : undefined)
    start = cursor === undefined ? undefined : { after: page.after, cursor }
  }
  const { mode } = state
  stores.state.put(
    { mode, epoch: page.epoch, after: page.covered, cursor: page.nextCursor, resolved: true, healing, start },
    "state"
  )
  return { changed, aside }
}

/** The same where something is held. True if anything changed; `lost` gathers what can be written again. */
async function merge(stores, feeds, page, lost, aside) {
  const present = new Set(page.blocks.map(keyOf))
  const evicted = new Map((page.evicted ?? []).map(({ feedId, through }) => [feedId, through]))
  const ours = await Promise.all(page.blocks.map((block) => get(stores.blocks, keyOf(block))))
  const taken = new Set(page.blocks.map(({ position }) => position))
  let changed = false
  if (page.covered > page.after) {
    const range = IDBKeyRange.bound(page.after, page.covered, true, false)
    for (const held of await all(stores.blocks.index("position"), range)) {
      if (present.has(held.key) || (feeds && !feeds.includes(held.feedId))) continue
      // What was evicted is known again when it is pushed, unless that is long ago.
      const through = Math.min(evicted.get(held.feedId) ?? 0, page.forgotten ?? 0)
      if (held.position <= through && !taken.has(held.position)) continue
      unplace(stores, held)
      changed = true
    }
  }
  for (const [index, theirs] of page.blocks.entries()) {
    const held = ours[index]
    const isSame = held?.hash === theirs.hash
    if (isSame && held.position === theirs.position && (held.purged !== undefined) === (theirs.purged !== undefined)) continue
    changed = true
    if (held && !isSame) {
      if (canReissue(held)) lost.set(held.feedId, [...(lost.get(held.feedId) ?? []), held])
      else {
        stores.conflicts.put(held)
        aside.push({ ...held, refused: "conflict" })
      }
    }
    const record = { ...theirs, key: keyOf(theirs) }
    if (isSame && held.local) record.local = true
    stores.blocks.put(record)
  }
  return changed
}

/** Let the newest block of each feed be known; of two under one name the server's counts. */
async function raiseTips(stores, blocks) {
  const newest = new Map()
  for (const block of blocks) newest.set(block.feedId, newest.has(block.feedId) ? later(newest.get(block.feedId), block) : block)
  for (const [feedId, block] of newest) {
    const tip = await get(stores.tips, feedId)
    if (!tip || later(tip, block) === block) stores.tips.put(tipOf(block))
  }
}

/** The one of two blocks that comes later in Lamport order; the second if they have one name. */
function later(one, other) {
  if (one.sequence !== other.sequence) return one.sequence > other.sequence ? one : other
  return compareText(one.actorId, other.actorId) > 0 ? one : other
}

/** Whether this replica may write the content of a block again under another sequence. */
function canReissue(block) {
  return Boolean(block.local) && block.signature === undefined && block.data !== undefined
}

/** Whether a block was refused for a reason that another sequence cures. */
function isLost(block) {
  return CURABLE.includes(block.refused) && canReissue(block)
}

/**
 * Write blocks of a feed again that lost their key, and the waiting ones that follow them: the same
 * contents, in order, behind `newest`. Returns those that cannot be.
 */
async function reissue(stores, space, feedId, lost, newest) {
  const moved = new Map(lost.map((block) => [block.hash, block]))
  const waiting = (await all(stores.blocks.index("waiting"))).filter((block) => block.feedId === feedId)
  for (const block of waiting) {
    const isFollower = block.predHash !== undefined && moved.has(block.predHash)
    if (isFollower && canReissue(block)) moved.set(block.hash, block)
  }
  for (const { key, hash } of moved.values()) {
    // A block of the server may be under that key by now.
    if ((await get(stores.blocks, key))?.hash === hash) stores.blocks.delete(key)
  }
  let tip = await get(stores.tips, feedId)
  let sequence = Math.max(tip?.sequence ?? 0, newest?.sequence ?? 0)
  if (tip && moved.has(tip.hash)) tip = undefined
  const stays = waiting.filter((block) => !moved.has(block.hash))
  const known = [tip, ...stays, newest].filter(Boolean)
  tip = known.length > 0 ? known.reduce(later) : undefined
  const inOrder = [...moved.values()].sort((one, other) => one.sequence - other.sequence || compareText(one.actorId, other.actorId))
  const aside = []
  for (const { actorId, timestamp, data, namespace, ...old } of inOrder) {
    sequence += 1
    if (sequence > Number.MAX_SAFE_INTEGER) {
      stores.conflicts.put({ ...old, actorId, timestamp, data })
      aside.push({ ...old, actorId, timestamp, data, refused: "exhausted" })
      continue
    }
    const block = follow(tip, { feedId, actorId, timestamp, data }, sequence)
    block.hash = blockHash(space, block)
    tip = tipOf(block)
    if (namespace !== undefined) block.namespace = namespace
    hold(stores, { ...block, local: true })
  }
  if (tip) stores.tips.put(tipOf({ ...tip, feedId }))
  return aside
}

/** A block with its sequence and the block it stands on. */
function follow(tip, content, sequence) {
  const block = { ...content, sequence }
  if (!tip) return block
  block.predSequence = tip.sequence
  block.predActorId = tip.actorId
  if (tip.hash) block.predHash = tip.hash
  return block
}

/** The next push: so many blocks, and not too many bytes. Or a feed whose blocks must be written again first. */
async function toPush(stores, namespace, blocksMax) {
  const batch = []
  let characters = 0
  let lost
  await each(stores.blocks.index("waiting"), (block) => {
    if (block.refused) {
      if (isLost(block)) lost = block.feedId
      return lost === undefined
    }
    // One append names one namespace; a block pulled from a server has its own.
    const isOther = batch.length > 0 && (block.namespace ?? namespace) !== (batch[0].namespace ?? namespace)
    characters += (block.data ?? "").length
    if (isOther || (batch.length > 0 && characters > PUSH_CHARACTERS_MAX)) return false
    batch.push(block)
    return batch.length < blocksMax
  })
  return { batch, lost }
}

/** Put pushed blocks at their positions; whoever stands there waits again. */
async function placeAll(stores, batch, positions) {
  const held = await Promise.all(batch.map((block) => get(stores.blocks, block.key)))
  const holders = await Promise.all(positions.map((position) => get(stores.blocks.index("position"), position)))
  const placed = new Set(batch.map(({ key }) => key))
  for (const holder of holders) if (holder && !placed.has(holder.key)) unplace(stores, holder)
  for (const [index, block] of batch.entries()) {
    // Another tab may have written it again meanwhile.
    if (held[index]?.hash !== block.hash) continue
    const { waiting, refused, ...rest } = held[index]
    stores.blocks.put({ ...rest, position: positions[index] })
  }
}

/** Put a changed block where it was, unless it is not there any more. */
async function replace(stores, block) {
  const held = await get(stores.blocks, block.key)
  if (held?.hash === block.hash && held.position === undefined) stores.blocks.put(block)
}

function tipOf({ feedId, sequence, actorId, hash }) {
  return { feedId, sequence, actorId, hash }
}

/** Keep a block that has no position yet. */
function hold(stores, block) {
  stores.blocks.put({ ...block, key: keyOf(block), waiting: [block.sequence, block.actorId, block.feedId] })
}

function unplace(stores, { position, ...block }) {
  hold(stores, block)
}

function keyOf(block) {
  return JSON.stringify([block.feedId, block.sequence, block.actorId])
}

function compareText(one, other) {
  return one === other ? 0 : one > other ? 1 : -1
}

/** A block as the wire wants it. */
function wire({ key, waiting, refused, position, namespace, local, ...block }) {
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

/** Run `work` in one transaction; it may wait for requests of it, nothing else. What it wrote is durable at the end. */
function transact(database, mode, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORES, mode, { durability: "strict" })
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

/** Show records in order until `look` returns false. */
function each(source, look) {
  return new Promise((resolve, reject) => {
    const request = source.openCursor()
    request.onerror = () => reject(request.error)
    request.onsuccess = () => {
      const cursor = request.result
      if (!cursor || !look(cursor.value)) return resolve()
      cursor.continue()
    }
  })
}

async function highest(stores) {
  return (await done(stores.blocks.index("position").openKeyCursor(null, "prev")))?.key ?? 0
}

function toBase64(bytes) {
  let text = ""
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return btoa(text)
}

function fromBase64(text) {
  const decoded = atob(text)
  const bytes = new Uint8Array(decoded.length)
  for (let at = 0; at < decoded.length; at++) bytes[at] = decoded.charCodeAt(at)
  return bytes
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
const SHA_ROUNDS = Uint32Array.from(rootsOfPrimes(64, Math.cbrt))

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
  for (let i = 0; i < 16; i++) words[i] = view.getUint32(block + i * 4)
  for (let i = 16; i < 64; i++) {
    const early = words[i - 15]
    const late = words[i - 2]
    const low = ((early >>> 7) | (early << 25)) ^ ((early >>> 18) | (early << 14)) ^ (early >>> 3)
    const high = ((late >>> 17) | (late << 15)) ^ ((late >>> 19) | (late << 13)) ^ (late >>> 10)
    words[i] = words[i - 16] + low + words[i - 7] + high
  }
  let a = state[0], b = state[1], c = state[2], d = state[3]
  let e = state[4], f = state[5], g = state[6], h = state[7]
  for (let i = 0; i < 64; i++) {
    const sigma1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))
    const first = (h + sigma1 + ((e & f) ^ (~e & g)) + SHA_ROUNDS[i] + words[i]) | 0
    const sigma0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))
    const second = (sigma0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
    h = g
    g = f
    f = e
    e = (d + first) | 0
    d = c
    c = b
    b = a
    a = (first + second) | 0
  }
  const sums = [a, b, c, d, e, f, g, h]
  for (let i = 0; i < 8; i++) state[i] += sums[i]
}

function toHex(bytes) {
  let digits = ""
  for (const byte of bytes) digits += (byte + 256).toString(16).slice(1)
  return digits
}

function fromHex(digits) {
  const bytes = new Uint8Array(digits.length >> 1)
  for (let at = 0; at < bytes.length; at++) bytes[at] = parseInt(digits.slice(at * 2, at * 2 + 2), 16)
  return bytes
}
