//! One record, some records, and where a record is or was.

use std::collections::HashMap;

use decide::ids::{CollectionId, KeyId, RecordId};
use decide::rows::{Account, Record};
use decide::value::Cell as _;
use decide::wants::Names;

use super::place::{Place, split};
use super::row::Row;
use super::visibility::is_visible;
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot, Stored};

/// The live, visible record at a URI. Two round trips.
pub fn record(snapshot: &dyn Snapshot, uri: &str) -> Result<Option<Row>, StoreError> {
    Ok(records_at(snapshot, &[uri])?.remove(uri))
}

/// The live, visible records at some URIs; others are absent. Two round trips.
pub fn records_at(
    snapshot: &dyn Snapshot,
    uris: &[&str],
) -> Result<HashMap<String, Row>, StoreError> {
    let found = stored_at(snapshot, uris)?;
    let visible = found.into_iter().filter(|(_, stored)| is_visible(stored));
    Ok(visible
        .map(|(uri, stored)| (uri.clone(), row(uri, stored)))
        .collect())
}

/// Records by number that are live and visible, in the order asked; others are absent. Two round
/// trips.
pub fn records(snapshot: &dyn Snapshot, ids: &[RecordId]) -> Result<Vec<Row>, StoreError> {
    let stored = snapshot.records(ids)?.into_iter().flatten();
    let visible: Vec<Stored> = stored.filter(is_visible).collect();
    let names = Texts::of(snapshot, &visible)?;
    let rows = visible.into_iter();
    Ok(rows
        .filter_map(|stored| Some(row(names.uri(&stored.record)?, stored)))
        .collect())
}

/// Where a record is in the order of its collection, also after its deletion; `None` if there never
/// was one. Two round trips.
pub fn place(snapshot: &dyn Snapshot, uri: &str) -> Result<Option<Place>, StoreError> {
    let stored = stored_at(snapshot, &[uri])?.remove(uri);
    Ok(stored.map(|stored| Place {
        time_us: stored.record.time_us,
        uri: uri.to_owned(),
    }))
}

/// What is stored at some URIs, live or gone, visible or not. Two round trips.
pub(super) fn stored_at(
    snapshot: &dyn Snapshot,
    uris: &[&str],
) -> Result<HashMap<String, Stored>, StoreError> {
    let mut found = HashMap::new();
    let parts = uris.iter().filter_map(|uri| Some((*uri, split(uri)?)));
    let parts: Vec<(&str, (&str, &str, &str))> = parts.collect();
    if parts.is_empty() {
        return Ok(found);
    }
    let names = snapshot.names(&names_of(&parts))?;
    let mut ranges = Vec::with_capacity(2 * parts.len());
    let mut asked = Vec::with_capacity(parts.len());
    for (uri, (did, nsid, rkey)) in &parts {
        let (Some(author), Some(collection)) = (names.keys.get(*did), names.collections.get(*nsid))
        else {
            continue;
        };
        let rkey = decide::value::Value::Text((*rkey).to_owned());
        let path = vec![author.to_value(), collection.to_value(), rkey];
        ranges.push(Range::of::<Record>(path));
        asked.push((*uri, *author));
    }
    let mut accounts: Vec<KeyId> = asked.iter().map(|(_, author)| *author).collect();
    accounts.sort();
    accounts.dedup();
    let of_account = |key: &KeyId| Range::of::<Account>(vec![key.to_value()]);
    ranges.extend(accounts.iter().map(of_account));
    let mut rows = match ranges.is_empty() {
        true => Vec::new(),
        false => snapshot.range(&ranges)?,
    };
    let of_accounts = rows.split_off(asked.len());
    let mut statuses = HashMap::new();
    for rows in of_accounts {
        for account in rows.typed::<Account>()? {
            statuses.insert(account.key, account.status);
        }
    }
    for ((uri, author), rows) in asked.into_iter().zip(rows) {
        if let Some(record) = rows.typed::<Record>()?.pop() {
            let status = statuses.get(&author).copied().unwrap_or_default();
            found.insert(uri.to_owned(), Stored { record, status });
        }
    }
    Ok(found)
}

fn names_of<'n>(parts: &[(&str, (&'n str, &'n str, &'n str))]) -> Asked<'n> {
    let mut keys: Vec<&str> = parts.iter().map(|(_, (did, _, _))| *did).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut collections: Vec<&str> = parts.iter().map(|(_, (_, nsid, _))| *nsid).collect();
    collections.sort_unstable();
    collections.dedup();
    Asked {
        keys,
        collections,
        ..Asked::default()
    }
}

/// A record as it is served.
pub(super) fn row(uri: String, stored: Stored) -> Row {
    let record = stored.record;
    Row {
        id: record.id,
        author: record.author,
        uri,
        time_us: record.time_us,
        cid: record.cid,
        body: record.body.unwrap_or_default(),
    }
}

/// The texts behind numbers.
#[derive(Debug, Default)]
pub(super) struct Texts {
    keys: HashMap<KeyId, String>,
    collections: HashMap<CollectionId, String>,
}

impl Texts {
    /// The names of some records' accounts and collections. One round trip.
    pub(super) fn of(snapshot: &dyn Snapshot, stored: &[Stored]) -> Result<Self, StoreError> {
        let mut key_ids: Vec<KeyId> = stored.iter().map(|one| one.record.author).collect();
        key_ids.sort();
        key_ids.dedup();
        let collections = stored.iter().map(|one| one.record.collection);
        let mut collection_ids: Vec<CollectionId> = collections.collect();
        collection_ids.sort();
        collection_ids.dedup();
        if key_ids.is_empty() {
            return Ok(Self::default());
        }
        let asked = Asked {
            key_ids,
            collection_ids,
            ..Asked::default()
        };
        Ok(Self::from(snapshot.names(&asked)?))
    }

    /// The URI of a record.
    pub(super) fn uri(&self, record: &Record) -> Option<String> {
        let did = self.keys.get(&record.author)?;
        let nsid = self.collections.get(&record.collection)?;
        Some(["at://", did, "/", nsid, "/", &record.rkey].concat())
    }
}

impl Texts {
    /// The text of a key.
    pub(super) fn key(&self, key: KeyId) -> Option<&str> {
        self.keys.get(&key).map(String::as_str)
    }

    /// The NSID of a collection.
    pub(super) fn collection(&self, collection: CollectionId) -> Option<&str> {
        self.collections.get(&collection).map(String::as_str)
    }
}

impl From<Names> for Texts {
    fn from(names: Names) -> Self {
        let keys = names.keys.into_iter();
        let collections = names.collections.into_iter();
        Self {
            keys: keys.map(|(text, id)| (id, text)).collect(),
            collections: collections.map(|(text, id)| (id, text)).collect(),
        }
    }
}
