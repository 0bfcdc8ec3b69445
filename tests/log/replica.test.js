// The browser's replica of a log, against a running server. Runs in Node with an
// IndexedDB of its own, and in a browser as it is: tests/log/run.
export async function testReplica({ log: { LogReplica, blockHash, newKey, actorOf }, url, check, sleep }) {
  const space = `test ${Date.now()} ${Math.random()}`
  const text = (block) => new TextDecoder().decode(block.data)
  const until = async (what, done) => {
    for (let tries = 0; tries < 400; tries++) {
      if (await done()) return check(what, true)
      await sleep(50)
    }
    check(what, false)
  }
  const open = (name, actorId, more = {}) =>
    LogReplica.open({ url, space, actorId, name: `${space} ${name}`, ...more })
  const texts = async (log, feedId) => (await log.read({ feedId })).map(text).join(" ")

  let ada = await open("ada", "ada")
  await ada.append("f", "one")
  await ada.append("f", "two")
  check("a block can be read before it has a position", (await texts(ada, "f")) === "one two")
  await until("what is written here gets its position", async () => (await ada.status()).waiting === 0)

  const bob = await open("bob", "bob")
  await until("a second replica catches up", async () => (await texts(bob, "f")) === "one two")
  await bob.append("f", "three")
  await until("what is written there is tailed here", async () => (await texts(ada, "f")) === "one two three")
  const [, , third] = await ada.read({ feedId: "f" })
  check("sequences go on over all actors", third.sequence === 3 && third.actorId === "bob")

  await ada.close()
  await bob.append("f", "four")
  await bob.append("g", "elsewhere")
  ada = await open("ada", "ada")
  check("a reload finds everything where it was", (await texts(ada, "f")).startsWith("one two three"))
  await until("and catches up", async () => (await texts(ada, "f")) === "one two three four")

  const partial = await open("partial", "carol", { feeds: ["g"] })
  await until("a partial replica holds its feed", async () => (await texts(partial)) === "elsewhere")
  check("and nothing else", (await partial.read()).length === 1)

  const offline = await open("offline", "dora", { url: "http://127.0.0.1:1" })
  await offline.append("f", "kept")
  check("offline, a block is kept and waits", (await offline.status()).waiting === 1)

  await until("replicas agree on every position", async () => {
    const order = async (log) => JSON.stringify((await log.read()).map((b) => [b.position, text(b)]))
    return (await order(ada)) === (await order(bob))
  })

  // The example of docs/protocol.md.
  const known = { feedId: "feed", actorId: "ada", sequence: 7, predSequence: 6, predActorId: "bob", timestamp: 1700000000000 }
  const hello = { ...known, data: btoa("hello") }
  const expected = "f59e2c89c9be46077b5d397e6f5af497cc316926951612faedb4e11eeb5a9bd7"
  check("a block's hash is the documented one", blockHash("space", hello) === expected)
  for (const length of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    // A purged block names the hash of its content, so both must agree if the content's hash is right.
    const bytes = Uint8Array.from({ length }, (_, index) => index)
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))
    const hash = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("")
    const whole = blockHash("s", { ...known, data: btoa(String.fromCharCode(...bytes)) })
    check(`SHA-256 of ${length} bytes`, whole === blockHash("s", { ...known, purged: { hash, bytes: length } }))
  }

  const key = await newKey()
  const signer = await open("signer", undefined, { key })
  const actor = await actorOf(key.publicKey)
  await signer.append("f", "signed")
  await until("a signed block is accepted", async () => (await signer.status()).waiting === 0)
  await until("and read by others", async () => (await ada.read({ feedId: "f" })).some((b) => b.actorId === actor))

  // A server that changes what it was given, until it does not.
  let lies = true
  const lying = async (...request) => {
    const answer = await (await fetch(...request)).json()
    if (lies) answer.blocks?.forEach((block) => (block.data = btoa("forged")))
    return { json: async () => answer }
  }
  let trouble
  const wary = await open("wary", "eve", { fetch: lying })
  wary.addEventListener("trouble", ({ error }) => (trouble = error))
  await until("a block that is not what its hash says is noticed", async () => trouble?.code === "damaged")
  check("and not kept", (await wary.read()).length === 0)
  lies = false
  wary.sync()
  await until("what is right is kept", async () => (await texts(wary, "f")) === (await texts(ada, "f")))
  await Promise.all([signer, wary].map((log) => log.close()))

  await testRestored({ open, until, check, texts })
  await testActors({ open, until, check, texts, newKey })
  await testRefused({ open, until, check, texts })
  await testRanges({ open, until, check, texts })
  await testCatchUp({ open, check, url, space })
  await testCatchUp({ open, check, url, space: `${space} signed`, signer: { key, actor, blockHash } })
  await testDeleted({ open, until, check, url, space: `${space} deleted` })

  await Promise.all([ada, bob, partial, offline].map((log) => log.close()))
}

