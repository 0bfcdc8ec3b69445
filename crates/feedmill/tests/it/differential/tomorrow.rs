//! Everything in the new store.

use std::collections::BTreeMap;

use ::store::port::{Range, Snapshot};
use decide::ids::{CollectionId, KeyId, RecordId};
use decide::rows;
use decide::table::Row;
use decide::value::Value;

use super::dump::{Named, unpack};

fn rows_of<R: Row>(snapshot: &dyn Snapshot) -> Vec<R> {
    let mut rows = snapshot.range(&[Range::of::<R>(Vec::new())]).unwrap();
    rows.pop().unwrap().typed().unwrap()
}

/// Everything in the new store.
pub(crate) fn new(snapshot: &dyn Snapshot, named: &Named) -> Vec<String> {
    let mut lines = Vec::new();
    let key = |id: KeyId| named.key(id.0);
    let nsid = |id: CollectionId| named.collections[&id.0].as_str();
    let accounts = rows_of::<rows::Account>(snapshot);
    let gone = |author: KeyId| {
        accounts
            .iter()
            .any(|one| one.key == author && one.status == 7)
    };
    let mut uris = BTreeMap::new();
    for row in rows_of::<rows::Record>(snapshot) {
        let uri = format!(
            "at://{}/{}/{}",
            key(row.author),
            nsid(row.collection),
            row.rkey
        );
        uris.insert(row.id, uri.clone());
        let rev = row.rev.0;
        if row.state != 0 {
            if !gone(row.author) {
                lines.push(format!("gone {uri} {rev} {}", row.state));
            }
            continue;
        }
        let (cid, body) = (&row.cid, row.body.as_deref().unwrap());
        let links = row.links.as_deref().unwrap_or_default();
        lines.push(format!(
            "record {uri} {rev} {} {cid:?} {body} {links}",
            row.time_us
        ));
    }
    for row in rows_of::<rows::Entry>(snapshot) {
        let (index, uri) = (row.index.0, &uris[&row.record]);
        lines.push(format!(
            "entry {index} {} {} {} {uri}",
            key(row.key),
            row.time_us,
            row.tail
        ));
    }
    for row in rows_of::<rows::Recent>(snapshot) {
        let (keys, uri) = (named.list(unpack(&row.keys)), &uris[&row.record]);
        lines.push(format!(
            "recent {} {} {} {uri} [{keys}]",
            row.index.0, row.time_us, row.tail
        ));
    }
    for row in rows_of::<rows::Follow>(snapshot) {
        let (reader, followed, uri) = (key(row.reader), key(row.key), &uris[&row.record]);
        lines.push(format!("follow {} {reader} {followed} {uri}", row.source.0));
    }
    lines.extend(counts(snapshot, named, &uris));
    lines.extend(waiting(snapshot, named));
    lines.extend(units(snapshot, named, &accounts));
    lines.sort();
    lines
}

/// Counters, groups and sort keys.
fn counts(
    snapshot: &dyn Snapshot,
    named: &Named,
    uris: &BTreeMap<RecordId, String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let key = |id: KeyId| named.key(id.0);
    for row in rows_of::<rows::Counter>(snapshot)
        .iter()
        .filter(|row| row.n != 0)
    {
        lines.push(format!("count {} {} {}", row.index.0, key(row.key), row.n));
    }
    for row in rows_of::<rows::Voice>(snapshot) {
        let author = key(row.author);
        lines.push(format!(
            "voice {} {} {author} {}",
            row.index.0,
            key(row.key),
            row.n
        ));
    }
    for row in rows_of::<rows::Member>(snapshot) {
        lines.push(format!(
            "member {} {} {} {} {} first {} [{}] {} {}",
            row.index.0,
            key(row.author),
            row.thing,
            row.time_us,
            row.tail,
            row.first,
            named.list(unpack(&row.keys)),
            row.adds,
            uris[&row.record]
        ));
    }
    for row in rows_of::<rows::Sorted>(snapshot) {
        let value = match &row.value {
            Value::Int(number) => number.to_string(),
            Value::Text(text) => format!("'{text}'"),
            _ => "X''".to_owned(),
        };
        let (sort, uri) = (row.sort.0, &uris[&row.record]);
        lines.push(format!(
            "sorted {sort} {value} {} {} {uri}",
            row.time_us, row.tail
        ));
    }
    lines
}

/// What waits, and what is dead.
fn waiting(snapshot: &dyn Snapshot, named: &Named) -> Vec<String> {
    let mut lines = Vec::new();
    let key = |id: KeyId| named.key(id.0);
    let nsid = |id: CollectionId| named.collections[&id.0].as_str();
    for row in rows_of::<rows::Dead>(snapshot) {
        let fault: decide::batch::Fault = serde_json::from_str(&row.fault).unwrap();
        let stage = serde_json::to_value(fault.stage).unwrap();
        let author = match row.author.0 {
            0 => "",
            _ => key(row.author),
        };
        let uri = match row.rkey.is_empty() {
            true => author.to_owned(),
            false => format!("at://{author}/{}/{}", nsid(row.collection), row.rkey),
        };
        lines.push(format!(
            "dead {uri} {} {} {} {} {} {}",
            row.rev.0,
            stage.as_str().unwrap(),
            fault.path.join("."),
            fault.expected,
            fault.received,
            row.raw
        ));
    }
    for row in rows_of::<rows::Parked>(snapshot) {
        let dead = i64::from(row.dead.is_some());
        lines.push(format!(
            "parked {} {} {} dead {dead}",
            row.uri, row.rev.0, row.need
        ));
    }
    for row in rows_of::<rows::Held>(snapshot) {
        lines.push(format!(
            "held {} {} {} {:?}",
            key(row.author),
            row.rev.0,
            row.units,
            row.frame
        ));
    }
    lines
}

/// Accounts and units.
fn units(snapshot: &dyn Snapshot, named: &Named, accounts: &[rows::Account]) -> Vec<String> {
    let mut lines = Vec::new();
    let key = |id: KeyId| named.key(id.0);
    let nsid = |id: CollectionId| named.collections[&id.0].as_str();
    for row in accounts {
        lines.push(format!(
            "account {} {} {} rev {} snapshot {} repair {} {:?} {} covered {}",
            key(row.key),
            row.status,
            row.status_us,
            row.rev.0,
            row.snapshot.0,
            row.repair.unwrap_or_default(),
            row.handle,
            row.handle_us,
            i64::from(row.covered > 0)
        ));
    }
    for row in rows_of::<rows::Kept>(snapshot)
        .iter()
        .filter(|row| row.n != 0)
    {
        lines.push(format!("kept {} {}", nsid(row.collection), row.n));
    }
    let mut units: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for row in rows_of::<rows::Outcomes>(snapshot) {
        units
            .entry(row.source)
            .or_default()
            .insert(row.outcome, row.n);
    }
    for (source, by) in units.iter().filter(|(source, _)| !source.is_empty()) {
        let names = ["received", "filtered", "pending", "parked", "held"];
        let numbers = names.map(|name| by.get(name).copied().unwrap_or_default());
        lines.push(format!("units {source} {numbers:?}"));
    }
    lines
}
