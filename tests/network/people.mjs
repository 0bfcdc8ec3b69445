// People on a real PDS, written for by a real client, and what Feedmill must
// then show, put together in the plainest way from what the PDS itself says.
//
// In:    a PDS; names, records.
// Out:   the first difference that does not go away.

import { AtpAgent } from '@atproto/api'
import { until } from './mill.mjs'

export const POST = 'app.bsky.feed.post'
export const FOLLOW = 'app.bsky.graph.follow'

export const parts = (uri) => ({ collection: uri.split('/').at(-2), rkey: uri.split('/').at(-1) })

const newestFirst = (a, b) =>
  a.value.createdAt < b.value.createdAt ? 1 : a.value.createdAt > b.value.createdAt ? -1 : a.uri < b.uri ? 1 : -1
const shown = (records) => records.map(({ uri, cid, value, record }) => ({ uri, cid, text: (value ?? record).text }))

export class People {
  constructor(pds) {
    this.pds = pds
    this.agents = {}
    this.hidden = new Set()
    this.minute = 0
    this.found = { steps: 0, compared: 0 }
  }

  async join(name) {
    const agent = new AtpAgent({ service: this.pds.url })
    await agent.createAccount({ email: `${name}@example.com`, handle: `${name}.test`, password: 'a long password' })
    this.agents[name] = agent
  }

  did(name) {
    return this.agents[name].did
  }

  repo(name) {
    return this.agents[name].com.atproto.repo
  }

  post(text) {
    const createdAt = new Date(Date.UTC(2026, 0, 1, 0, this.minute++)).toISOString()
    return { $type: POST, text, createdAt, langs: ['en'] }
  }

  async write(name, record) {
    return (await this.repo(name).createRecord({ repo: this.did(name), collection: record.$type, record })).data
  }

  follow(name, other) {
    return this.write(name, { $type: FOLLOW, subject: this.did(other), createdAt: new Date().toISOString() })
  }

  edit(name, uri, record) {
    return this.repo(name).putRecord({ repo: this.did(name), ...parts(uri), record })
  }

  erase(name, uri) {
    return this.repo(name).deleteRecord({ repo: this.did(name), ...parts(uri) })
  }

  // What the PDS says that somebody has, by an administrator's right: the hidden have it too.
  async listed(name, collection) {
    const records = []
    let cursor
    do {
      const { data } = await this.repo(name).listRecords({ repo: this.did(name), collection, limit: 100, cursor })
      records.push(...data.records)
      cursor = data.cursor
    } while (cursor)
    return records
  }

  async expectedFeed(name) {
    const followed = new Set((await this.listed(name, FOLLOW)).map((record) => record.value.subject))
    const seen = Object.keys(this.agents).filter((other) => followed.has(this.did(other)) && !this.hidden.has(other))
    const posts = await Promise.all(seen.map((other) => this.listed(other, POST)))
    return shown(posts.flat().sort(newestFirst))
  }

  // Everybody's feed and list in Feedmill, after a step, is what it should be.
  async compare(mill, step) {
    for (const name of Object.keys(this.agents).filter((name) => !this.hidden.has(name))) {
      const list = shown((await this.listed(name, POST)).sort(newestFirst))
      const actor = this.did(name)
      const same = async (what, method, params, expected) => {
        let is
        await until(`${step}: ${what} of ${name} is ${JSON.stringify(expected)}`, async () => {
          is = shown(await mill.whole(method, params))
          return JSON.stringify(is) === JSON.stringify(expected) || Promise.reject(new Error(`it is ${JSON.stringify(is)}`))
        })
        this.found.compared += is.length
      }
      await same('the feed', 'com.example.getFeed', { feed: 'timeline', actor }, await this.expectedFeed(name))
      await same('the list', 'com.example.post.listRecords', { actor }, list)
    }
    for (const name of this.hidden) {
      await until(`${step}: nothing of ${name} is listed`, async () => {
        const { status, body } = await mill.ask('com.example.post.listRecords', { actor: this.did(name) })
        return status !== 200 || body.records.length === 0
      })
    }
    this.found.steps += 1
  }
}