// A server that was brought back from a copy says so when it is pushed to, and may have evicted
// what stood at a position since. The real one answers, but for what `meddle` puts in its mouth.
async function testRestored({ open, until, check, texts }) {
  let pushes = []
  let meddle = {}
  const restored = async (address, options) => {
    const request = JSON.parse(options.body)
    const isPush = address.endsWith("/append")
    if (isPush) pushes.push(request)
    if (isPush && meddle.epoch) {
      const { epoch, then } = meddle
      meddle = then ?? {}
      return { json: async () => ({ requestId: request.requestId, error: "rolledBack", epoch, maxPosition: 0 }) }
    }
    const answer = await (await fetch(address, options)).json()
    if (!isPush && meddle.evicted) {
      const { position } = meddle.evicted
      answer.blocks = answer.blocks.filter((block) => block.position !== position)
      answer.evicted = [{ feedId: "h", through: position }]
      if (meddle.forgotten) answer.forgotten = position
    }
    return { json: async () => answer }
  }
  const carol = await open("restored", "carol", { fetch: restored })
  const settled = async () => (await carol.status()).waiting === 0 && !meddle.epoch
  await carol.append("h", "first")
  await until("a block is pushed", settled)
  const [first] = await carol.read({ feedId: "h" })
  await until("and pulled", async () => (await carol.status()).after >= first.position)

  for (const forgotten of [false, true]) {
    pushes = []
    meddle = { ...(await carol.status()), then: { evicted: first, forgotten } }
    await carol.append("h", forgotten ? "third" : "second")
    await until("a push to another history is refused, healed and repeated", settled)
    check("it names the history it is meant for", typeof pushes[0].cursor === "string")
    const again = pushes.some(({ blocks }) => blocks.some(({ sequence }) => sequence === first.sequence))
    check(`a block that was evicted is ${forgotten ? "left alone if that is forgotten" : "asked about"}`, again !== forgotten)
    const [now] = await carol.read({ feedId: "h" })
    check("and stands where it stood", now.position === first.position)
    meddle = {}
  }
  check("nothing came twice", (await texts(carol, "h")) === "first second third")
  await carol.close()
}

