//! Routes: where a change leads, by the numbers that changes carry.
//!
//! In:    the plan, and the numbers the file gave to its lanes and follow sources.
//! Out:   the feeds and targets that a lane serves, the feeds that a source decides.
//! Never: a feed that the configuration does not name.
//!
//! Whatever draws the outbox to keep something per feed asks the same three
//! questions of each change: whose entries, whose follows, whose hides.

use std::collections::{HashMap, HashSet};

use super::{Outbox, Plan};

/// Where lanes and follow sources lead; feeds and targets are counted from 0.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    targets: HashMap<i64, Vec<(usize, usize)>>,
    merged: HashSet<i64>,
    follows: HashMap<i64, Vec<usize>>,
    hides: HashMap<i64, Vec<usize>>,
    feeds: usize,
}

impl Routes {
    pub(crate) fn new(plan: &Plan, store: &dyn Outbox) -> Self {
        let mut routes = Self {
            feeds: plan.feeds.len(),
            ..Self::default()
        };
        for (feed, spec) in plan.feeds.iter().enumerate() {
            for (target, spec_of_target) in spec.targets.iter().enumerate() {
                let Some(lane) = store.lane_number(spec_of_target.lane) else {
                    continue;
                };
                routes.targets.entry(lane).or_default().push((feed, target));
                if spec.merged.is_some() {
                    routes.merged.insert(lane);
                }
            }
            let sources = [
                (&spec.follows, &mut routes.follows),
                (&spec.hides, &mut routes.hides),
            ];
            for (sources, feeds) in sources {
                for source in sources.iter().filter_map(|id| store.source_number(*id)) {
                    feeds.entry(source).or_default().push(feed);
                }
            }
        }
        routes
    }

    /// How many feeds there are.
    pub(crate) fn feeds(&self) -> usize {
        self.feeds
    }

    /// Feed and target of every place that shows the lane.
    pub(crate) fn targets(&self, lane: i64) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.targets.get(&lane).into_iter().flatten().copied()
    }

    /// Whether the lane's entries are groups of records.
    pub(crate) fn is_merged(&self, lane: i64) -> bool {
        self.merged.contains(&lane)
    }

    /// Whether `feed` shows the lane.
    pub(crate) fn leads(&self, lane: i64, feed: usize) -> bool {
        self.targets(lane).any(|(one, _)| one == feed)
    }

    /// The feeds that follow by this source.
    pub(crate) fn follows(&self, source: i64) -> impl Iterator<Item = usize> + '_ {
        self.follows.get(&source).into_iter().flatten().copied()
    }

    /// The feeds that hide by this source.
    pub(crate) fn hides(&self, source: i64) -> impl Iterator<Item = usize> + '_ {
        self.hides.get(&source).into_iter().flatten().copied()
    }
}
