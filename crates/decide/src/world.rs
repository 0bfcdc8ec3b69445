//! A transaction in the making: what was read, under what is to be written.
//!
//! In:    loaded rows; then gets, puts and deletes of decisions.
//! Out:   [`Writes`], each row once; or the rows that were asked for and not loaded.
//! Never: a row that was not loaded taken for one that does not exist.
//!
//! A decision that asks for an unknown row stops with [`Halt::Missing`], the
//! others go on to find out what else is missing, and the whole batch is
//! decided again when all of it is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::accounting::{Accounting, Outcome};
use crate::change::Change;
use crate::ids::{CollectionId, IndexId, KeyId, Micros, Path};
use crate::rows::{Dead, Parked};
use crate::rules::Rules;
use crate::table::{Row, Table};
use crate::value::{Cell, Damaged, Value};
use crate::wants::{Loaded, Names, Scan, Wants};
use crate::writes::{Wake, Writes};

/// Why a decision cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It asked for rows that were not loaded; [`World::missing`] has them.
    Missing,
    /// A loaded row is not one of ours.
    Damaged(Damaged),
}

impl From<Damaged> for Halt {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

/// Rows that hang at the path of a record and are looked up by it.
pub(crate) trait AtPath: Row {
    const INDEX: &'static str;
    fn path(&self) -> Path;
}

impl AtPath for Parked {
    const INDEX: &'static str = "parked_by_path";
    fn path(&self) -> Path {
        Path {
            author: self.author,
            collection: self.collection,
            rkey: self.rkey.clone(),
        }
    }
}

impl AtPath for Dead {
    const INDEX: &'static str = "dead_by_path";
    fn path(&self) -> Path {
        Path {
            author: self.author,
            collection: self.collection,
            rkey: self.rkey.clone(),
        }
    }
}

/// Rows at one path that are read; a path has one parked version and few dead letters.
const AT_PATH_MAX: usize = 16;

fn path_prefix(path: &Path) -> Vec<Value> {
    vec![
        path.author.to_value(),
        path.collection.to_value(),
        path.rkey.to_value(),
    ]
}

type RowKey = (&'static str, Vec<Value>);

#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) names: &'a Names,
    pub(crate) source: &'a str,
    pub(crate) now_us: Micros,
    loaded: &'a Loaded,
    pub(crate) missing: Wants,
    /// Rows to put, or (`None`) to delete.
    net: BTreeMap<RowKey, (&'static Table, Option<Vec<Value>>)>,
    /// Primary keys of rows in `net`, by table and path.
    at_paths: HashMap<(&'static str, Path), BTreeSet<Vec<Value>>>,
    ids_used: usize,
    pub(crate) writes: Writes,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        rules: &'a Rules,
        names: &'a Names,
        loaded: &'a Loaded,
        (source, now_us): (&'a str, Micros),
    ) -> Self {
        Self {
            rules,
            names,
            source,
            now_us,
            loaded,
            missing: Wants::default(),
            net: BTreeMap::new(),
            at_paths: HashMap::new(),
            ids_used: 0,
            writes: Writes::default(),
        }
    }

    /// The row with a primary key, as it is at this point of the transaction.
    pub(crate) fn get<R: Row>(&mut self, key: Vec<Value>) -> Result<Option<R>, Halt> {
        let at = (R::TABLE.name, key);
        let found = match self.net.get(&at) {
            Some((_, row)) => row,
            None => match self.loaded.rows.get(&at) {
                Some(row) => row,
                None => {
                    self.missing.row(R::TABLE, at.1);
                    return Err(Halt::Missing);
                }
            },
        };
        Ok(found.as_deref().map(R::from_values).transpose()?)
    }

    /// Asks for a row that a decision will get; says whether it is not loaded.
    pub(crate) fn want<R: Row>(&mut self, key: Vec<Value>) -> bool {
        let at = (R::TABLE.name, key);
        let known = self.net.contains_key(&at) || self.loaded.rows.contains_key(&at);
        if !known {
            self.missing.row(R::TABLE, at.1);
        }
        !known
    }

    /// Asks for rows that a decision will scan.
    pub(crate) fn want_scan<R: Row>(
        &mut self,
        index: &'static str,
        prefix: Vec<Value>,
        max: usize,
    ) {
        let scan = Scan {
            table: R::TABLE.name,
            index,
            prefix,
            max,
        };
        if !self.loaded.scans.contains_key(&scan) {
            self.missing.scans.insert(scan);
        }
    }

    /// Asks for the rows at a path.
    pub(crate) fn want_at<R: AtPath>(&mut self, path: &Path) {
        self.want_scan::<R>(R::INDEX, path_prefix(path), AT_PATH_MAX);
    }

    pub(crate) fn put<R: Row>(&mut self, row: &R) {
        let values = row.to_values();
        let key = R::TABLE.key_of(&values);
        self.net
            .insert((R::TABLE.name, key), (R::TABLE, Some(values)));
    }

    pub(crate) fn delete<R: Row>(&mut self, key: Vec<Value>) {
        self.net.insert((R::TABLE.name, key), (R::TABLE, None));
    }

    /// Puts a row that is looked up by its path.
    pub(crate) fn put_at<R: AtPath>(&mut self, row: &R) {
        let key = R::TABLE.key_of(&row.to_values());
        let keys = self.at_paths.entry((R::TABLE.name, row.path()));
        keys.or_default().insert(key);
        self.put(row);
    }

    /// The rows at a path, as they are at this point of the transaction.
    pub(crate) fn at<R: AtPath>(&mut self, path: &Path) -> Result<Vec<R>, Halt> {
        let rows = self.scan::<R>(R::INDEX, path_prefix(path), AT_PATH_MAX)?;
        let mut keys: BTreeSet<Vec<Value>> = rows
            .iter()
            .map(|row| R::TABLE.key_of(&row.to_values()))
            .collect();
        let mut found = rows;
        let added = self.at_paths.get(&(R::TABLE.name, path.clone()));
        for key in added.cloned().unwrap_or_default() {
            if keys.insert(key.clone()) {
                found.extend(self.get::<R>(key)?);
            }
        }
        Ok(found)
    }

    /// Loaded rows of an order, without those that this transaction deleted and as it changed them.
    /// Rows that it added are not among them.
    pub(crate) fn scan<R: Row>(
        &mut self,
        index: &'static str,
        prefix: Vec<Value>,
        max: usize,
    ) -> Result<Vec<R>, Halt> {
        let scan = Scan {
            table: R::TABLE.name,
            index,
            prefix,
            max,
        };
        let Some(rows) = self.loaded.scans.get(&scan) else {
            self.missing.scans.insert(scan);
            return Err(Halt::Missing);
        };
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let at = (R::TABLE.name, R::TABLE.key_of(row));
            match self.net.get(&at) {
                None => found.push(R::from_values(row)?),
                Some((_, Some(changed))) => found.push(R::from_values(changed)?),
                Some((_, None)) => {}
            }
        }
        Ok(found)
    }

    /// Whether any row begins with `prefix` in the order of its primary key.
    pub(crate) fn exists<R: Row>(&mut self, prefix: &[Value]) -> Result<bool, Halt> {
        let from = (R::TABLE.name, prefix.to_vec());
        let of_batch = self.net.range(from..);
        let mut of_batch = of_batch
            .take_while(|((table, key), _)| *table == R::TABLE.name && key.starts_with(prefix));
        if of_batch.any(|(_, (_, row))| row.is_some()) {
            return Ok(true);
        }
        // If the transaction deleted all that was read, there may be more.
        let mut max = 8;
        loop {
            let read = self.scan::<R>("", prefix.to_vec(), max)?;
            if !read.is_empty() {
                return Ok(true);
            }
            let scan = Scan {
                table: R::TABLE.name,
                index: "",
                prefix: prefix.to_vec(),
                max,
            };
            if self
                .loaded
                .scans
                .get(&scan)
                .is_none_or(|rows| rows.len() < max)
            {
                return Ok(false);
            }
            max *= 8;
        }
    }

    /// A number that nobody else was or will be given.
    pub(crate) fn new_id(&mut self) -> Result<i64, Halt> {
        let id = self.loaded.ids.get(self.ids_used).copied();
        self.ids_used += 1;
        id.ok_or_else(|| {
            self.missing.ids += 1;
            Halt::Missing
        })
    }

    /// The number of a name.
    pub(crate) fn key(&self, text: &str) -> KeyId {
        self.names.key(text)
    }

    /// The number of a collection.
    pub(crate) fn collection(&self, nsid: &str) -> CollectionId {
        self.names.collection(nsid)
    }

    /// The counters of a source.
    pub(crate) fn counts(&mut self, source: &str) -> &mut Accounting {
        self.writes.counts.entry(source.to_owned()).or_default()
    }

    /// Counts units of this batch.
    pub(crate) fn receive(&mut self, outcome: Outcome, units: i64) {
        let source = self.source;
        self.counts(source).receive(outcome, units);
    }

    /// Adds to the counter of an index under a key.
    pub(crate) fn add(&mut self, index: IndexId, key: KeyId, by: i64) {
        *self.writes.add.entry((index, key)).or_default() += by;
    }

    /// Live records gained or lost by a collection.
    pub(crate) fn live(&mut self, collection: CollectionId) -> &mut i64 {
        self.writes.live.entry(collection).or_default()
    }

    /// Counts operations that wait in a queue.
    pub(crate) fn deepen(&mut self, queue: &str, by: i64) {
        *self.writes.depth.entry(queue.to_owned()).or_default() += by;
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.writes.changes.push(change);
    }

    /// Makes what waits for `need` due now.
    pub(crate) fn wake(&mut self, need: &str) {
        self.writes.wake.push(Wake {
            hash: crate::ids::hash(need),
            need: need.to_owned(),
            woken_us: self.now_us,
        });
    }

    /// Everything that is to be written, or what must be read first.
    pub(crate) fn finish(mut self) -> Result<Writes, Wants> {
        if !self.missing.is_empty() {
            return Err(self.missing);
        }
        for ((name, key), (table, row)) in self.net {
            // A row that was made and removed again in one transaction was never there.
            match row {
                Some(row) => self.writes.put.push((table, row)),
                None if self.loaded.rows.get(&(name, key.clone())) == Some(&None) => {}
                None => self.writes.delete.push((table, key)),
            }
        }
        self.writes.add.retain(|_, by| *by != 0);
        self.writes.live.retain(|_, by| *by != 0);
        self.writes.depth.retain(|_, by| *by != 0);
        self.writes.wake.sort();
        self.writes.wake.dedup();
        Ok(self.writes)
    }
}