// Two replicas that write offline never lose anything, whoever they say they are.
async function testActors({ open, until, check, texts, newKey }) {
  const offline = { url: "http://127.0.0.1:1" }
  let own = await open("own", undefined, offline)
  const { actorId } = own
  check("a replica without an actor has one of its own", actorId.startsWith("ed25519:"))
  await own.close()
  own = await open("own", undefined, offline)
  check("and keeps it", own.actorId === actorId)
  await own.close()
  let message
  await open("nobody", "x", { space: "" }).catch((error) => ({ message } = error))
  check("a replica without a space is refused", message?.includes("space"))

  const twins = []
  for (const name of ["twin 1", "twin 2"]) {
    const twin = await open(name, "twin", offline)
    for (const what of ["first", "second"]) await twin.append("t", `${what} of ${name}.`)
    await twin.close()
    twins.push(await open(name, "twin"))
    await until(`${name} sends what it wrote`, async () => (await twins.at(-1).status()).waiting === 0)
  }
  const all = "first of twin 1. second of twin 1. first of twin 2. second of twin 2."
  for (const twin of twins) {
    await until("what lost its sequence was written again", async () => (await texts(twin, "t")) === all)
    check("and nothing is aside", (await twin.status()).aside === 0)
  }
  await Promise.all(twins.map((twin) => twin.close()))

  const key = await newKey()
  for (const name of ["signed 1", "signed 2"]) {
    const before = await open(name, undefined, { key, ...offline })
    await before.append("s", `${name} first`)
    await before.append("s", `${name} second`)
    await before.close()
    const told = []
    const twin = await open(name, undefined, { key })
    twin.addEventListener("conflict", ({ blocks }) => told.push(...blocks))
    await until(`${name} settles`, async () => (await twin.status()).waiting === 0 && (await twin.status()).after > 0)
    if (name === "signed 2") {
      await until("what is signed and lost its sequence is reported", () => told.length > 0)
      await until("and listed", async () => (await twin.status()).aside === 2)
      const listed = (await twin.conflicts()).map((block) => new TextDecoder().decode(block.data))
      check("with its content", listed.sort().join() === "signed 2 first,signed 2 second")
    }
    await twin.close()
  }
}

// What the server will not take holds up nothing else.
async function testRefused({ open, until, check, texts }) {
  const log = await open("refused", "fay")
  const told = []
  log.addEventListener("conflict", ({ blocks }) => told.push(...blocks))
  for (let number = 0; number < 12; number++) await log.append("large", new Uint8Array(900_000).fill(number))
  await log.append("large", new Uint8Array(1_100_000))
  await log.append("large", "small")
  await until("twelve blocks of 0.9 MB are sent", async () => (await log.status()).waiting === 0)
  const [refused, ...more] = await log.conflicts()
  check("one that is too large is set aside", refused.refused === "tooLarge" && refused.data.length === 1_100_000)
  check("and no other", more.length === 0 && told.length === 1)
  const other = await open("refused reader", "gus", { feeds: ["large"] })
  await until("others read them", async () => (await other.read()).length === 13)
  check("also what was written behind it", (await texts(other, "large")).endsWith("small"))

  await log.discardRefused()
  check("what is refused can be dropped", (await log.conflicts()).length === 0 && (await log.status()).aside === 0)
  check("and nothing else is", (await log.read()).filter(({ feedId }) => feedId === "large").length === 13)

  // A server that takes little at once, and does not say what is wrong.
  let asked = 0
  const narrow = async (address, options) => {
    const request = JSON.parse(options.body)
    if (address.endsWith("/append") && request.blocks.length > 3) {
      asked += 1
      return { json: async () => ({ requestId: request.requestId, error: "tooLarge", limit: "batch_bytes_max", max: 3 }) }
    }
    return fetch(address, options)
  }
  const patient = await open("narrow", "hal", { fetch: narrow })
  await Promise.all(Array.from({ length: 20 }, (_, number) => patient.append("n", String(number))))
  await until("a push that is too large is halved", async () => (await patient.status()).waiting === 0 && asked > 0)
  check("and nothing of it is lost", (await patient.read({ feedId: "n" })).length === 20)
  await Promise.all([log, other, patient].map((log) => log.close()))
}

