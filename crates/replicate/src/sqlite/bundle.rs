//! A bundle: some blocks of a feed, one after the other, side by side in one row.
//!
//! In:    blocks of one feed, each following the last in the feed's order.
//! Out:   bytes; and from the bytes the same blocks.
//! Never: a bundle that differs from the rows it was made of; damaged bytes passed on as a block.
//!
//! Blocks stand where they arrived, so fifty of one feed lie in fifty places of the file, and a
//! large file is not near. What a page of a feed needs of small blocks is therefore kept a second
//! time, in order, a page of the file at a time. The rows stay the truth: a bundle tells of every
//! block of its feed in `(after, through]`, and whatever deletes, moves or empties one of them
//! deletes the bundle with it (`schema.rs`); the rows then answer for it.

use blocklog::block::{Block, Hash, Held, Payload, Predecessor};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::row::{number, signed};
use super::space::FeedRow;

/// Bytes of one bundle: with its row's head they fill one page of the file.
pub(super) const BUNDLE_BYTES_MAX: usize = 4000;

/// Bytes of one block in a bundle. A larger one is as near in its own row.
const ENTRY_BYTES_MAX: usize = BUNDLE_BYTES_MAX / 4;

/// What an entry has besides what every entry has.
const PREDECESSOR: u8 = 1;
const PREDECESSOR_HASH: u8 = 2;
/// The predecessor is of the same actor, who is not told twice.
const SAME_ACTOR: u8 = 4;
const SIGNATURE: u8 = 8;

/// Add a block to a bundle; false, and nothing added, if it is not one for bundles.
pub(super) fn push(bytes: &mut Vec<u8>, block: &Block, hash: &Hash, position: u64) -> bool {
    let start = bytes.len();
    let Payload::Bytes(data) = &block.payload else {
        return false;
    };
    if data.len() > ENTRY_BYTES_MAX {
        return false;
    }
    let predecessor = block.predecessor.as_ref();
    let same_actor = predecessor.is_some_and(|one| one.actor == block.actor);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(predecessor.is_some(), PREDECESSOR)
        | flag(
            predecessor.is_some_and(|one| one.hash.is_some()),
            PREDECESSOR_HASH,
        )
        | flag(same_actor, SAME_ACTOR)
        | flag(block.signature.is_some(), SIGNATURE);
    // How long it is comes first, so that who looks for another passes over it.
    bytes.extend([0; 2]);
    bytes.extend(position.to_le_bytes());
    bytes.push(flags);
    bytes.extend(block.sequence.to_le_bytes());
    bytes.extend(block.timestamp_ms.to_le_bytes());
    bytes.extend(hash.bytes());
    push_slice(bytes, block.actor.as_bytes());
    if let Some(one) = predecessor {
        bytes.extend(one.sequence.to_le_bytes());
        if !same_actor {
            push_slice(bytes, one.actor.as_bytes());
        }
        bytes.extend(one.hash.iter().flat_map(Hash::bytes));
    }
    bytes.extend(block.signature.iter().flatten());
    bytes.extend(data);
    let length = bytes.len() - start;
    match u16::try_from(length) {
        Ok(told) if length <= ENTRY_BYTES_MAX => {
            let place = bytes.get_mut(start..start + 2);
            place
                .into_iter()
                .for_each(|place| place.copy_from_slice(&told.to_le_bytes()));
            true
        }
        _ => {
            bytes.truncate(start);
            false
        }
    }
}

/// A short text and its length. One that is too long makes the entry too long as well.
fn push_slice(bytes: &mut Vec<u8>, slice: &[u8]) {
    let length = u16::try_from(slice.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_le_bytes());
    bytes.extend(slice);
}

/// A bundle, as it is in the file.
#[derive(Debug)]
pub(super) struct Bundle {
    /// It tells of every block of its feed above this position.
    pub(super) after: u64,
    bytes: Vec<u8>,
    /// Where the next entry begins.
    at: usize,
}

