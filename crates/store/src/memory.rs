//! The reference engine: ordered maps, as plainly as possible.
//!
//! One lock around everything. It is what the other engines are compared
//! with, and what tests run on; it keeps nothing when the process ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use decide::ids::{CollectionId, KeyId, Micros, Position, RecordId};
use decide::rows::{Account, Cursor, Entry, Parked, Recent, Record, TABLES};
use decide::table::{Row, Table};
use decide::value::{Cell, Value};
use decide::wants::{Loaded, Names, Scan, Wants};
use decide::writes::Writes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::StoreError;
use crate::port::{
    Asked, Candidate, Changed, Newest, Range, Rows, Snapshot, Store, Stored, Unit, dangling,
};

type TableRows = BTreeMap<Vec<Value>, Vec<Value>>;

/// A store that lives as long as the process.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Clone, Default)]
struct State {
    tables: HashMap<&'static str, TableRows>,
    /// The primary keys of the rows, by index: its columns, then the primary key.
    indexes: HashMap<&'static str, BTreeMap<Vec<Value>, Vec<Value>>>,
    names: Names,
    last_id: i64,
    head: Position,
    outbox: Vec<Changed>,
    trimmed: i64,
    leases: HashMap<String, (String, Micros)>,
}

impl Memory {
    pub fn new() -> Self {
        let memory = Self::default();
        memory.state.lock().head.epoch = 1;
        memory
    }
}

impl Store for Memory {
    fn intern(
        &self,
        keys: &BTreeSet<&str>,
        collections: &BTreeSet<&str>,
    ) -> Result<Names, StoreError> {
        let mut state = self.state.lock();
        let all = &mut state.names;
        let mut names = Names::default();
        for text in keys {
            let next = KeyId(all.keys.len() as i64 + 1);
            let id = *all.keys.entry((*text).to_owned()).or_insert(next);
            names.keys.insert((*text).to_owned(), id);
        }
        for nsid in collections {
            let next = CollectionId(all.collections.len() as i64 + 1);
            let id = *all.collections.entry((*nsid).to_owned()).or_insert(next);
            names.collections.insert((*nsid).to_owned(), id);
        }
        Ok(names)
    }

    fn begin(&self) -> Result<Box<dyn Unit + '_>, StoreError> {
        Ok(Box::new(MemoryUnit {
            store: self,
            state: self.state.lock(),
        }))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StoreError> {
        Ok(Box::new(self.state.lock().clone()))
    }

    fn changes(&self, after: Position, max_bytes: usize) -> Result<Vec<Changed>, StoreError> {
        let state = self.state.lock();
        let why = match after {
            Position { epoch, .. } if epoch != state.head.epoch => Some("it is of another history"),
            Position { n, .. } if n < state.trimmed => Some("what follows it was trimmed"),
            Position { n, .. } if n > state.head.n => Some("it is ahead of the store"),
            _ => None,
        };
        if let Some(why) = why {
            let asked = format!("{}/{}", after.epoch, after.n);
            return Err(StoreError::Gone { asked, why });
        }
        let mut bytes = 0;
        let rest = state.outbox.iter().filter(|one| one.position > after);
        let fits = |one: &&Changed| {
            let before = bytes;
            bytes += serde_json::to_vec(&one.change).map_or(0, |text| text.len());
            before == 0 || bytes <= max_bytes
        };
        Ok(rest.take_while(fits).cloned().collect())
    }

    fn wait(&self, after: Position, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        // A position that cannot be continued is news as well.
        let is_waiting = |state: &mut State| {
            after.epoch == state.head.epoch && state.trimmed <= after.n && state.head.n == after.n
        };
        let waited = self.changed.wait_while_for(&mut state, is_waiting, timeout);
        !waited.timed_out()
    }

    fn trim(&self, through: Position) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.trimmed = state.trimmed.max(through.n.min(state.head.n));
        let trimmed = state.trimmed;
        state.outbox.retain(|one| one.position.n > trimmed);
        Ok(())
    }

    fn lease(
        &self,
        name: &str,
        holder: &str,
        now_us: Micros,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let taken = state.leases.get(name);
        if taken.is_some_and(|(by, until_us)| by != holder && *until_us > now_us) {
            return Ok(false);
        }
        let until_us = now_us.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX));
        let lease = (holder.to_owned(), until_us);
        state.leases.insert(name.to_owned(), lease);
        Ok(true)
    }
}

#[derive(Debug)]
struct MemoryUnit<'m> {
    store: &'m Memory,
    state: MutexGuard<'m, State>,
}

impl Unit for MemoryUnit<'_> {
    fn load(&mut self, wants: &Wants) -> Result<Loaded, StoreError> {
        let mut loaded = self.state.read(wants);
        for _ in 0..wants.ids {
            self.state.last_id += 1;
            loaded.ids.push(self.state.last_id);
        }
        Ok(loaded)
    }

    fn commit(mut self: Box<Self>, writes: &Writes) -> Result<Position, StoreError> {
        self.state.write(writes);
        self.store.changed.notify_all();
        Ok(self.state.head)
    }
}

