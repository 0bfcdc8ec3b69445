//! Fresh records: what is surely new is not looked for.
//!
//! In:    the hash of a URI, within a transaction of the one writer.
//! Out:   whether a record may stand there, without asking the file.
//! Never: "new" of a record that is there.
//!
//! Nearly every record that comes is new, and a URI's hash begins with its time
//! (`names::hash`). So the writer remembers the hashes of all records from a
//! *floor* on, which is a little before what came last: what lies above the floor
//! and is not remembered is new. What lies below is looked for, as is everything whose
//! record key is no time.

use std::collections::HashSet;

use rusqlite::{Connection, Error, OptionalExtension};

/// Hashes in memory; with one more the floor is raised and half of them go.
const HASHES_MAX: usize = 262_144;

/// The hashes of all records from a floor on.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// `None` before the first question.
    floor: Option<i64>,
    hashes: HashSet<i64>,
}

impl Fresh {
    /// Whether no record has this hash.
    pub(super) fn lacks(&mut self, tx: &Connection, hash: i64) -> Result<bool, Error> {
        let floor = match self.floor {
            Some(floor) => floor,
            None => self.begin(tx)?,
        };
        Ok(hash >= floor && !self.hashes.contains(&hash))
    }

    /// A record of this hash is there from now on.
    pub(super) fn came(&mut self, hash: i64) {
        if self.floor.is_none_or(|floor| hash < floor) {
            return;
        }
        self.hashes.insert(hash);
        if self.hashes.len() > HASHES_MAX {
            self.rise();
        }
    }

    /// Remembers what is there from the time of the newest record on.
    fn begin(&mut self, tx: &Connection) -> Result<i64, Error> {
        let newest: Option<i64> = tx
            .prepare_cached("SELECT hash FROM record ORDER BY id DESC LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        // What has no time is below zero, in no order.
        let mut floor = newest.unwrap_or(0).max(0) >> 32 << 32;
        self.hashes = tx
            .prepare_cached("SELECT hash FROM record WHERE hash >= ?1 ORDER BY hash DESC LIMIT ?2")?
            .query_map([floor, HASHES_MAX as i64], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if self.hashes.len() == HASHES_MAX {
            // There may be more than were read.
            floor = self.hashes.iter().min().map_or(floor, |least| least + 1);
        }
        Ok(*self.floor.insert(floor))
    }

    fn rise(&mut self) {
        let mut hashes: Vec<i64> = self.hashes.iter().copied().collect();
        let middle = hashes.len() / 2;
        let (_, &mut floor, _) = hashes.select_nth_unstable(middle);
        self.hashes.retain(|hash| *hash >= floor);
        self.floor = Some(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with records of these hashes, in this order.
    fn store(hashes: &[i64]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE record (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL)";
        connection.execute(table, []).unwrap();
        for hash in hashes {
            let row = "INSERT INTO record (hash) VALUES (?1)";
            connection.execute(row, [hash]).unwrap();
        }
        connection
    }

    /// The hash of a URI of this time.
    fn at(time: i64, own: i64) -> i64 {
        time << 32 | own
    }

    #[test]
    fn what_is_there_is_never_called_new() {
        let there = [at(9, 1), at(3, 1), -7, at(5, 9), at(700, 3), at(5, 2)];
        let (tx, mut fresh) = (store(&there), Fresh::default());
        for hash in there {
            assert!(!fresh.lacks(&tx, hash).unwrap(), "{hash}");
        }
        fresh.came(at(6, 6));
        assert!(!fresh.lacks(&tx, at(6, 6)).unwrap());
    }

    #[test]
    fn what_comes_after_the_newest_is_called_new_even_where_one_is_far_ahead() {
        let tx = store(&[at(700, 3), at(5, 2)]);
        let mut fresh = Fresh::default();
        for new in [at(5, 1), at(6, 1), at(701, 1)] {
            assert!(fresh.lacks(&tx, new).unwrap(), "{new}");
        }
        // Of what is older nothing is known, nor of what has no time.
        for old in [at(4, 1), -1, i64::MIN] {
            assert!(!fresh.lacks(&tx, old).unwrap(), "{old}");
        }
    }

    #[test]
    fn a_file_without_a_time_says_nothing_of_what_has_none() {
        for newest in [&[][..], &[-5]] {
            let (tx, mut fresh) = (store(newest), Fresh::default());
            assert!(!fresh.lacks(&tx, -6).unwrap());
            assert!(fresh.lacks(&tx, at(1, 1)).unwrap());
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_newest_of_it_stays() {
        let (tx, mut fresh) = (store(&[]), Fresh::default());
        let count = 3 * HASHES_MAX as i64;
        for hash in 0..count {
            assert!(fresh.lacks(&tx, hash).unwrap());
            fresh.came(hash);
            assert!(fresh.hashes.len() <= HASHES_MAX);
        }
        for hash in 0..count {
            assert!(!fresh.lacks(&tx, hash).unwrap(), "{hash}");
        }
        assert!(fresh.lacks(&tx, count).unwrap());
    }
}
