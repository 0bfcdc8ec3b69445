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
use crate::content::{Content, number};
use crate::ids::{CollectionId, IndexId, KeyId, Micros, Path};
use crate::names::Unnamed;
use crate::rows::{Dead, Parked, Reference, Total, Waiting};
use crate::rules::{Rules, Subject};
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

/// Why a batch is not decided yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// These rows must be loaded; then decide again with all that was loaded.
    Load(Wants),
    /// These names need numbers, outside the transaction; then begin again.
    Intern(Unnamed),
    /// A loaded row is not one of ours: the store is damaged.
    Damaged(Damaged),
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

/// The first rows that begin with `prefix` in an order.
pub(crate) fn first<R: Row>(index: &'static str, prefix: Vec<Value>, max: usize) -> Scan {
    Scan {
        table: R::TABLE.name,
        index,
        prefix,
        after: Vec::new(),
        max,
    }
}

#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) names: &'a Names,
    pub(crate) source: &'a str,
    pub(crate) now_us: Micros,
    loaded: &'a Loaded,
    pub(crate) missing: Wants,
    pub(crate) unnamed: Unnamed,
    /// Rows to put, or (`None`) to delete.
    net: BTreeMap<RowKey, (&'static Table, Option<Vec<Value>>)>,
    /// Primary keys of rows in `net`, by table and path.
    at_paths: HashMap<(&'static str, Path), BTreeSet<Vec<Value>>>,
    /// Primary keys of references that were added, by the hash and the text that they name.
    referred: HashMap<(i64, String), BTreeSet<Vec<Value>>>,
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
            unnamed: Unnamed::default(),
            net: BTreeMap::new(),
            at_paths: HashMap::new(),
            referred: HashMap::new(),
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
    pub(crate) fn want_scan(&mut self, scan: Scan) {
        if !self.loaded.scans.contains_key(&scan) {
            self.missing.scans.insert(scan);
        }
    }

    /// Asks for the rows at a path.
    pub(crate) fn want_at<R: AtPath>(&mut self, path: &Path) {
        self.want_scan(first::<R>(R::INDEX, path_prefix(path), AT_PATH_MAX));
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
        let rows = self.scan::<R>(first::<R>(R::INDEX, path_prefix(path), AT_PATH_MAX))?;
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
    pub(crate) fn scan<R: Row>(&mut self, scan: Scan) -> Result<Vec<R>, Halt> {
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

    /// The rows of a scan as they were loaded, whatever this transaction did to them.
    pub(crate) fn loaded<R: Row>(&mut self, scan: &Scan) -> Result<Vec<R>, Halt> {
        let Some(rows) = self.loaded.scans.get(scan) else {
            self.missing.scans.insert(scan.clone());
            return Err(Halt::Missing);
        };
        let rows = rows.iter().map(|row| R::from_values(row));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Adds a reference, with the text behind its hash.
    pub(crate) fn refer(&mut self, row: &Reference, text: &str) {
        let of_target = self.referred.entry((row.target, text.to_owned()));
        of_target
            .or_default()
            .insert(Reference::TABLE.key_of(&row.to_values()));
        self.put(row);
    }

    /// Whether this transaction added a reference to a text, from a path of a collection.
    pub(crate) fn refers(&self, collection: CollectionId, path: &str, text: &str) -> bool {
        let prefix = [
            Value::Int(crate::ids::hash(text)),
            collection.to_value(),
            Value::Text(path.to_owned()),
        ];
        let added = self
            .referred
            .get(&(crate::ids::hash(text), text.to_owned()));
        let mut added = added.into_iter().flatten();
        added.any(|key| {
            let row = self.net.get(&(Reference::TABLE.name, key.clone()));
            key.starts_with(&prefix) && row.is_some_and(|(_, row)| row.is_some())
        })
    }

    /// The name behind the number of a key.
    pub(crate) fn key_name(&mut self, key: KeyId) -> Result<&'a str, Halt> {
        match self.loaded.keys.get(&key) {
            Some(name) => Ok(name),
            None => {
                self.missing.keys.insert(key);
                Err(Halt::Missing)
            }
        }
    }

    /// The name behind the number of a collection.
    pub(crate) fn collection_name(&mut self, id: CollectionId) -> Result<&'a str, Halt> {
        match self.loaded.collections.get(&id) {
            Some(name) => Ok(name),
            None => {
                self.missing.collections.insert(id);
                Err(Halt::Missing)
            }
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

    /// Asks for new numbers, if none are loaded yet.
    pub(crate) fn want_ids(&mut self, ids: usize) {
        if self.loaded.ids.is_empty() {
            self.missing.ids += ids;
        }
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
        self.receive_for(source, outcome, units);
    }

    /// Counts units of a source that arrived with this batch.
    pub(crate) fn receive_for(&mut self, source: &str, outcome: Outcome, units: i64) {
        self.counts(source).receive(outcome, units);
        self.writes.arrived.receive(outcome, units);
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

    /// Dead letters gained or lost by a stage and collection.
    pub(crate) fn dead_kind(&mut self, stage: &str, collection: CollectionId) -> &mut i64 {
        let kind = (stage.to_owned(), collection);
        self.writes.dead_kinds.entry(kind).or_default()
    }

    /// Records more or fewer of a collection that wait for others.
    pub(crate) fn waiting(&mut self, collection: CollectionId) -> &mut i64 {
        self.writes.waiting.entry(collection).or_default()
    }

    /// Whether any record of a collection waits for another one.
    pub(crate) fn may_wait(&mut self, collection: CollectionId) -> Result<bool, Halt> {
        let stored = self.get::<Waiting>(vec![collection.to_value()])?;
        let stored = stored.map_or(0, |waiting| waiting.n);
        Ok(stored + *self.waiting(collection) > 0)
    }

    /// What is added to a number of the store as a whole.
    pub(crate) fn total(&mut self, name: &'static str) -> &mut i64 {
        self.writes.totals.entry(name).or_default()
    }

    /// A number of the store as a whole, with what this transaction added to it.
    pub(crate) fn total_now(&mut self, name: &'static str) -> Result<i64, Halt> {
        let stored = self.get::<Total>(vec![Value::Text(name.to_owned())])?;
        Ok(stored.map_or(0, |total| total.n) + *self.total(name))
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

    /// A record that waited, as today's configuration sees it.
    pub(crate) fn renewed(
        &mut self,
        (did, nsid, rkey): (&str, &str, &str),
        content: Content,
    ) -> Result<Content, Halt> {
        let expressions = self.rules.expressions.as_ref();
        let Some(expressions) = expressions.filter(|_| content.layout != self.rules.layout) else {
            return Ok(content);
        };
        let mut put = expressions.derive(Subject {
            did,
            nsid,
            rkey,
            body: &content.body,
        });
        if self.unnamed.add(&put, self.names) {
            return Err(Halt::Missing);
        }
        put.cid = content.cid;
        put.seen_us = content.seen_us;
        Ok(number(self.names, self.rules.layout, &put))
    }

    /// Everything that is to be written, or what must be known first.
    pub(crate) fn finish(mut self) -> Result<Writes, Undecided> {
        if !self.unnamed.is_empty() {
            return Err(Undecided::Intern(self.unnamed));
        }
        if !self.missing.is_empty() {
            return Err(Undecided::Load(self.missing));
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
        self.writes.dead_kinds.retain(|_, by| *by != 0);
        self.writes.totals.retain(|_, by| *by != 0);
        self.writes.waiting.retain(|_, by| *by != 0);
        self.writes.wake.sort();
        self.writes.wake.dedup();
        Ok(self.writes)
    }
}
