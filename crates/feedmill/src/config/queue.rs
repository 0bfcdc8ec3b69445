//! `[queues.<name>]`: which records are worked on first when there are too many.

pub use decide::queue::Priority;
use serde::{Deserialize, Serialize};

use super::Config;
use super::fault::Found;

/// The queue of collections that name none.
pub const DEFAULT: &str = "default";

/// One queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// Who comes first when not everything fits into one turn.
    pub priority: Priority,
    /// Its records worked on in every turn, whatever the others have; also its weight among equals.
    pub concurrency: usize,
    /// Its records that one turn takes from memory; what is beyond waits in the store.
    pub depth_max: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            priority: Priority::Medium,
            concurrency: 5,
            depth_max: 10_000,
        }
    }
}

/// Queues, and names of queues, that make no sense.
pub(super) fn faults(config: &Config, found: &mut Found) {
    for (name, queue) in &config.queues {
        let at = |key: &str| format!("queues.{name}{key}");
        let plain = |c: char| c.is_ascii_alphanumeric() || ":._-".contains(c);
        found.unless(!name.is_empty() && name.chars().all(plain), at(""), || {
            "a queue's name is letters, digits, and :._-".into()
        });
        let zero = [
            (".concurrency", queue.concurrency),
            (".depth_max", queue.depth_max),
        ];
        for (key, value) in zero {
            found.unless(value > 0, at(key), || "must be at least 1".into());
        }
    }
    let named: usize = config.queues.values().map(|queue| queue.concurrency).sum();
    let promised = named + Queue::default().concurrency;
    found.unless(
        promised <= config.intake.turn_max,
        "intake.turn_max",
        || "is less than what all queues together are promised in one turn".into(),
    );
    for (short, collection) in &config.collections {
        let queue = &collection.queue;
        if queue == DEFAULT {
            continue;
        }
        let key = format!("collections.{short}.queue");
        if !config.queues.contains_key(queue) {
            found.add(
                key,
                format!("{queue:?} is not a queue; add [queues.{queue:?}]"),
            );
        } else if collection.direct {
            found.add(key, "what is written directly waits in no queue");
        }
    }
}