impl Snapshot for State {
    fn position(&self) -> Position {
        self.head
    }

    fn names(&self, asked: &Asked<'_>) -> Result<Names, StoreError> {
        let keys =
            self.names.keys.iter().filter(|(text, id)| {
                asked.keys.contains(&text.as_str()) || asked.key_ids.contains(id)
            });
        let collections = self.names.collections.iter().filter(|(text, id)| {
            asked.collections.contains(&text.as_str()) || asked.collection_ids.contains(id)
        });
        Ok(Names {
            keys: keys.map(|(text, id)| (text.clone(), *id)).collect(),
            collections: collections.map(|(text, id)| (text.clone(), *id)).collect(),
        })
    }

    fn range(&self, ranges: &[Range]) -> Result<Vec<Rows>, StoreError> {
        let rows = |range: &Range| {
            let mut rows = Rows::of(range.table);
            for row in self.found(range) {
                row.iter().for_each(|cell| rows.push(cell.clone()));
            }
            rows
        };
        Ok(ranges.iter().map(rows).collect())
    }

    fn keys(&self, ranges: &[Range]) -> Result<Vec<Vec<Vec<Value>>>, StoreError> {
        let keys = |range: &Range| {
            let columns = range.all_columns();
            let rows = self.found(range).into_iter();
            rows.map(|row| range.table.pick(row, &columns)).collect()
        };
        Ok(ranges.iter().map(keys).collect())
    }

    fn count(&self, ranges: &[Range]) -> Result<Vec<usize>, StoreError> {
        Ok(ranges.iter().map(|range| self.found(range).len()).collect())
    }

    fn newest(&self, asked: &[Newest<'_>]) -> Result<Vec<Vec<Candidate>>, StoreError> {
        asked.iter().map(|one| self.newest_of(one)).collect()
    }

    fn records(&self, ids: &[RecordId]) -> Result<Vec<Option<Stored>>, StoreError> {
        ids.iter().map(|id| self.stored(*id)).collect()
    }
}

fn is_after(range: &Range, cells: &[Value]) -> bool {
    if range.after.is_empty() {
        return true;
    }
    let rest = cells.iter().skip(range.prefix.len());
    let order = rest.take(range.after.len()).cmp(range.after.iter());
    let beyond = match range.descending {
        true => order.is_lt(),
        false => order.is_gt(),
    };
    beyond || (range.inclusive && order.is_eq())
}

impl State {
    /// The rows of a range.
    fn found(&self, range: &Range) -> Vec<&Vec<Value>> {
        let rows = self.tables.get(range.table.name);
        let from = || range.prefix.clone()..;
        let begins = |cells: &Vec<Value>| cells.starts_with(&range.prefix);
        let mut found: Vec<&Vec<Value>> = match range.index {
            "" => {
                let rows = rows.into_iter().flat_map(|rows| rows.range(from()));
                let rows = rows.take_while(|(key, _)| begins(key));
                let rows = rows.filter(|(key, _)| is_after(range, key));
                rows.map(|(_, row)| row).collect()
            }
            index => {
                let index = self.indexes.get(index).into_iter();
                let keys = index.flat_map(|index| index.range(from()));
                let keys = keys.take_while(|(cells, _)| begins(cells));
                let keys = keys.filter(|(cells, _)| is_after(range, cells));
                keys.filter_map(|(_, key)| rows?.get(key)).collect()
            }
        };
        if range.descending {
            found.reverse();
        }
        found.truncate(range.max);
        found
    }

    fn newest_of(&self, asked: &Newest<'_>) -> Result<Vec<Candidate>, StoreError> {
        let range = |table, prefix| Range {
            table,
            index: "",
            prefix,
            after: asked.before.map_or_else(Vec::new, |(time_us, tail)| {
                vec![Value::Int(time_us), Value::Text(tail.to_owned())]
            }),
            inclusive: false,
            descending: true,
            max: asked.max,
        };
        let mut places: BTreeMap<(Micros, String), RecordId> = BTreeMap::new();
        match asked.keys {
            Some(keys) => {
                for key in keys {
                    let prefix = vec![asked.index.to_value(), key.to_value()];
                    for row in self.found(&range(Entry::TABLE, prefix)) {
                        let entry = Entry::from_values(row)?;
                        places.insert((entry.time_us, entry.tail), entry.record);
                    }
                }
            }
            None => {
                for row in self.found(&range(Recent::TABLE, vec![asked.index.to_value()])) {
                    let recent = Recent::from_values(row)?;
                    places.insert((recent.time_us, recent.tail), recent.record);
                }
            }
        }
        let newest = places.into_iter().rev().take(asked.max);
        let candidate = |((time_us, tail), record)| {
            Ok(Candidate {
                time_us,
                tail,
                stored: self.stored(record)?.ok_or_else(dangling)?,
            })
        };
        newest.map(candidate).collect()
    }

