//! `[queues.<name>]`: which records are worked on first when there are too many.

use serde::{Deserialize, Serialize};

use super::Config;

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

/// How urgent a queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    High,
    #[default]
    Medium,
    Low,
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

/// The first queue, or name of a queue, that makes no sense.
pub(super) fn fault(config: &Config) -> Option<(String, String)> {
    for (name, queue) in &config.queues {
        let at = |key: &str, problem: &str| Some((format!("queues.{name}{key}"), problem.into()));
        let plain = |c: char| c.is_ascii_alphanumeric() || ":._-".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return at("", "a queue's name is letters, digits, and :._-");
        }
        if queue.concurrency == 0 {
            return at(".concurrency", "must be at least 1");
        }
        if queue.depth_max == 0 {
            return at(".depth_max", "must be at least 1");
        }
    }
    let named: usize = config.queues.values().map(|queue| queue.concurrency).sum();
    if named + Queue::default().concurrency > config.intake.turn_max {
        return Some((
            "intake.turn_max".into(),
            "is less than what all queues together are promised in one turn".into(),
        ));
    }
    config.collections.iter().find_map(|(short, collection)| {
        let queue = &collection.queue;
        if queue == DEFAULT {
            return None;
        }
        if !config.queues.contains_key(queue) {
            return Some((
                format!("collections.{short}.queue"),
                format!("{queue:?} is not a queue; add [queues.{queue:?}]"),
            ));
        }
        collection.direct.then(|| {
            (
                format!("collections.{short}.queue"),
                "what is written directly waits in no queue".into(),
            )
        })
    })
}
