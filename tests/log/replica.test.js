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
