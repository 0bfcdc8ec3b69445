//! The end of a feed that ends (`beyond = "end"`).
//!
//! In:    a reader and an entry of such a feed.
//! Out:   whether the feed shows it now, and whether it shows as many as it may.
//! Never: an answer from memory, which does not know where such a feed ends.

use super::Server;
use super::error::XrpcError;
use super::feed::{self, Wanted};
use crate::store::merged::{ActivityFilter, ActivityQuery};
use crate::store::plan::FeedPlan;
use crate::store::{FeedQuery, Lens};

/// Whether the reader's feed shows the entry, and whether an entry more may push one beyond its end.
pub(super) fn holds(
    server: &Server,
    plan: &FeedPlan,
    reader: &str,
    uri: &str,
) -> Result<(bool, bool), XrpcError> {
    let caps = || plan.targets.iter().map(|target| target.max_items as usize);
    // One more, so that the caps end the page and not its limit.
    let limit = caps().sum::<usize>() + 1;
    let uris: Vec<String> = match &plan.merged {
        Some(merged) => {
            let feed = FeedQuery {
                reader: reader.to_owned(),
                lanes: vec![(merged.lane, caps().next())],
                follows: plan.follows.clone(),
                hides: plan.hides.clone(),
                include_self: plan.include_self,
                before: None,
                limit,
                lens: Lens::default(),
                scan_max: server.page_scan_max,
            };
            let query = ActivityQuery {
                feed,
                filter: ActivityFilter::default(),
                skip: 0,
                count: false,
            };
            let found = server.store.activities(&query)?.activities;
            let firsts = found.into_iter().map(|activity| activity.first);
            firsts.map(|first| first.uri).collect()
        }
        None => {
            let wanted = Wanted {
                feed: plan,
                targets: plan.targets.iter().collect(),
                reader: reader.to_owned(),
                before: None,
                limit,
                lens: Lens::default(),
                scope: String::new(),
                is_incomplete: false,
            };
            let rows = feed::page(server, &wanted)?.rows;
            rows.iter().map(|row| row.uri().to_owned()).collect()
        }
    };
    let is_full = uris.len() >= caps().min().unwrap_or(0);
    Ok((uris.iter().any(|shown| shown == uri), is_full))
}
