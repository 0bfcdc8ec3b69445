//! Queues: whose work is done first when not all of it fits into one batch.
//!
//! In:    how much waits in each queue.
//! Out:   how much of each is done in this batch, and in which order.
//! Never: more than the quota of a batch; less than a queue is promised; a lower priority served
//!        beyond its promise while a higher one waits.
//!
//! A queue is first in, first out: its stored rows come before what the batch
//! brings. Every queue is promised some of every batch, so nothing waits for
//! ever. What is beyond the quota is stored (as rows of `pending`) and done by later batches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How urgent a queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub priority: Priority,
    /// Promised in every batch; also the weight among equals.
    pub concurrency: usize,
    /// Operations of one batch that are considered before the rest is stored.
    pub depth_max: usize,
}

/// All queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queues {
    pub list: Vec<Queue>,
    /// The number in `list` of each collection's queue; collections that never wait are absent.
    pub by_collection: BTreeMap<String, usize>,
    /// Queued operations that one batch works on.
    pub quota_max: usize,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            by_collection: BTreeMap::new(),
            quota_max: 10_000,
        }
    }
}

impl Queues {
    /// Whether there is a choice. With one queue nothing is put off.
    pub fn is_used(&self) -> bool {
        self.list.len() > 1
    }

    /// The queue of a collection; `None` for one that never waits.
    pub fn of(&self, nsid: &str) -> Option<usize> {
        let number = self.by_collection.get(nsid).copied();
        number.filter(|_| self.is_used())
    }

    /// Queues in the order in which a batch serves them.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        order.sort_by_key(|number| self.list.get(*number).map(|queue| queue.priority));
        order
    }

    /// How much of what waits in each queue one batch does.
    pub fn shares(&self, waiting: &[usize]) -> Vec<usize> {
        if waiting.iter().sum::<usize>() <= self.quota_max {
            return waiting.to_vec();
        }
        let promised = |(waiting, queue): (&usize, &Queue)| *waiting.min(&queue.concurrency);
        let mut shares: Vec<usize> = waiting.iter().zip(&self.list).map(promised).collect();
        let mut left = self.quota_max.saturating_sub(shares.iter().sum());
        for priority in [Priority::High, Priority::Medium, Priority::Low] {
            left = self.share_among(priority, waiting, &mut shares, left);
        }
        shares
    }

    /// Gives what is left to the queues of one priority, by their weights; returns what remains.
    fn share_among(
        &self,
        priority: Priority,
        waiting: &[usize],
        shares: &mut [usize],
        mut left: usize,
    ) -> usize {
        loop {
            let wants = |(number, queue): (usize, &Queue), shares: &[usize]| {
                let more = waiting.get(number)?.checked_sub(*shares.get(number)?)?;
                let takes = queue.priority == priority && more > 0;
                takes.then_some((number, queue.concurrency.max(1), more))
            };
            let taking: Vec<(usize, usize, usize)> = self
                .list
                .iter()
                .enumerate()
                .filter_map(|one| wants(one, shares))
                .collect();
            let weights: usize = taking.iter().map(|(_, weight, _)| weight).sum();
            if left == 0 || weights == 0 {
                return left;
            }
            let round = left;
            for (number, weight, more) in taking {
                let part = (round * weight / weights).max(1).min(more).min(left);
                if let Some(share) = shares.get_mut(number) {
                    *share += part;
                    left -= part;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(quota_max: usize) -> Queues {
        let queue = |name: &str, priority, concurrency| Queue {
            name: name.into(),
            priority,
            concurrency,
            depth_max: 100,
        };
        Queues {
            list: vec![
                queue("default", Priority::Medium, 5),
                queue("urgent", Priority::High, 3),
                queue("slow", Priority::Low, 2),
                queue("equal", Priority::Medium, 10),
            ],
            by_collection: BTreeMap::new(),
            quota_max,
        }
    }

    #[test]
    fn what_fits_into_one_batch_is_done_in_one_batch() {
        assert_eq!(queues(100).shares(&[10, 20, 30, 40]), [10, 20, 30, 40]);
    }

    #[test]
    fn a_higher_priority_has_all_beyond_what_the_others_are_promised() {
        assert_eq!(queues(50).shares(&[1000, 33, 1000, 0]), [15, 33, 2, 0]);
        assert_eq!(queues(50).shares(&[1000, 1000, 1000, 1000]), [5, 33, 2, 10]);
    }

    #[test]
    fn with_one_queue_nothing_waits() {
        let mut one = queues(1);
        one.list.truncate(1);
        one.by_collection.insert("x.post".into(), 0);
        assert_eq!(one.of("x.post"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_share_keeps_the_promises(waiting in prop::array::uniform4(0..60usize)) {
            let queues = queues(40);
            let shares = queues.shares(&waiting);
            let total: usize = waiting.iter().sum();
            prop_assert_eq!(shares.iter().sum::<usize>(), total.min(40));
            for (number, queue) in queues.list.iter().enumerate() {
                prop_assert!(shares[number] <= waiting[number]);
                prop_assert!(shares[number] >= waiting[number].min(queue.concurrency));
                let waits = shares[number] < waiting[number];
                for (other, lower) in queues.list.iter().enumerate() {
                    let beyond = shares[other] > lower.concurrency;
                    prop_assert!(!(waits && lower.priority > queue.priority && beyond));
                }
            }
        }
    }
}
