//! All rows of a store, and what they mean, as plainly as possible. Shares no code with pages.

use std::collections::{BTreeMap, BTreeSet};

use decide::ids::{CollectionId, FollowId, IndexId, KeyId, RecordId};
use decide::rows::{Account, Counter, Entry, Follow, Record};
use decide::table::{Row, Table};
use decide::value::Value;
use store::port::{Asked, Range, Snapshot};

/// All rows of a table, in the order of its primary key.
pub(crate) fn all(snapshot: &dyn Snapshot, table: &'static Table) -> Vec<Vec<Value>> {
    let range = Range {
        table,
        index: "",
        prefix: Vec::new(),
        after: Vec::new(),
        inclusive: false,
        descending: false,
        max: usize::MAX,
    };
    let found = snapshot.range(&[range]).unwrap();
    found[0].iter().map(<[Value]>::to_vec).collect()
}

pub(crate) fn rows<R: Row>(snapshot: &dyn Snapshot) -> Vec<R> {
    let rows = all(snapshot, R::TABLE);
    rows.iter()
        .map(|row| R::from_values(row).unwrap())
        .collect()
}

/// Everything a store holds.
pub(crate) struct All {
    pub(crate) keys: BTreeMap<KeyId, String>,
    pub(crate) collections: BTreeMap<CollectionId, String>,
    pub(crate) records: BTreeMap<RecordId, Record>,
    pub(crate) accounts: BTreeMap<KeyId, Account>,
    pub(crate) follows: Vec<Follow>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) counters: Vec<Counter>,
}

/// A record on a page: time, URI, number, body.
pub(crate) type Shown = (i64, String, RecordId, String);

impl All {
    pub(crate) fn of(snapshot: &dyn Snapshot) -> Self {
        let asked = Asked {
            key_ids: (1..300).map(KeyId).collect(),
            collection_ids: (1..30).map(CollectionId).collect(),
            ..Asked::default()
        };
        let names = snapshot.names(&asked).unwrap();
        let keys = names.keys.into_iter().map(|(text, id)| (id, text));
        let collections = names.collections.into_iter().map(|(text, id)| (id, text));
        let records = rows::<Record>(snapshot).into_iter();
        let accounts = rows::<Account>(snapshot).into_iter();
        Self {
            keys: keys.collect(),
            collections: collections.collect(),
            records: records.map(|record| (record.id, record)).collect(),
            accounts: accounts.map(|account| (account.key, account)).collect(),
            follows: rows(snapshot),
            entries: rows(snapshot),
            counters: rows(snapshot),
        }
    }

    pub(crate) fn key(&self, text: &str) -> Option<KeyId> {
        let mut keys = self.keys.iter();
        keys.find(|(_, other)| *other == text).map(|(id, _)| *id)
    }

    pub(crate) fn uri(&self, record: &Record) -> String {
        let did = &self.keys[&record.author];
        let nsid = &self.collections[&record.collection];
        format!("at://{did}/{nsid}/{}", record.rkey)
    }

    /// Whether everything of an account is hidden; odd statuses hide.
    pub(crate) fn is_hidden(&self, account: KeyId) -> bool {
        let account = self.accounts.get(&account);
        account.is_some_and(|account| account.status % 2 == 1)
    }

    /// The record, if it is live and its account is not hidden.
    pub(crate) fn visible(&self, record: RecordId) -> Option<&Record> {
        let record = &self.records[&record];
        (record.state == 0 && !self.is_hidden(record.author)).then_some(record)
    }

    /// Who wrote a record: the person it names, or its account.
    pub(crate) fn writer(&self, record: &Record) -> KeyId {
        let placed = record.placed.as_deref().unwrap_or("{}");
        let placed: serde_json::Value = serde_json::from_str(placed).unwrap();
        placed["person"].as_i64().map_or(record.author, KeyId)
    }

    pub(crate) fn named(&self, source: FollowId, reader: KeyId) -> BTreeSet<KeyId> {
        let mine = self.follows.iter();
        let mine = mine.filter(|row| row.source == source && row.reader == reader);
        mine.map(|row| row.key).collect()
    }

    pub(crate) fn shown(&self, record: &Record) -> Shown {
        let body = record.body.clone().unwrap_or_default();
        (record.time_us, self.uri(record), record.id, body)
    }

    /// The visible records of an index under keys that pass, newest first.
    pub(crate) fn under(&self, index: IndexId, passes: impl Fn(KeyId) -> bool) -> Vec<Shown> {
        let entries = self.entries.iter();
        let entries = entries.filter(|entry| entry.index == index && passes(entry.key));
        let records = entries.filter_map(|entry| self.visible(entry.record));
        let shown: BTreeSet<Shown> = records.map(|record| self.shown(record)).collect();
        shown.into_iter().rev().collect()
    }

    /// How many are counted under a key.
    pub(crate) fn counted(&self, index: IndexId, text: &str) -> i64 {
        let key = self.key(text);
        let mut counters = self.counters.iter();
        let counter = counters.find(|row| row.index == index && Some(row.key) == key);
        counter.map_or(0, |counter| counter.n)
    }

    /// A reader's whole feed: what each target shows of it, newest first.
    pub(crate) fn feed(
        &self,
        targets: &[(IndexId, Option<usize>)],
        reader: &str,
        (follows, hides): (FollowId, FollowId),
        include_self: bool,
    ) -> Vec<Shown> {
        let Some(reader) = self.key(reader) else {
            return Vec::new();
        };
        if self.is_hidden(reader) {
            return Vec::new();
        }
        let mut followed = self.named(follows, reader);
        let hidden = self.named(hides, reader);
        if include_self {
            followed.insert(reader);
        }
        let mut shown = BTreeSet::new();
        for (index, cap) in targets {
            let passes = |key: KeyId| followed.contains(&key) && !hidden.contains(&key);
            let mut all = self.under(*index, passes);
            all.retain(|one| !hidden.contains(&self.writer(&self.records[&one.2])));
            all.truncate(cap.unwrap_or(usize::MAX));
            shown.extend(all);
        }
        shown.into_iter().rev().collect()
    }
}
