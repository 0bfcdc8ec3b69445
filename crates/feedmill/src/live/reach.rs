//! Whom an account's coming or going concerns.
//!
//! In:    an account that was hidden or shown.
//! Out:   feeds and keys by which its records are reached.
//! Never: a feed whose page changed left out.
//!
//! An account's records stand under more keys than its own: who follows a
//! collection sees what others put there. Which keys these are is read from the
//! records; of an account with very many it is not worth it, and everybody who
//! listens to such a feed is told.

use super::Live;
use crate::store::StoreError;

/// Records of an account that are looked at to find out by which keys they are reached.
const RECORDS_MAX: usize = 1000;

/// Where the records of an account are reached.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// By a feed's followers of a key.
    pub(super) places: Vec<(usize, i64)>,
    /// By anybody who reads a feed.
    pub(super) feeds: Vec<usize>,
}

impl Live {
    /// Where the records of an account are reached.
    pub(super) fn reach(&self, account: i64) -> Result<Reach, StoreError> {
        let own = (0..self.routes.feeds()).map(|feed| (feed, account));
        let mut reach = Reach {
            places: own.collect(),
            feeds: Vec::new(),
        };
        match self.store.keys_of(account, RECORDS_MAX)? {
            Some(keys) => {
                for (lane, key) in keys {
                    let feeds = self.routes.targets(lane);
                    reach.places.extend(feeds.map(|(feed, _)| (feed, key)));
                }
            }
            None => {
                let feeds = self.plan.feeds.iter().enumerate();
                let open = feeds.filter(|(_, plan)| !self.plan.is_of_authors(plan));
                reach.feeds = open.map(|(feed, _)| feed).collect();
            }
        }
        Ok(reach)
    }
}
