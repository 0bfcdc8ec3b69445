// The browser's replica of a log, against a running server. Runs in Node with an
// IndexedDB of its own, and in a browser as it is: tests/log/run.
export async function testReplica({ LogReplica, url, check, sleep }) {
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
  await Promise.all([ada, bob, partial, offline].map((log) => log.close()))
}
