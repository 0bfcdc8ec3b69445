// The model of crates/blocklog/tests/model, played with the browser's replica against a real server: messages are
// lost and doubled, replicas are closed and opened, two of them write under one name, some blocks are too
// large, and the server is rolled back or replaced. Then the world calms down, and everything must agree.
export async function playModel({ LogReplica, newKey, url, seed, steps, check, disaster }) {
  const space = `model ${seed}`
  const luck = makeLuck(seed)
  const oversize = 3000 // the server takes 2000
  let isCalm = false

  const flaky = async (...request) => {
    const fate = isCalm ? 99 : luck(100)
    if (fate < 8) throw new TypeError("lost on its way")
    if (fate < 12) await fetch(...request).then((answer) => answer.text())
    const answer = await fetch(...request)
    if (fate >= 12 && fate < 20) {
      await answer.text()
      throw new TypeError("its answer is lost")
    }
    return answer
  }
  const key = await newKey()
  const kinds = [{ actorId: "twin" }, { actorId: "twin" }, {}, { tail: true }, { feeds: ["f"] }, { key }, { key }]
  const open = (number) => LogReplica.open({ url, space, name: `${space} ${number}`, fetch: flaky, ...kinds[number] })
  const replicas = await Promise.all(kinds.map((_, number) => open(number)))

  const written = []
  for (let step = 0; step < steps; step++) {
    const number = luck(kinds.length)
    const dice = luck(100)
    if (dice < 80) {
      const isBad = luck(12) === 0
      const text = `${seed} ${step} ${number}${isBad ? ".".repeat(oversize) : ""}`
      const feed = ["f", "g"][luck(2)]
      await replicas[number].append(kinds[number].feeds ? "f" : feed, text)
      written.push({ text, number, isBad })
    } else if (dice < 90) {
      await replicas[number].close()
      replicas[number] = await open(number)
    } else if (dice < 97) {
      await replicas[number].sync()
    } else {
      await disaster(["copy", "rollBack", "rollBack", "replace"][luck(4)])
    }
  }

  isCalm = true
  const decode = ({ data }) => new TextDecoder().decode(data)
  const settled = async () => {
    for (const log of replicas) await log.sync()
    const states = await Promise.all(replicas.map((log) => log.status()))
    const { position, blocks } = await walk(url, space)
    return states.every(({ waiting, after }) => waiting === 0 && after === position) && blocks
  }
  let there = false
  for (let tries = 0; tries < 200 && !there; tries++) {
    there = await settled()
    if (!there) await new Promise((resolve) => setTimeout(resolve, 100))
  }
  check(`seed ${seed}: the world comes to rest`, Boolean(there))
  if (!there) return
  const texts = new Set([...there.values()].map(({ text }) => text))
  const listed = await Promise.all(replicas.map(async (log) => new Set((await log.conflicts()).map(decode))))
  // What two sign with one key under one sequence, nobody can write again: one of them lists it.
  const isListed = ({ text, number }) => kinds[number].key && listed[number].has(text)
  const lost = written.filter((one) => !one.isBad && !texts.has(one.text) && !isListed(one))
  check(`seed ${seed}: of ${written.length} blocks none is lost${lost.map(({ text }) => ` (${text})`).join("")}`, lost.length === 0)
  for (const [number, log] of replicas.entries()) {
    const refused = written.filter((one) => one.number === number && one.isBad)
    check(`seed ${seed}: replica ${number} lists what was refused`, refused.every(({ text }) => listed[number].has(text) && !texts.has(text)))
    const held = (await log.read()).filter(({ position }) => position !== undefined)
    const agrees = held.every((block) => there.get(block.position)?.text === decode(block))
    const { tail, feeds } = kinds[number]
    const wanted = [...there.values()].filter(({ feedId }) => !feeds || feeds.includes(feedId))
    const isWhole = tail || held.length === wanted.length
    check(`seed ${seed}: replica ${number} agrees with the server on ${held.length} of ${there.size} blocks`, agrees && isWhole)
    await log.close()
  }
}

/** Everything the server has, by position, asked without the client. */
async function walk(url, space) {
  const blocks = new Map()
  let cursor = 0
  for (;;) {
    const body = JSON.stringify({ requestId: "walk", cursor, limit: 1000 })
    const options = { method: "POST", headers: { "content-type": "application/json" }, body }
    const page = await (await fetch(`${url}/log/${encodeURIComponent(space)}/query`, options)).json()
    if (page.error) return { position: 0, blocks }
    for (const { position, feedId, data } of page.blocks) blocks.set(position, { feedId, text: atob(data) })
    if (!page.hasMore) return { position: page.maxPosition, blocks }
    cursor = page.nextCursor
  }
}

/** Numbers from a seed: luck(n) is below n. */
function makeLuck(seed) {
  let state = (seed * 2654435761) >>> 0 || 1
  return (below) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}
