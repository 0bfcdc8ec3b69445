//! Coverage: whose history holds which collections.
//!
//! In:    the plan, at start; accounts whose history came whole, as they come.
//! Out:   for each feed, how new an account's history must be to hold all that the feed reads of it.
//! Never: a history that counts as whole for a collection which was not kept when it came.
//!
//! The layout's number is the measure of both: a collection has the number since which it is
//! kept, an account the number under which its history was taken. So a collection that is added
//! later, or left out and taken up again, is newer than every history from before.

use std::collections::BTreeMap;

use rusqlite::{Connection, Error};

use super::memory::{IDS_MAX, Memory};
use crate::store::plan::Plan;

/// The collections of the plan that come over a network.
fn of_network(plan: &Plan) -> impl Iterator<Item = &str> {
    let all = plan.lanes.iter().filter(|lane| plan.holds_all(lane));
    all.map(|lane| lane.nsid.as_str())
}

/// Notes which collections are kept from the next layout on, and which no longer are; how many are others than before.
pub(super) fn keep(tx: &Connection, plan: &Plan) -> Result<usize, Error> {
    let mut changed = 0;
    for nsid in since(tx)?.keys() {
        if of_network(plan).all(|kept| kept != nsid) {
            changed += tx.execute("UPDATE collection SET since = 0 WHERE nsid = ?1", [nsid])?;
        }
    }
    let mut memory = Memory::new(IDS_MAX);
    for nsid in of_network(plan) {
        let id = memory.collection(tx, nsid)?;
        changed += tx.execute(
            "UPDATE collection SET since = (SELECT number + 1 FROM layout) WHERE id = ?1 AND since = 0",
            [id],
        )?;
    }
    Ok(changed)
}

/// For each feed the number of the newest collection whose records say what its readers follow and hide, 0
/// where none comes over a network; `None` if one is not kept.
pub(super) fn needed(tx: &Connection, plan: &Plan) -> Result<Option<BTreeMap<String, i64>>, Error> {
    let since = since(tx)?;
    let of_feed = |feed: &crate::store::plan::FeedPlan| {
        let sources = feed.follows.iter().chain(&feed.hides);
        let nsids = sources.filter_map(|id| Some(plan.sources.get(id.0)?.nsid.as_str()));
        let fetched = nsids.filter(|nsid| of_network(plan).any(|kept| kept == *nsid));
        let newest = fetched.map(|nsid| since.get(nsid).copied());
        let newest = newest.collect::<Option<Vec<i64>>>()?.into_iter().max();
        Some((feed.name.clone(), newest.unwrap_or(0)))
    };
    Ok(plan.feeds.iter().map(of_feed).collect())
}

/// Since when collections are kept, those that are.
fn since(tx: &Connection) -> Result<BTreeMap<String, i64>, Error> {
    tx.prepare_cached("SELECT nsid, since FROM collection WHERE since > 0")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}
