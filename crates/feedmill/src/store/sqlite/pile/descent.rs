//! Going down a pile: its entries below a bound, the largest first.
//!
//! In:    a prefix and a bound, in one snapshot.
//! Out:   every entry that begins with the prefix and lies below the bound, once.
//! Never: more sheets read than the entries told lie on, and one more of each level.

use std::collections::btree_set;
use std::iter::{Peekable, Rev};

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::sheet::{Entries, Sign, split};
use super::{Added, Pile};

/// The sheet below a bound in each level that holds anything.
const HEADS: &str = "SELECT l.level, f.first, s.entries FROM level l
    CROSS JOIN fence f ON f.pile = l.pile AND f.level = l.level AND f.first = (
        SELECT max(first) FROM fence WHERE pile = l.pile AND level = l.level AND first < ?2)
    CROSS JOIN sheet s ON s.id = f.sheet WHERE l.pile = ?1";

const NEXT: &str = "SELECT f.first, s.entries FROM fence f CROSS JOIN sheet s ON s.id = f.sheet
    WHERE f.pile = ?1 AND f.level = ?2 AND f.first < ?3 ORDER BY f.first DESC LIMIT 1";

/// What lies below a bound, and how far that was told.
pub(in crate::store::sqlite) struct Descent<'a> {
    connection: &'a Connection,
    pile: Pile,
    prefix: Vec<u8>,
    heads: Vec<Head>,
    /// What the transaction added and no level holds yet.
    added: Option<Peekable<Waiting<'a>>>,
}

/// Entries that wait for the end of their transaction, the largest first.
type Waiting<'a> = Rev<btree_set::Range<'a, Box<[u8]>>>;

impl std::fmt::Debug for Descent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Descent");
        shown.field("pile", &self.pile).finish_non_exhaustive()
    }
}

/// One level's sheet; the entries before `left` are not told yet.
#[derive(Debug)]
struct Head {
    level: i64,
    first: Vec<u8>,
    entries: Entries,
    left: usize,
}

impl Head {
    fn entry(&self) -> Option<&[u8]> {
        self.entries.get(self.left.checked_sub(1)?)
    }
}

impl<'a> Descent<'a> {
    /// From `bound` down; where a transaction is under way, with what it has `added`.
    pub(in crate::store::sqlite) fn new(
        connection: &'a Connection,
        pile: Pile,
        prefix: &[u8],
        bound: &[u8],
        added: Option<&'a Added>,
    ) -> Result<Self, Error> {
        let mut descent = Self {
            connection,
            pile,
            prefix: prefix.to_vec(),
            heads: Vec::new(),
            added: added.map(|added| added.between(prefix, bound).rev().peekable()),
        };
        let mut statement = connection.prepare_cached(HEADS)?;
        let mut rows = statement.query(params![pile as i64, bound])?;
        while let Some(row) = rows.next()? {
            let mut entries = Entries::default();
            entries.unpack(row.get_ref(2)?.as_blob()?)?;
            descent.heads.push(Head {
                level: row.get(0)?,
                first: row.get(1)?,
                left: entries.below(bound),
                entries,
            });
        }
        let mut heads = std::mem::take(&mut descent.heads);
        for head in &mut heads {
            descent.fill(head)?;
        }
        heads.retain(|head| head.left > 0);
        descent.heads = heads;
        Ok(descent)
    }

    /// Goes to the sheet before if everything of this one was told. With nothing left in it, or
    /// nothing of the prefix, a level has ended.
    fn fill(&self, head: &mut Head) -> Result<(), Error> {
        while head.left == 0 && head.first.as_slice() > self.prefix.as_slice() {
            let values = params![self.pile as i64, head.level, head.first];
            let mut statement = self.connection.prepare_cached(NEXT)?;
            let found = statement
                .query_row(values, |row| {
                    let mut entries = Entries::default();
                    entries.unpack(row.get_ref(1)?.as_blob()?)?;
                    Ok((row.get(0)?, entries))
                })
                .optional()?;
            let Some((first, entries)) = found else {
                return Ok(());
            };
            (head.first, head.left, head.entries) = (first, entries.len(), entries);
        }
        let outside = |entry: &[u8]| !entry.starts_with(&self.prefix);
        if head.entry().is_some_and(outside) {
            head.left = 0;
        }
        Ok(())
    }

    /// The next entry, without its prefix, given to `read`.
    pub(in crate::store::sqlite) fn next<T>(
        &mut self,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        let mut key = Vec::new();
        while let Some(is_there) = self.take(&mut key)? {
            if is_there {
                return Ok(Some(read(key.get(self.prefix.len()..).unwrap_or_default())));
            }
        }
        Ok(None)
    }

    /// Goes past the largest key, which is then in `key`; whether it is there or gone.
    fn take(&mut self, key: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        let added = self.added.as_mut().and_then(|added| added.peek().copied());
        let added = added.map(|entry| split(entry));
        let heads = self.heads.iter().filter_map(Head::entry).map(split);
        let Some(largest) = heads.chain(added).map(|(key, _)| key).max() else {
            return Ok(None);
        };
        key.clear();
        key.extend_from_slice(largest);
        let mut standing = 0;
        let mut meet = |sign| match sign {
            Sign::There => standing += 1,
            Sign::Gone => standing -= 1,
        };
        if let Some((_, sign)) = added.filter(|(added, _)| *added == key.as_slice()) {
            meet(sign);
            self.added.as_mut().and_then(Iterator::next);
        }
        let mut heads = std::mem::take(&mut self.heads);
        for head in &mut heads {
            if let Some((_, sign)) = head
                .entry()
                .map(split)
                .filter(|(it, _)| *it == key.as_slice())
            {
                meet(sign);
                head.left -= 1;
                self.fill(head)?;
            }
        }
        heads.retain(|head| head.left > 0);
        self.heads = heads;
        Ok(Some(standing > 0))
    }
}
