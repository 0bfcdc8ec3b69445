//! A pile beside a plain set of the same entries, and the sheets that it lies on.

use super::*;
use std::collections::BTreeSet;

const TABLES: &str = "
CREATE TABLE sheet (id INTEGER PRIMARY KEY, entries BLOB NOT NULL);
CREATE TABLE fence (pile INTEGER NOT NULL, level INTEGER NOT NULL, first BLOB NOT NULL, sheet INTEGER NOT NULL,
    PRIMARY KEY (pile, level, first)) WITHOUT ROWID;
CREATE TABLE level (pile INTEGER NOT NULL, level INTEGER NOT NULL, count INTEGER NOT NULL, turn BLOB NOT NULL,
    PRIMARY KEY (pile, level)) WITHOUT ROWID;";

/// Numbers in no order, from a seed.
struct Lots(u64);

impl Lots {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// A pile, and the same entries in a plain set.
struct Pair {
    connection: Connection,
    added: Added,
    model: BTreeSet<Vec<u8>>,
    gone: Vec<Vec<u8>>,
    lots: Lots,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLES).unwrap();
        Self {
            connection,
            added: Added::to(Pile::Authored),
            model: BTreeSet::new(),
            gone: Vec::new(),
            lots: Lots(seed),
        }
    }

    /// Two letters that some share, then what nobody shares.
    fn entry(&mut self) -> Vec<u8> {
        let group = [self.lots.next(9) as u8 + 1, self.lots.next(200) as u8 + 1];
        let own = self.lots.next(1 << 30).to_be_bytes();
        let long = vec![7; self.lots.next(40) as usize];
        [&group[..], &own, &long].concat()
    }

    fn add(&mut self, count: usize) {
        for _ in 0..count {
            let entry = self.entry();
            self.added.add(&entry);
            self.model.insert(entry);
        }
    }

    fn remove(&mut self, count: usize) {
        for _ in 0..count {
            let from = self.entry();
            // Some come back: the very same entry, after its end.
            if let Some(back) = self.gone.pop().filter(|_| self.lots.next(3) == 0) {
                self.added.add(&back);
                self.model.insert(back);
            }
            let Some(entry) = self.model.range(from..).next().cloned() else {
                continue;
            };
            self.model.remove(&entry);
            self.added.remove(&entry);
            self.gone.push(entry);
        }
    }

    fn settle(&mut self) {
        self.added.settle(&self.connection).unwrap();
    }

    /// All that begins with a prefix and lies below a bound, from both.
    #[track_caller]
    fn check(&self, prefix: &[u8], bound: &[u8]) {
        let mut descent = Descent::new(
            &self.connection,
            Pile::Authored,
            prefix,
            bound,
            Some(&self.added),
        )
        .unwrap();
        let mut found = Vec::new();
        while let Some(entry) = descent.next(<[u8]>::to_vec).unwrap() {
            found.push([prefix, &entry].concat());
        }
        let all = self.model.iter().rev();
        let mine = all.filter(|entry| entry.starts_with(prefix) && entry.as_slice() < bound);
        assert!(found.iter().eq(mine), "prefix {prefix:?}, bound {bound:?}");
    }

    fn check_some(&mut self) {
        for _ in 0..20 {
            let bound = self.entry();
            let prefix = &bound[..self.lots.next(3) as usize];
            self.check(prefix, &bound);
        }
        self.check(&[], &[255]);
    }

    /// Each sheet's entries lie between its fence and the next, and the counts are right.
    fn check_sheets(&self) {
        let stack = Stack::of(&self.connection, Pile::Authored);
        let mut sheets = 0;
        for (number, level) in read_levels(&self.connection, Pile::Authored)
            .unwrap()
            .iter()
            .enumerate()
        {
            let fences = stack.fences(number, &[], ABOVE_ALL, usize::MAX).unwrap();
            let mut all = Entries::default();
            for (at, fence) in fences.iter().enumerate() {
                let entries = stack.entries(fence.sheet).unwrap();
                assert!(entries.get(0).unwrap() >= &fence.first[..]);
                if let Some(next) = fences.get(at + 1) {
                    assert!(entries.get(entries.len() - 1).unwrap() < &next.first[..]);
                }
                all.unpack(&stack.packed(fence.sheet).unwrap()).unwrap();
            }
            sheets += fences.len();
            assert_eq!(all.len(), level.count, "level {number}");
            assert!(
                level.count <= level_max(number) + MOVED_MIN,
                "level {number}"
            );
        }
        let kept: i64 = self
            .connection
            .query_row("SELECT count(*) FROM sheet", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, sheets as i64);
    }
}

#[test]
fn a_pile_holds_what_a_plain_set_holds() {
    for seed in 1..4 {
        let mut pair = Pair::new(seed);
        for round in 0..40 {
            let (much, little) = (pair.lots.next(9_000) as usize, pair.lots.next(60) as usize);
            pair.add(if round % 3 == 0 { much } else { little });
            pair.remove(little);
            if round % 8 == 0 {
                pair.check_some();
            }
            pair.settle();
        }
        pair.check_some();
        pair.check_sheets();
        let levels = pair.added.levels.as_ref().unwrap();
        assert!(
            levels.iter().filter(|level| level.count > 0).count() > 1,
            "{levels:?}"
        );
    }
}

#[test]
fn a_pile_that_everything_left_is_empty() {
    let mut pair = Pair::new(9);
    pair.add(6_000);
    pair.settle();
    for entry in std::mem::take(&mut pair.model) {
        pair.added.remove(&entry);
    }
    pair.settle();
    pair.check_some();
    pair.check_sheets();
}

/// Some lies before the place where the first level's next stretch begins.
#[test]
fn what_passes_a_level_takes_along_all_of_it() {
    let mut pair = Pair::new(13);
    for count in [FIRST_MAX - 100, 200, 200] {
        pair.add(count);
        pair.settle();
    }
    let turns = &pair.added.levels.as_ref().unwrap()[0].turn;
    assert!(!turns.is_empty());
    for entry in std::mem::take(&mut pair.model) {
        pair.added.remove(&entry);
    }
    pair.settle();
    pair.check_some();
    pair.check_sheets();
}

#[test]
fn what_is_not_there_cannot_be_taken_away_in_silence() {
    let mut pair = Pair::new(3);
    pair.add(10);
    pair.settle();
    pair.added.remove(b"nobody");
    assert!(pair.added.settle(&pair.connection).is_err());
}

/// A sheet that comes or goes dirties its neighbours' pages.
#[test]
fn what_moves_down_is_written_where_something_left() {
    let mut pair = Pair::new(11);
    for _ in 0..20 {
        pair.add(5_000);
        pair.settle();
    }
    let sql = "SELECT max(id) * 1.0 / count(*) FROM sheet";
    let ever: f64 = pair
        .connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert!(ever < 1.3, "{ever} rows were made for each that is there");
    pair.check_sheets();
}

/// Entries that come in no order dirty fewer pages than there are of them, once there are many.
#[test]
fn a_transaction_writes_few_sheets_for_many_entries() {
    let mut pair = Pair::new(7);
    for _ in 0..12 {
        pair.add(10_000);
        pair.settle();
    }
    let changes = |pair: &Pair| pair.connection.total_changes();
    let before = changes(&pair);
    pair.add(10_000);
    pair.settle();
    let rows = changes(&pair) - before;
    assert!(rows < 5_000, "{rows} rows were written for 10 000 entries");
    pair.check_sheets();
}