    fn stored(&self, id: RecordId) -> Result<Option<Stored>, StoreError> {
        let by_id = Range {
            index: "record_by_id",
            max: 1,
            ..Range::of::<Record>(vec![id.to_value()])
        };
        let Some(row) = self.found(&by_id).pop() else {
            return Ok(None);
        };
        let record = Record::from_values(row)?;
        let account: Option<Account> = self.row(&vec![record.author.to_value()])?;
        let status = account.map_or(0, |account| account.status);
        Ok(Some(Stored { record, status }))
    }

    fn row<R: Row>(&self, key: &Vec<Value>) -> Result<Option<R>, StoreError> {
        let rows = self.tables.get(R::TABLE.name);
        let row = rows.and_then(|rows| rows.get(key));
        Ok(row.map(|row| R::from_values(row)).transpose()?)
    }

    fn read(&self, wants: &Wants) -> Loaded {
        let mut loaded = Loaded::default();
        for (table, keys) in &wants.get {
            let rows = self.tables.get(table);
            for key in keys {
                let row = rows.and_then(|rows| rows.get(key)).cloned();
                loaded.rows.insert((table, key.clone()), row);
            }
        }
        for scan in &wants.scans {
            loaded.scans.insert(scan.clone(), self.scan(scan));
        }
        let keys = self.names.keys.iter();
        let keys = keys.filter(|(_, id)| wants.keys.contains(id));
        loaded.keys = keys.map(|(text, id)| (*id, text.clone())).collect();
        let collections = self.names.collections.iter();
        let collections = collections.filter(|(_, id)| wants.collections.contains(id));
        loaded.collections = collections.map(|(text, id)| (*id, text.clone())).collect();
        loaded
    }

    fn scan(&self, scan: &Scan) -> Vec<Vec<Value>> {
        let Some(table) = TABLES.iter().find(|table| table.name == scan.table) else {
            return Vec::new();
        };
        let range = Range {
            table,
            index: scan.index,
            prefix: scan.prefix.clone(),
            after: scan.after.clone(),
            inclusive: false,
            descending: false,
            max: scan.max,
        };
        self.found(&range).into_iter().cloned().collect()
    }

    fn write(&mut self, writes: &Writes) {
        for (table, key) in &writes.delete {
            self.remove(table, key);
        }
        for (table, row) in &writes.put {
            self.insert(table, row.clone());
        }
        for (table, key, by) in writes.additions() {
            self.add(table, key, by);
        }
        for wake in &writes.wake {
            self.wake(wake.hash, &wake.need, wake.woken_us);
        }
        if let Some((source, cursor)) = &writes.cursor {
            let row = vec![source.to_value(), cursor.to_value()];
            self.insert(Cursor::TABLE, row);
        }
        for change in &writes.changes {
            self.head.n += 1;
            self.outbox.push(Changed {
                position: self.head,
                change: change.clone(),
            });
        }
    }

    fn insert(&mut self, table: &'static Table, row: Vec<Value>) {
        let key = table.key_of(&row);
        self.remove(table, &key);
        for index in table.indexes {
            let mut cells = table.pick(&row, index.columns);
            if cells.first() != Some(&Value::Null) {
                cells.extend(key.iter().cloned());
                self.indexes
                    .entry(index.name)
                    .or_default()
                    .insert(cells, key.clone());
            }
        }
        self.tables.entry(table.name).or_default().insert(key, row);
    }

    fn add(&mut self, table: &'static Table, mut row: Vec<Value>, by: i64) {
        let rows = self.tables.get(table.name);
        let stored = rows.and_then(|rows| rows.get(&row)?.last());
        let n = stored.and_then(i64::from_value).unwrap_or_default();
        row.push(Value::Int(n + by));
        self.insert(table, row);
    }

    fn remove(&mut self, table: &'static Table, key: &Vec<Value>) {
        let rows = self.tables.entry(table.name).or_default();
        let Some(row) = rows.remove(key) else {
            return;
        };
        for index in table.indexes {
            let mut cells = table.pick(&row, index.columns);
            cells.extend(key.iter().cloned());
            self.indexes.entry(index.name).or_default().remove(&cells);
        }
    }

    fn wake(&mut self, hash: i64, need: &str, woken_us: Micros) {
        let scan = Scan {
            table: Parked::TABLE.name,
            index: "parked_by_need",
            prefix: vec![hash.to_value()],
            after: Vec::new(),
            max: usize::MAX,
        };
        for row in self.scan(&scan) {
            let Ok(mut parked) = Parked::from_values(&row) else {
                continue;
            };
            if parked.need == need {
                parked.woken_us = Some(woken_us);
                parked.woken += 1;
                self.insert(Parked::TABLE, parked.to_values());
            }
        }
    }
}
