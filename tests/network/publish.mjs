// `feedmill publish-feed` against a real PDS: the record stands in the
// operator's repository, names our service, and goes again.
//
//   node publish.mjs <feedmill binary> <lexicon folder> <folder for files>

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { AtpAgent } from '@atproto/api'
import { TestNetworkNoAppView } from '@atproto/dev-env'
import { freePort } from './mill.mjs'

const [binary, , folder] = process.argv.slice(2)
const COLLECTION = 'app.bsky.feed.generator'
const network = await TestNetworkNoAppView.create({
  pds: { port: await freePort(), hostname: 'localhost' },
  plc: { port: await freePort() },
})

// Runs the program; what it said, and whether it ended well.
async function feedmill(password, ...parameters) {
  const environment = { ...process.env, FEEDMILL_APP_PASSWORD: password }
  try {
    const { stdout } = await promisify(execFile)(binary, parameters, { env: environment })
    return { good: true, said: stdout }
  } catch (error) {
    return { good: false, said: `${error.stdout}${error.stderr}` }
  }
}

let status = 0
try {
  const agent = new AtpAgent({ service: network.pds.url })
  await agent.createAccount({ email: 'olga@example.com', handle: 'olga.test', password: 'a long password' })
  const { data: app } = await agent.com.atproto.server.createAppPassword({ name: 'feedmill' })
  const config = join(folder, 'publish.toml')
  writeFileSync(config, `
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.post]
collection = "app.bsky.feed.post"
validate = false
[feeds.timeline]
targets = ["post"]
[intake]
plc_url = "${network.plc.url}"
[serve]
public_url = "https://feeds.example"
`)
  const publish = (password, ...more) =>
    feedmill(password, 'publish-feed', config, 'timeline', '--account', agent.did, '--name', 'My feed', ...more)
  const there = () => agent.com.atproto.repo.getRecord({ repo: agent.did, collection: COLLECTION, rkey: 'timeline' })

  const refused = await publish('wrong')
  assert.ok(!refused.good && refused.said.includes('AuthenticationRequired'), refused.said)
  await assert.rejects(there())

  // By the host in the DID document, then by a host that is named; the second replaces the first.
  const first = await publish(app.password)
  assert.ok(first.good, first.said)
  assert.ok(first.said.includes(`publish_as = "at://${agent.did}/${COLLECTION}/timeline"`), first.said)
  const second = await publish(app.password, '--description', 'What I follow', '--pds', network.pds.url)
  assert.ok(second.good, second.said)
  const { data } = await there()
  assert.equal(data.value.did, 'did:web:feeds.example')
  assert.equal(data.value.displayName, 'My feed')
  assert.equal(data.value.description, 'What I follow')

  const unknown = await feedmill(app.password, 'publish-feed', config, 'other', '--account', agent.did, '--name', 'x')
  assert.ok(!unknown.good && unknown.said.includes('there are: timeline'), unknown.said)
  const gone = await feedmill(app.password, 'unpublish-feed', config, 'timeline', '--account', agent.did)
  assert.ok(gone.good, gone.said)
  await assert.rejects(there())
  console.log(JSON.stringify({ published: 2, unpublished: 1 }))
} catch (error) {
  console.error(error)
  status = 1
}
await network.close().catch((error) => console.error(error))
process.exit(status)
