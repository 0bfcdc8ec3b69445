//! Tips: how far each account's chain of commits has come.
//!
//! In:    an account's newest revision and the tree of it, within a transaction.
//! Out:   the same, to whoever asks for the account.
//! Never: a row written twice in one transaction; a panic on damaged bytes.
//!
//! Every commit moves one tip, and whose it is nobody can foresee. In the rows
//! of accounts that dirtied most of their pages with every large transaction. So
//! tips stand apart and packed: those of [`STRETCH`] neighbours in one row, which
//! fills a page, and a transaction writes each row once, at its end.

use std::collections::BTreeMap;

use record::cid::Cid;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, OptionalExtension, params};

/// Keys of accounts that share a row.
const STRETCH: i64 = 232;

/// What a tree is known by: the first quarter of its hash. A commit that follows names the tree
/// before it, and that one which does not follow agrees with it in sixty-four bits is no accident; who
/// makes such a pair makes it of his own repository.
pub(super) type Mark = [u8; 8];

pub(super) fn mark(cid: Cid) -> Mark {
    let mut mark = Mark::default();
    let digest = cid.as_bytes().iter().skip(4);
    mark.iter_mut()
        .zip(digest)
        .for_each(|(to, from)| *to = *from);
    mark
}

/// The newest commit that was seen of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) rev: u64,
    /// `None` where its source does not tell the tree.
    pub(super) data: Option<Mark>,
}

/// A tip as it is packed: the place of its account in the stretch, the revision, the mark; no mark is zeros.
type Packed = [u8; 17];

fn pack(place: u8, tip: Tip) -> Packed {
    let [a, b, c, d, e, f, g, h] = tip.rev.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = tip.data.unwrap_or_default();
    [place, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

fn unpack(packed: &Packed) -> Tip {
    let [_, a, b, c, d, e, f, g, h, mark @ ..] = *packed;
    Tip {
        rev: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        data: (mark != Mark::default()).then_some(mark),
    }
}

/// The row of an account, and its place there.
fn place(key: i64) -> (i64, u8) {
    (key.div_euclid(STRETCH), key.rem_euclid(STRETCH) as u8)
}

fn search(tips: &[Packed], place: u8) -> Result<usize, usize> {
    tips.binary_search_by_key(&place, |[place, ..]| *place)
}

/// The tips of a row; what is damaged at its end is none.
fn tips(value: ValueRef<'_>) -> Result<&[Packed], Error> {
    Ok(value.as_blob()?.as_chunks().0)
}

/// The tip of an account, as the file has it.
pub(super) fn find(connection: &Connection, key: i64) -> Result<Tip, Error> {
    let (stretch, place) = place(key);
    let found = connection
        .prepare_cached("SELECT tips FROM tip WHERE stretch = ?1")?
        .query_row([stretch], |row| {
            let tips = tips(row.get_ref(0)?)?;
            let found = search(tips, place).ok().and_then(|at| tips.get(at));
            Ok(found.map(unpack))
        })
        .optional()?;
    Ok(found.flatten().unwrap_or_default())
}

/// The tips that a transaction moved.
#[derive(Debug, Default)]
pub(super) struct Moved(BTreeMap<i64, Tip>);

impl Moved {
    pub(super) fn to(&mut self, key: i64, tip: Tip) {
        self.0.insert(key, tip);
    }

    /// The tip of an account, for who is in the transaction.
    pub(super) fn find(&self, tx: &Connection, key: i64) -> Result<Tip, Error> {
        match self.0.get(&key) {
            Some(tip) => Ok(*tip),
            None => find(tx, key),
        }
    }

    /// Writes what was moved, before the transaction ends.
    pub(super) fn settle(&mut self, tx: &Connection) -> Result<(), Error> {
        let mut moved = std::mem::take(&mut self.0).into_iter().peekable();
        let mut read = tx.prepare_cached("SELECT tips FROM tip WHERE stretch = ?1")?;
        let mut write =
            tx.prepare_cached("INSERT OR REPLACE INTO tip (stretch, tips) VALUES (?1, ?2)")?;
        while let Some((key, _)) = moved.peek() {
            let (stretch, _) = place(*key);
            let old = read.query_row([stretch], |row| Ok(tips(row.get_ref(0)?)?.to_vec()));
            let mut all = old.optional()?.unwrap_or_default();
            while let Some((key, tip)) = moved.next_if(|(key, _)| place(*key).0 == stretch) {
                let (_, place) = place(key);
                match search(&all, place) {
                    Ok(at) => all.splice(at..=at, [pack(place, tip)]).for_each(drop),
                    Err(at) => all.insert(at, pack(place, tip)),
                }
            }
            write.execute(params![stretch, all.as_flattened()])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tip(rev: u64) -> Tip {
        Tip {
            rev,
            data: (!rev.is_multiple_of(3)).then_some(rev.to_be_bytes()),
        }
    }

    fn store() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE tip (stretch INTEGER PRIMARY KEY, tips BLOB NOT NULL)";
        connection.execute(table, []).unwrap();
        connection
    }

    #[test]
    fn each_account_keeps_its_own_tip_whoever_its_neighbours_are() {
        let (tx, mut moved) = (store(), Moved::default());
        let mut model = BTreeMap::new();
        for round in 1..40_u64 {
            for step in 0..30 {
                let key = (round * 7919 + step * 104_729) % 1500;
                let moved_to = tip(round * 1000 + step);
                moved.to(key as i64, moved_to);
                model.insert(key as i64, moved_to);
            }
            for (key, tip) in &model {
                assert_eq!(moved.find(&tx, *key).unwrap(), *tip);
            }
            moved.settle(&tx).unwrap();
            for key in 0..1500 {
                let expected = model.get(&key).copied().unwrap_or_default();
                assert_eq!(find(&tx, key).unwrap(), expected, "{key}");
            }
        }
    }

    /// A row must not spill over its page, and a transaction must not write one of them twice.
    #[test]
    fn a_transaction_writes_each_row_once_and_a_full_one_fits_its_page() {
        let (tx, mut moved) = (store(), Moved::default());
        for key in 0..10 * STRETCH {
            moved.to(key, tip(1));
        }
        let before = tx.total_changes();
        moved.settle(&tx).unwrap();
        assert_eq!(tx.total_changes() - before, 10);
        let longest = "SELECT max(length(tips)) FROM tip";
        let longest: i64 = tx.query_row(longest, [], |row| row.get(0)).unwrap();
        assert!((3_900..4_050).contains(&longest), "{longest}");
    }

    #[test]
    fn damaged_bytes_are_no_panic() {
        let (tx, mut moved) = (store(), Moved::default());
        tx.execute("INSERT INTO tip VALUES (0, x'0102030405')", [])
            .unwrap();
        assert_eq!(find(&tx, 1).unwrap(), Tip::default());
        moved.to(1, tip(1));
        moved.settle(&tx).unwrap();
        assert_eq!(find(&tx, 1).unwrap(), tip(1));
    }
}
