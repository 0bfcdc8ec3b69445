//! By which keys an account's records are reached.
//!
//! In:    an account.
//! Out:   lane and key of every place where its records stand in feeds.
//! Never: more records looked at than the caller allows.
//!
//! Lanes are ordered by key, not by author; so the account's own records are
//! read and asked where they stand, as they were when they came.

use std::collections::BTreeSet;

use rusqlite::{Connection, Error, OptionalExtension};

use super::derive::{self, Ids};
use super::names::{find_key, text_of};
use super::shelf::Shelf;
use crate::store::plan::{LaneId, Plan};

/// Above every record key.
const ABOVE_ALL: &str = "\u{7f}";

/// Lane and key of every place; `None` if there are more than `records_max` records.
pub(super) fn keys_of(
    connection: &Connection,
    (plan, ids): (&Plan, &Ids),
    account: i64,
    records_max: usize,
) -> Result<Option<Vec<(i64, i64)>>, Error> {
    let did = text_of(connection, account)?;
    let mut left = records_max;
    let mut places: BTreeSet<(LaneId, String)> = BTreeSet::new();
    let mut body =
        connection.prepare_cached("SELECT body FROM record WHERE id = ?1 AND state = 0")?;
    for nsid in open_collections(plan) {
        let listing = plan.listing(nsid).and_then(|lane| ids.lanes.get(lane.0));
        let Some(listing) = listing else { continue };
        let above_all = (i64::MAX, ABOVE_ALL);
        let records = Shelf::of(*listing).below(connection, account, above_all, left + 1)?;
        let Some(rest) = left.checked_sub(records.len()) else {
            return Ok(None);
        };
        left = rest;
        for placed in records {
            let body: Option<String> = body
                .query_row([placed.record], |row| row.get(0))
                .optional()?;
            let derived = derive::of_body(plan, nsid, &did, body.as_deref().unwrap_or("null"));
            let parts = derived.parts.into_iter().map(|part| (part.lane, part.keys));
            for (lane, keys) in derived.lanes.into_iter().chain(parts) {
                places.extend(keys.into_iter().map(|key| (lane, key)));
            }
        }
    }
    let mut found = Vec::with_capacity(places.len());
    for (lane, key) in &places {
        if let (Some(lane), Some(key)) = (ids.lanes.get(lane.0), find_key(connection, key)?) {
            found.push((*lane, key));
        }
    }
    Ok(Some(found))
}

/// Collections whose records stand in feeds under other keys than their authors.
fn open_collections(plan: &Plan) -> BTreeSet<&str> {
    let open = plan.feeds.iter().filter(|feed| !plan.is_of_authors(feed));
    let targets = open.flat_map(|feed| &feed.targets);
    let plain = targets.map(|target| target.nsid.as_str());
    plain
        .chain(plan.merges.keys().map(String::as_str))
        .collect()
}
