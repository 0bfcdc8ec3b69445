// Calls a running server through the client that the ecosystem's generator
// made of our lexicons. The compiler checks our types; the client checks each
// answer against its lexicon; this file checks what the answers say.
import assert from 'node:assert/strict'
import { XRPCError } from '@atproto/xrpc'
import { AtpBaseClient } from './index'
import * as ListPosts from './types/com/example/post/listRecords'

async function main(url: string, reader: string, author: string) {
  const { com } = new AtpBaseClient({ service: url })
  const { example } = com

  const seen: string[] = []
  let cursor: string | undefined
  do {
    const page = await example.getFeed({ feed: 'timeline', actor: reader, limit: 2, cursor, profiles: true })
    for (const record of page.data.records) {
      assert.equal(record.did, author)
      seen.push(record.rkey)
    }
    cursor = page.data.cursor
  } while (cursor)
  assert.deepEqual(seen, ['p5', 'p4', 'p3', 'p2', 'p1'])

  const least = await example.post.listRecords({ likesMin: 3, limit: 10, hydrateLike: 2 })
  assert.deepEqual(least.data.records.map((post) => post.rkey), ['p5', 'p4', 'p3'])
  assert.equal(least.data.records[0].likeCount, 1)
  assert.equal(least.data.records[0].like?.[0].did, reader)

  const uri = least.data.records[0].uri
  const one = await example.post.getRecord({ uri })
  assert.equal(one.data.uri, uri)
  assert.deepEqual((await example.getProfile({ actor: author })).data.profiles.map((it) => it.did), [author])
  assert.deepEqual((await example.listReferences({ uri })).data.references.map((it) => it.path), ['subject.uri'])
  await example.getCursor()
  assert.ok((await example.lexicons()).data.lexicons.length > 5)

  await assert.rejects(example.post.listRecords({ cursor: 'nonsense' }), ListPosts.BadCursorError)
  await assert.rejects(example.post.getRecord({ uri: uri + 'x' }), (error: XRPCError) => error.status === 404)
  console.log(JSON.stringify({ feed: seen.length }))
}

const [url, reader, author] = process.argv.slice(2)
main(url, reader, author).catch((error) => {
  console.error(error)
  process.exit(1)
})
