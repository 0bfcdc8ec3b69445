// A Feedmill with a log, for tests that stop it, roll it back, or close it to strangers.
import { spawn } from "node:child_process"
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** The names of the log's files in a folder. */
async function files(at) {
  return (await readdir(at)).filter((name) => name.startsWith("log.db"))
}

async function clear(at) {
  for (const name of await files(at)) await rm(join(at, name))
}

async function move(from, to) {
  await clear(to)
  for (const name of await files(from)) await cp(join(from, name), join(to, name))
}

/** Serve a log with these settings; `lose`, `copy` and `rollBack` stop the server and start it again. */
export async function serveLog(binary, settings, environment = {}) {
  const folder = await mkdtemp(join(tmpdir(), "feedmill-log-"))
  const kept = await mkdtemp(join(tmpdir(), "feedmill-log-copy-"))
  const port = await new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
  const config = join(folder, "feedmill.toml")
  const lines = ['namespace = "com.example"', "[store]", 'url = "sqlite::memory:"', "[log]", 'file = "log.db"', ...settings]
  await writeFile(config, [...lines, "[serve]", `bind = "127.0.0.1:${port}"`, "rate_max = 1000000", ""].join("\n"))
  let server
  async function start() {
    const env = { ...process.env, ...environment }
    server = spawn(binary, ["serve", config], { cwd: folder, env, stdio: ["ignore", "pipe", "ignore"] })
    for await (const text of server.stdout) if (String(text).includes("serving on")) return
    throw new Error("the server does not start")
  }
  async function stop() {
    const ended = new Promise((resolve) => server.once("exit", resolve))
    server.kill("SIGKILL")
    await ended
  }
  const between = (change) => async () => {
    await stop()
    await change()
    await start()
  }
  await start()
  return {
    url: `http://127.0.0.1:${port}`,
    copy: between(() => move(folder, kept)),
    rollBack: between(() => move(kept, folder)),
    lose: between(() => clear(folder)),
    async end() {
      await stop()
      for (const at of [folder, kept]) await rm(at, { recursive: true })
    },
  }
}
