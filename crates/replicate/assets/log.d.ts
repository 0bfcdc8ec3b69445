/** Where a replica begins; at most one of the three. */
export interface Range {
  /** Only what has this position or a higher one. */
  from?: number
  /** Only what comes after the first contact. */
  tail?: boolean
  /** Only what got its position at this time or later, in Unix milliseconds. */
  since?: number
}

export interface OpenOptions extends Range {
  /** Where the server is; the page's own origin unless given. */
  url?: string
  space: string
  /** Only these feeds; all unless given. */
  feeds?: string[]
  /** An Ed25519 key that signs what is written here: `newKey()`. Without it the replica makes its own. */
  key?: CryptoKeyPair
  /** Who writes here, by name and without a signature. Two replicas must not share it. */
  actorId?: string
  /** Given to feeds that are made here. */
  namespace?: string
  /** The token that the server asks for. */
  token?: string
  /** Of the database; one per replica. */
  name?: string
  /** Where there is no global one. */
  indexedDB?: IDBFactory
  WebSocket?: typeof WebSocket
  fetch?: typeof fetch
}

/** A block as it is read. */
export interface Block {
  feedId: string
  actorId: string
  sequence: number
  /** The author's clock, in Unix milliseconds. */
  timestamp: number
  /** Undefined while the block waits for one. */
  position?: number
  /** Why the server will not take it. */
  refused?: string
  /** Undefined where the content was purged. */
  data?: Uint8Array
}

/** A block as it was written. */
export interface WrittenBlock {
  feedId: string
  actorId: string
  sequence: number
  timestamp: number
  data: string
  hash: string
  signature?: string
  predSequence?: number
  predActorId?: string
  predHash?: string
}

export interface Status {
  /** Everything up to this position was pulled. */
  after: number
  epoch?: string
  /** Blocks that wait to be sent. */
  waiting: number
  /** Blocks that the server does not have and will not take: `conflicts()` lists them. */
  aside: number
}

export interface ReplicaEvents {
  /** Something was read, written or sent. */
  change: Event
  /** A request failed; it is tried again. */
  trouble: Event & { error: Error }
  /** Blocks cannot be sent as they are: another has their key and they are signed, or they were refused. */
  conflict: Event & { blocks: Block[] }
}

export class LogReplica extends EventTarget {
  static open(options: OpenOptions): Promise<LogReplica>
  private constructor()
  /** Who writes here. */
  readonly actorId: string
  /** Writes the next block of a feed. Resolves when it is durable here; it is sent when possible. */
  append(feedId: string, data: string | Uint8Array, options?: { timestamp?: number }): Promise<WrittenBlock>
  /** Blocks in read order: by position, then those without one by sequence and actor. */
  read(options?: { feedId?: string; after?: number }): Promise<Block[]>
  /** Blocks that the server does not have and will not take as they are. */
  conflicts(): Promise<Block[]>
  /** Sends what was refused again: the reason may be gone. */
  retryRefused(): Promise<void>
  /** Drops what was refused. */
  discardRefused(): Promise<void>
  /** Drops the blocks whose key another block took. */
  forgetConflicts(): Promise<void>
  status(): Promise<Status>
  /** Pulls and pushes until nothing is left. Resolves when that is so, or failed. */
  sync(): Promise<void>
  close(): Promise<void>
  addEventListener<K extends keyof ReplicaEvents>(
    type: K,
    listener: (event: ReplicaEvents[K]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void
}

/** The server refused a request; `code` says why, `answer` holds the rest. */
export class LogError extends Error {
  code: string
  answer: Record<string, unknown>
}

/** A pulled block is not what it says it is. Nothing of its page was kept. */
export class DamagedError extends Error {
  code: "damaged"
  block: Record<string, unknown>
}

/** A key to write with. It can be kept in IndexedDB, and never leaves the browser. */
export function newKey(): Promise<CryptoKeyPair>
/** The actor id of a public key. */
export function actorOf(publicKey: CryptoKey): Promise<string>
/** The content hash of a block in a space. */
export function blockHash(space: string, block: object): string