// A replica of a part holds that part.
async function testRanges({ open, until, check, texts }) {
  const writer = await open("ranges", "ida")
  const write = async (text) => {
    await writer.append("r", text)
    await until(`${text} is sent`, async () => (await writer.status()).waiting === 0)
  }
  await write("one")
  await write("two")
  const [first, second] = await writer.read({ feedId: "r" })
  const from = await open("from", undefined, { feeds: ["r"], from: second.position })
  await until("from a position on", async () => (await texts(from)) === "two")
  const since = await open("since", undefined, { feeds: ["r"], since: 9007199254740991 })
  const tail = await open("tail", undefined, { feeds: ["r"], tail: true })
  const later = await open("later", undefined, { feeds: ["r"], from: second.position + 1000 })
  for (const log of [since, tail, later]) {
    await until("what begins at the end has begun", async () => (await log.status()).epoch !== undefined)
  }
  await write("three")
  await until("the tail only", async () => (await texts(tail)) === "three")
  await until("since a time", async () => (await texts(since)) === "three")
  await until("a start that lies ahead begins at the end", async () => (await texts(later)) === "three")
  await from.close()
  const whole = await open("from", undefined, { feeds: ["r"] })
  await until("who asks for more gets it", async () => (await texts(whole)) === "one two three")
  const trouble = await open("two starts", undefined, { tail: true, from: first.position }).catch((error) => error)
  check("two starts are refused", trouble instanceof TypeError)
  await Promise.all([writer, since, tail, later, whole].map((log) => log.close()))
}

// A space that was deleted is not brought back by who still has its blocks.
async function testDeleted({ open, until, check, url, space }) {
  const ask = async (kind) => {
    const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ requestId: kind }) }
    return (await fetch(`${url}/log/${encodeURIComponent(space)}/${kind}`, options)).json()
  }
  const log = await open("deleted", "kim", { space })
  await log.append("f", "kept")
  await until("what is written is sent", async () => (await log.status()).waiting === 0)
  await ask("delete")
  let trouble
  log.addEventListener("trouble", ({ error }) => (trouble = error))
  await log.append("f", "later")
  await until("that the space was deleted is reported", async () => trouble?.code === "spaceDeleted")
  check("and it stays so", (await ask("query")).error === "spaceDeleted")
  await ask("create")
  log.sync()
  await until("whoever creates it again is given both blocks", async () => (await ask("query")).blocks?.length === 2)
  const partial = await open("writes elsewhere", undefined, { space, feeds: ["g"] })
  const refused = await partial.append("f", "never sent").catch((error) => error)
  check("a feed that is left out is not written to", refused instanceof RangeError)
  await Promise.all([log, partial].map((log) => log.close()))
}

// A long history comes in few requests, and each page while the one before is written.
async function testCatchUp({ open, check, url, space, signer }) {
  const blocks = 20_000
  const data = btoa("x".repeat(200))
  const make = async (number) => {
    const block = { feedId: `many ${number % 50}`, actorId: "joe", sequence: Math.floor(number / 50) + 1, timestamp: 1, data }
    if (!signer) return block
    block.actorId = signer.actor
    const hash = Uint8Array.from(signer.blockHash(space, block).match(/../g), (pair) => parseInt(pair, 16))
    const signature = new Uint8Array(await crypto.subtle.sign("Ed25519", signer.key.privateKey, hash))
    return { ...block, signature: btoa(String.fromCharCode(...signature)) }
  }
  for (let done = 0; done < blocks; done += 1000) {
    const batch = await Promise.all(Array.from({ length: 1000 }, (_, at) => make(done + at)))
    const body = JSON.stringify({ requestId: done, blocks: batch })
    const options = { method: "POST", headers: { "content-type": "application/json" }, body }
    const answer = await (await fetch(`${url}/log/${encodeURIComponent(space)}/append`, options)).json()
    if (answer.error) throw new Error(answer.message)
  }
  let queries = 0
  const counting = (address, options) => {
    if (address.endsWith("/query")) queries += 1
    return fetch(address, options)
  }
  const began = performance.now()
  const reader = await open(signer ? "catch up signed" : "catch up", undefined, { space, fetch: counting })
  await reader.sync()
  const took = Math.round(performance.now() - began)
  check(`${blocks}${signer ? " signed" : ""} blocks come in few requests (${queries}, in ${took} ms)`, queries <= 40)
  check("whole", (await reader.read()).filter(({ feedId }) => feedId.startsWith("many")).length === blocks)
  await reader.close()
}