impl Bundle {
    /// The first bundle of a feed that ends above a position.
    pub(super) fn first(connection: &Connection, feed: i64, above: u64) -> Result<Option<Self>> {
        let sql = "SELECT after, blocks FROM bundles WHERE feedPrivateId = ?1 AND through > ?2 \
                   ORDER BY through LIMIT 1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Self {
                after: number(row, 0)?,
                bytes: row.get(1)?,
                at: 0,
            })
        };
        connection
            .prepare_cached(sql)?
            .query_row(params![feed, signed(above)], read)
            .optional()
    }

    /// Up to where a feed's blocks were bundled; 0 if none were.
    pub(super) fn made_through(connection: &Connection, feed: i64) -> Result<u64> {
        let sql = "SELECT coalesce(max(through), 0) FROM bundles WHERE feedPrivateId = ?1";
        connection
            .prepare_cached(sql)?
            .query_row([feed], |row| number(row, 0))
    }

    /// Keep a bundle that tells of every block of a feed in `(after, through]`.
    pub(super) fn insert(
        connection: &Connection,
        feed: i64,
        (after, through): (u64, u64),
        bytes: &[u8],
    ) -> Result<()> {
        let sql =
            "INSERT INTO bundles (feedPrivateId, after, through, blocks) VALUES (?1, ?2, ?3, ?4)";
        let values = params![feed, signed(after), signed(through), bytes];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// The position of the next block, past those up to `after`; `None` if there are no more.
    pub(super) fn seek(&mut self, after: u64) -> Result<Option<u64>> {
        while self.at < self.bytes.len() {
            let mut entry = self.entry()?;
            let position = entry.number()?;
            if position > after {
                return Ok(Some(position));
            }
            self.pass()?;
        }
        Ok(None)
    }

    /// The next block.
    pub(super) fn take(&mut self, feed: &FeedRow) -> Result<Held> {
        let held = read(self.entry()?, feed)?;
        self.pass()?;
        Ok(held)
    }

    /// The next entry, behind its length.
    fn entry(&self) -> Result<Entry<'_>> {
        let mut entry = Entry(self.bytes.get(self.at..).ok_or_else(damaged)?);
        let length = usize::from(entry.short()?);
        let own = length
            .checked_sub(2)
            .and_then(|length| entry.0.get(..length));
        own.map(Entry).ok_or_else(damaged)
    }

    fn pass(&mut self) -> Result<()> {
        self.at += self.entry()?.0.len() + 2;
        Ok(())
    }
}

/// What is left of an entry.
struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8]> {
        let (slice, left) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = left;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, left) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = left;
        Ok(*array)
    }

    fn short(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::from(self.short()?);
        let text = std::str::from_utf8(self.slice(length)?);
        text.map(str::to_owned).map_err(|_| damaged())
    }

    fn hash(&mut self) -> Result<Hash> {
        Hash::from_bytes(self.slice(32)?).ok_or_else(damaged)
    }
}

fn read(mut entry: Entry<'_>, feed: &FeedRow) -> Result<Held> {
    let position = entry.number()?;
    let [flags] = entry.array()?;
    let (sequence, timestamp_ms) = (entry.number()?, entry.number()?);
    let (hash, actor) = (entry.hash()?, entry.text()?);
    let mut predecessor = None;
    if flags & PREDECESSOR != 0 {
        predecessor = Some(Predecessor {
            sequence: entry.number()?,
            actor: match flags & SAME_ACTOR {
                0 => entry.text()?,
                _ => actor.clone(),
            },
            hash: match flags & PREDECESSOR_HASH {
                0 => None,
                _ => Some(entry.hash()?),
            },
        });
    }
    let signature = match flags & SIGNATURE {
        0 => None,
        _ => Some(entry.array()?),
    };
    Ok(Held {
        position: Some(position),
        hash,
        namespace: feed.state.namespace.clone(),
        block: Block {
            feed: feed.state.feed.clone(),
            actor,
            sequence,
            predecessor,
            timestamp_ms,
            payload: Payload::Bytes(entry.0.to_vec()),
            signature,
        },
    })
}

fn damaged() -> rusqlite::Error {
    let what = "a bundle that ends too early";
    rusqlite::Error::FromSqlConversionFailure(1, Type::Blob, what.into())
}
