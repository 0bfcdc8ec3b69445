// Uses everything the package declares; it is compiled, not run.
import { LogReplica, LogError, DamagedError, actorOf, blockHash, newKey, type Block, type Status } from "feedmill-log"

export async function use(): Promise<Status> {
  const key = await newKey()
  const log = await LogReplica.open({ url: "http://127.0.0.1", space: "notes", feeds: ["f"], key, tail: true, token: "t" })
  log.addEventListener("conflict", ({ blocks }) => blocks.map((block: Block) => block.refused))
  log.addEventListener("trouble", ({ error }) => {
    if (error instanceof LogError) return error.answer
    return error instanceof DamagedError ? error.block : undefined
  })
  const { hash } = await log.append("f", "hello")
  const blocks: Block[] = [...(await log.read({ feedId: "f", after: 3 })), ...(await log.conflicts())]
  const same: boolean = (await actorOf(key.publicKey)) === log.actorId && hash === blockHash("notes", blocks[0] ?? {})
  await log.retryRefused()
  await log.discardRefused()
  await log.forgetConflicts()
  await log.close()
  return { ...(await log.status()), after: same ? 1 : 0 }
}
