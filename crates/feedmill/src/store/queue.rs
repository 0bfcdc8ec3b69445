//! Queues of a configuration, and how they are.
//!
//! In:    settings.
//! Out:   [`Queues`], which decides how much of each one transaction does.
//! Never: a collection from the network without a queue.

use std::collections::BTreeMap;

pub use decide::queue::{Queue, Queues};

use crate::clock::Micros;
use crate::config::Config;
use crate::config::queue;

/// What waits in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    pub queue: String,
    /// Records that wait in the store.
    pub waiting: i64,
    /// Since when the first of them waits.
    pub since_us: Option<Micros>,
}

/// What a transaction did for one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worked {
    pub queue: String,
    pub done: u64,
    /// Put off: they now wait in the store.
    pub spilled: u64,
}

/// The queues of a checked configuration; the first is the one of collections that name none.
pub fn queues(config: &Config) -> Queues {
    let resolved = |(name, queue): (&str, &queue::Queue)| Queue {
        name: name.to_owned(),
        priority: queue.priority,
        concurrency: queue.concurrency,
        depth_max: queue.depth_max,
    };
    let plain = queue::Queue::default();
    let own = config.queues.get(queue::DEFAULT).unwrap_or(&plain);
    let named = config.queues.iter().map(|(name, it)| (name.as_str(), it));
    let named = named.filter(|(name, _)| *name != queue::DEFAULT);
    let list: Vec<Queue> = std::iter::once((queue::DEFAULT, own))
        .chain(named)
        .map(resolved)
        .collect();
    let mut by_collection = BTreeMap::new();
    for collection in config.collections.values().filter(|it| !it.direct) {
        let name = &collection.queue;
        let number = list.iter().position(|queue| queue.name == *name);
        by_collection.insert(collection.collection.clone(), number.unwrap_or(0));
    }
    Queues {
        list,
        by_collection,
        quota_max: config.intake.turn_max,
    }
}
