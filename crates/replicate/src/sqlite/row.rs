//! A block as columns.
//!
//! In:    a held block; or a row that begins with [`COLUMNS`].
//! Out:   the values to bind; or the block.
//! Never: a damaged row passed on as a block.

use blocklog::block::{Block, Hash, Held, Payload, Predecessor};
use rusqlite::types::ToSql;
use rusqlite::{Result, Row};

/// The columns of a block itself, from `blocks AS b`. The last of a row comes first: its memory is
/// then on the way while the others are read.
macro_rules! own {
    () => {
        "b.hash, b.data, b.position, b.sequence, b.actorId, b.predSequence, b.predActorId, b.predHash, \
         b.timestamp, b.purgedHash, b.purgedBytes, b.signature"
    };
}

/// What a query selects of blocks whose feed is known, in this order, from `blocks AS b`.
pub(super) const OWN_COLUMNS: &str = own!();

/// What every other query of blocks selects, in this order, from `blocks AS b` or
/// `conflicts AS b` joined with `feeds AS f`.
pub(super) const COLUMNS: &str = concat!(own!(), ", f.feedId, f.feedNamespace");

/// The columns a block fills: all but the two of its feed.
pub(super) const BLOCK_COLUMNS: &str = "position, sequence, actorId, predSequence, predActorId, predHash, timestamp, data, purgedHash, purgedBytes, hash, signature";

/// SQLite has signed integers only; ours are below 2^53.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, column: usize) -> Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

pub(super) fn unsigned_or_none(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    match row.get::<_, Option<i64>>(column)? {
        None => Ok(None),
        Some(_) => unsigned(row, column).map(Some),
    }
}

/// A number that cannot be negative.
pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    unsigned(row, column)
}

/// A hash, or a row that is damaged.
pub(super) fn hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    let bytes: Vec<u8> = row.get(column)?;
    Hash::from_bytes(&bytes).ok_or_else(|| damaged(column, "a hash without 32 bytes"))
}

pub(super) fn hash_or_none(row: &Row<'_>, column: usize) -> Result<Option<Hash>> {
    match row.get::<_, Option<Vec<u8>>>(column)? {
        None => Ok(None),
        Some(_) => hash(row, column).map(Some),
    }
}

/// Sixteen bytes, as epochs and heads have.
pub(super) fn sixteen(row: &Row<'_>, column: usize) -> Result<[u8; 16]> {
    let bytes: Vec<u8> = row.get(column)?;
    bytes
        .try_into()
        .map_err(|_| damaged(column, "an epoch or head without 16 bytes"))
}

fn damaged(column: usize, what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, what.into())
}

/// The block in a row that begins with [`COLUMNS`].
pub(super) fn held(row: &Row<'_>) -> Result<Held> {
    held_of(row, row.get(12)?, row.get(13)?)
}

/// The block of a feed in a row that begins with [`OWN_COLUMNS`].
pub(super) fn held_of(row: &Row<'_>, feed: String, namespace: Option<String>) -> Result<Held> {
    let payload = match row.get::<_, Option<Vec<u8>>>(1)? {
        Some(bytes) => Payload::Bytes(bytes),
        None => Payload::Purged {
            hash: hash(row, 9)?,
            bytes: unsigned(row, 10)?,
        },
    };
    let predecessor = match (unsigned_or_none(row, 5)?, row.get::<_, Option<String>>(6)?) {
        (Some(sequence), Some(actor)) => Some(Predecessor {
            sequence,
            actor,
            hash: hash_or_none(row, 7)?,
        }),
        _ => None,
    };
    let signature = match row.get::<_, Option<Vec<u8>>>(11)? {
        None => None,
        Some(bytes) => Some(
            bytes
                .try_into()
                .map_err(|_| damaged(11, "a signature without 64 bytes"))?,
        ),
    };
    Ok(Held {
        position: unsigned_or_none(row, 2)?,
        hash: hash(row, 0)?,
        namespace,
        block: Block {
            feed,
            actor: row.get(4)?,
            sequence: unsigned(row, 3)?,
            predecessor,
            timestamp_ms: unsigned(row, 8)?,
            payload,
            signature,
        },
    })
}

/// The values of [`BLOCK_COLUMNS`].
pub(super) fn with_values<T>(
    block: &Block,
    hash: &Hash,
    position: Option<u64>,
    then: impl FnOnce(&[&dyn ToSql]) -> T,
) -> T {
    let predecessor = block.predecessor.as_ref();
    let (data, purged) = match &block.payload {
        Payload::Bytes(bytes) => (Some(bytes.as_slice()), None),
        Payload::Purged { hash, bytes } => (None, Some((hash.bytes().as_slice(), signed(*bytes)))),
    };
    then(&[
        &position.map(signed),
        &signed(block.sequence),
        &block.actor,
        &predecessor.map(|one| signed(one.sequence)),
        &predecessor.map(|one| one.actor.as_str()),
        &predecessor
            .and_then(|one| one.hash.as_ref())
            .map(|hash| hash.bytes().as_slice()),
        &signed(block.timestamp_ms),
        &data,
        &purged.map(|(hash, _)| hash),
        &purged.map(|(_, bytes)| bytes),
        &hash.bytes().as_slice(),
        &block.signature.as_ref().map(<[u8; 64]>::as_slice),
    ])
}
