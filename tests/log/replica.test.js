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

  await Promise.all([ada, bob, partial, offline].map((log) => log.close()))
}
