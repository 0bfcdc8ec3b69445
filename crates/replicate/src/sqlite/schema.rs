//! The tables of the log, and how they came to be.
//!
//! In:    a connection to any earlier version of the file, or to an empty one.
//! Out:   the same file at the present version.
//! Never: a migration that is edited after it was released: the next one follows.
//!
//! `feeds`, `blocks` and `subscriptions` are those of the public description of
//! this log. The rest is what a production loss taught its makers to miss: one
//! row of counters per space that only grow, positions unique within a space, an
//! index per namespace, one of what waits, hashes, epochs.

use rusqlite::{Connection, TransactionBehavior};

/// Each entry takes the file from its index to the next version.
const MIGRATIONS: [&str; 7] = [V1, V2, V3, V4, V5, V6, V7];

/// The id of a feed is never used again: bundles, keys and the tail in memory name feeds by it.
/// `deletedSpaces` are those that only an explicit create makes again.
const V1: &str = "
CREATE TABLE spaces (
    spacePrivateId INTEGER PRIMARY KEY,
    spaceId        TEXT NOT NULL UNIQUE,
    isAuthority    INTEGER NOT NULL,
    epoch          BLOB NOT NULL,
    positionMax    INTEGER NOT NULL DEFAULT 0,
    head           BLOB NOT NULL,
    placedAt       INTEGER NOT NULL DEFAULT 0,
    feedCount      INTEGER NOT NULL DEFAULT 0,
    upstreamEpoch  BLOB,
    healing        INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE deletedSpaces (
    deletionId INTEGER PRIMARY KEY AUTOINCREMENT,
    spaceId    TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE namespaces (
    namespacePrivateId INTEGER PRIMARY KEY,
    spacePrivateId     INTEGER NOT NULL,
    namespace          TEXT NOT NULL,
    UNIQUE (spacePrivateId, namespace)
) STRICT;

CREATE TABLE feeds (
    feedPrivateId      INTEGER PRIMARY KEY AUTOINCREMENT,
    spaceId            TEXT NOT NULL,
    feedId             TEXT NOT NULL,
    feedNamespace      TEXT,
    namespacePrivateId INTEGER,
    tipSequence        INTEGER,
    tipActorId         TEXT,
    tipHash            BLOB,
    positionMax        INTEGER NOT NULL DEFAULT 0,
    evictedThrough     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (spaceId, feedId)
) STRICT;
CREATE INDEX feedsByNamespace ON feeds (namespacePrivateId, feedId);
CREATE INDEX feedsEvicted ON feeds (spaceId, evictedThrough) WHERE evictedThrough > 0;

CREATE TABLE blocks (
    blockId            INTEGER PRIMARY KEY,
    spacePrivateId     INTEGER NOT NULL,
    namespacePrivateId INTEGER,
    feedPrivateId      INTEGER NOT NULL,
    position           INTEGER,
    sequence           INTEGER NOT NULL,
    actorId            TEXT NOT NULL,
    predSequence       INTEGER,
    predActorId        TEXT,
    predHash           BLOB,
    timestamp          INTEGER NOT NULL,
    data               BLOB,
    purgedHash         BLOB,
    purgedBytes        INTEGER,
    hash               BLOB NOT NULL,
    signature          BLOB,
    head               BLOB,
    placedAt           INTEGER NOT NULL DEFAULT 0,
    setAside           TEXT
) STRICT;
CREATE UNIQUE INDEX blocksByKey ON blocks (feedPrivateId, sequence, actorId);
CREATE UNIQUE INDEX blocksByFeed ON blocks (feedPrivateId, position) WHERE position IS NOT NULL;
CREATE UNIQUE INDEX blocksBySpace ON blocks (spacePrivateId, position) WHERE position IS NOT NULL;
CREATE INDEX blocksByNamespace ON blocks (namespacePrivateId, position)
    WHERE position IS NOT NULL AND namespacePrivateId IS NOT NULL;
CREATE INDEX blocksPending ON blocks (spacePrivateId, sequence, actorId, feedPrivateId) WHERE position IS NULL;
CREATE INDEX blocksPendingByFeed ON blocks (feedPrivateId, sequence, actorId) WHERE position IS NULL;

CREATE TABLE evictedHeads (
    spacePrivateId INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    head           BLOB NOT NULL,
    PRIMARY KEY (spacePrivateId, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE subscriptions (
    spacePrivateId INTEGER NOT NULL,
    subscriptionId TEXT NOT NULL,
    expiresAt      INTEGER NOT NULL,
    feedIds        TEXT,
    feedNamespace  TEXT,
    PRIMARY KEY (spacePrivateId, subscriptionId)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscriptionsByExpiry ON subscriptions (spacePrivateId, expiresAt);

CREATE TABLE lanes (
    spacePrivateId INTEGER NOT NULL,
    feedId         TEXT NOT NULL,
    mode           TEXT NOT NULL,
    modeValue      INTEGER NOT NULL,
    after          INTEGER NOT NULL,
    cursor         TEXT,
    resolved       INTEGER NOT NULL,
    PRIMARY KEY (spacePrivateId, feedId)
) STRICT, WITHOUT ROWID;

CREATE TABLE conflicts (
    conflictId     INTEGER PRIMARY KEY,
    spacePrivateId INTEGER NOT NULL,
    feedPrivateId  INTEGER NOT NULL,
    position       INTEGER,
    sequence       INTEGER NOT NULL,
    actorId        TEXT NOT NULL,
    predSequence   INTEGER,
    predActorId    TEXT,
    predHash       BLOB,
    timestamp      INTEGER NOT NULL,
    data           BLOB,
    purgedHash     BLOB,
    purgedBytes    INTEGER,
    hash           BLOB NOT NULL,
    signature      BLOB
) STRICT;
CREATE INDEX conflictsBySpace ON conflicts (spacePrivateId);

CREATE TABLE streams (
    streamId       INTEGER PRIMARY KEY AUTOINCREMENT,
    path           TEXT NOT NULL UNIQUE,
    contentType    TEXT NOT NULL,
    ttlSeconds     INTEGER,
    expiresAt      INTEGER,
    expiresText    TEXT,
    touchedAt      INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    sequence       TEXT,
    closed         INTEGER NOT NULL DEFAULT 0,
    closedBy       TEXT,
    deleted        INTEGER NOT NULL DEFAULT 0,
    forkOf         INTEGER,
    forkText       TEXT,
    forkPosition   INTEGER,
    forkBytes      INTEGER
) STRICT;
CREATE INDEX streamsByFork ON streams (forkOf) WHERE forkOf IS NOT NULL;

CREATE TABLE producers (
    streamId   INTEGER NOT NULL,
    producerId TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    sequence   INTEGER NOT NULL,
    PRIMARY KEY (streamId, producerId)
) STRICT, WITHOUT ROWID;
";

/// What of the river is published: up to where, and which positions tell of which URI.
const V2: &str = "
CREATE TABLE publications (
    spaceId TEXT PRIMARY KEY,
    through INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE published (
    spaceId  TEXT NOT NULL,
    uri      TEXT NOT NULL,
    position INTEGER NOT NULL,
    rev      INTEGER NOT NULL,
    live     INTEGER NOT NULL,
    PRIMARY KEY (spaceId, uri, position)
) STRICT, WITHOUT ROWID;
";

/// An evicted block is known again by its hash. Of those evicted before, only the heads are known.
const V3: &str = "
ALTER TABLE evictedHeads RENAME TO evicted;
ALTER TABLE evicted ADD COLUMN hash BLOB;
CREATE INDEX evictedByHash ON evicted (spacePrivateId, hash) WHERE hash IS NOT NULL;
ALTER TABLE spaces ADD COLUMN forgottenThrough INTEGER NOT NULL DEFAULT 0;
UPDATE spaces SET forgottenThrough = (
    SELECT coalesce(max(position), 0) FROM evicted WHERE evicted.spacePrivateId = spaces.spacePrivateId);
";

/// An evicted block is known again by its key, so that nobody writes another under it. Of those
/// evicted before, only the heads are known.
const V4: &str = "
DROP INDEX evictedByHash;
ALTER TABLE evicted ADD COLUMN feedPrivateId INTEGER;
ALTER TABLE evicted ADD COLUMN sequence INTEGER;
ALTER TABLE evicted ADD COLUMN actorId TEXT;
CREATE INDEX evictedByKey ON evicted (feedPrivateId, sequence, actorId) WHERE feedPrivateId IS NOT NULL;
UPDATE spaces SET forgottenThrough = (
    SELECT max(forgottenThrough, coalesce(max(position), 0)) FROM evicted WHERE evicted.spacePrivateId = spaces.spacePrivateId);
";

/// The order of each feed's blocks stands in tables of its own, so that it can be written later
/// than the blocks and many at a time. They tell of every block up to `indexedThrough`; of those
/// behind it they may tell, and the tail of the log does. No block above `touchedThrough` was ever
/// deleted or moved, and no id up to it is used again.
const V5: &str = "
CREATE TABLE blockKeys (
    feedPrivateId INTEGER NOT NULL,
    sequence      INTEGER NOT NULL,
    actorId       TEXT NOT NULL,
    blockId       INTEGER NOT NULL,
    PRIMARY KEY (feedPrivateId, sequence, actorId)
) STRICT, WITHOUT ROWID;
INSERT INTO blockKeys SELECT feedPrivateId, sequence, actorId, blockId FROM blocks
    ORDER BY feedPrivateId, sequence, actorId;
DROP INDEX blocksByKey;

CREATE TABLE blockPlaces (
    feedPrivateId INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    blockId       INTEGER NOT NULL,
    PRIMARY KEY (feedPrivateId, position)
) STRICT, WITHOUT ROWID;
INSERT INTO blockPlaces SELECT feedPrivateId, position, blockId FROM blocks WHERE position IS NOT NULL
    ORDER BY feedPrivateId, position;
DROP INDEX blocksByFeed;

CREATE TABLE tail (
    indexedThrough INTEGER NOT NULL,
    touchedThrough INTEGER NOT NULL
) STRICT;
INSERT INTO tail SELECT coalesce(max(blockId), 0), 0 FROM blocks;

CREATE TRIGGER blockDeleted AFTER DELETE ON blocks BEGIN
    DELETE FROM blockKeys WHERE feedPrivateId = old.feedPrivateId AND sequence = old.sequence
        AND actorId = old.actorId AND blockId = old.blockId;
    DELETE FROM blockPlaces WHERE feedPrivateId = old.feedPrivateId AND position = old.position
        AND blockId = old.blockId;
    UPDATE tail SET touchedThrough = old.blockId WHERE touchedThrough < old.blockId;
END;
CREATE TRIGGER blockMoved AFTER UPDATE OF position ON blocks WHEN new.position IS NOT old.position BEGIN
    DELETE FROM blockPlaces WHERE feedPrivateId = old.feedPrivateId AND position = old.position
        AND blockId = old.blockId;
    INSERT INTO blockPlaces SELECT new.feedPrivateId, new.position, new.blockId WHERE new.position IS NOT NULL;
    UPDATE tail SET touchedThrough = old.blockId WHERE touchedThrough < old.blockId;
END;
";

/// Small blocks of a feed stand a second time side by side, for pages of that feed (`bundle.rs`). A
/// bundle is there only as long as every block of its feed in `(after, through]` is as it was, and no
/// two of a feed overlap. Blocks of before have none.
const V6: &str = "
CREATE TABLE bundles (
    bundleId      INTEGER PRIMARY KEY,
    feedPrivateId INTEGER NOT NULL,
    after         INTEGER NOT NULL,
    through       INTEGER NOT NULL,
    blocks        BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX bundlesByFeed ON bundles (feedPrivateId, through);

ALTER TABLE tail ADD COLUMN emptiedThrough INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER bundledDeleted AFTER DELETE ON blocks WHEN old.position IS NOT NULL BEGIN
    DELETE FROM bundles WHERE after < old.position AND bundleId = (SELECT bundleId FROM bundles
        WHERE feedPrivateId = old.feedPrivateId AND through >= old.position ORDER BY through LIMIT 1);
END;
CREATE TRIGGER bundledChanged AFTER UPDATE OF position, data ON blocks BEGIN
    DELETE FROM bundles WHERE after < old.position AND bundleId = (SELECT bundleId FROM bundles
        WHERE feedPrivateId = old.feedPrivateId AND through >= old.position ORDER BY through LIMIT 1);
    DELETE FROM bundles WHERE after < new.position AND bundleId = (SELECT bundleId FROM bundles
        WHERE feedPrivateId = new.feedPrivateId AND through >= new.position ORDER BY through LIMIT 1);
    UPDATE tail SET emptiedThrough = old.blockId WHERE emptiedThrough < old.blockId AND new.data IS NULL;
END;
";

/// A space knows how many bytes its blocks count: `BLOCK_BYTES` of crate `blocklog`, and the payload.
/// Appending adds to it; what deletes or purges a block takes it back. A space that is being deleted is
/// not known any more. Streams whose time is over are found without looking at the others. A lane knows where it started.
/// A block that was pulled is told from one that was written here, and what is set aside is found at once.
const V7: &str = "
ALTER TABLE spaces ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spaces ADD COLUMN deleting INTEGER NOT NULL DEFAULT 0;
UPDATE spaces SET bytes = (SELECT coalesce(sum(128 + coalesce(length(data), 0)), 0)
    FROM blocks WHERE blocks.spacePrivateId = spaces.spacePrivateId);
ALTER TABLE lanes ADD COLUMN startAfter INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN startCursor TEXT;
ALTER TABLE lanes ADD COLUMN sentBack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE blocks ADD COLUMN pulled INTEGER NOT NULL DEFAULT 0;
CREATE INDEX blocksAside ON blocks (spacePrivateId, sequence) WHERE setAside IS NOT NULL;
CREATE INDEX streamsByExpiry ON streams (expiresAt) WHERE expiresAt IS NOT NULL;
CREATE INDEX streamsByIdle ON streams (touchedAt + ttlSeconds * 1000) WHERE ttlSeconds IS NOT NULL;
CREATE TRIGGER bytesDeleted AFTER DELETE ON blocks BEGIN
    UPDATE spaces SET bytes = bytes - 128 - coalesce(length(old.data), 0)
        WHERE spacePrivateId = old.spacePrivateId;
END;
CREATE TRIGGER bytesPurged AFTER UPDATE OF data ON blocks BEGIN
    UPDATE spaces SET bytes = bytes - coalesce(length(old.data), 0) + coalesce(length(new.data), 0)
        WHERE spacePrivateId = old.spacePrivateId;
END;
";

/// Bring the file to the present version; false if it is of a later one, and left as it is.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<bool> {
    let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = work.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let newest = MIGRATIONS.len() as u32;
    if version > newest {
        return Ok(false);
    }
    for migration in MIGRATIONS.iter().skip(version as usize) {
        work.execute_batch(migration)?;
    }
    work.pragma_update(None, "user_version", newest)?;
    work.commit()?;
    Ok(true)
}
