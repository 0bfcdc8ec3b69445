//! Queues: whose work is done first when not all of it fits into one turn.
//!
//! In:    how much waits in each queue.
//! Out:   how much of each is worked on in this turn, and in which order.
//! Never: more than a turn holds; less than a queue is promised; a lower
//!        priority served beyond its promise while a higher one waits.
//!
//! A turn is one transaction. A queue is first in, first out: its rows in the
//! store come before what the batch brings, so the order of one collection's
//! records, and with it the order of one URI, is never changed. Because every
//! queue is promised some of every turn, nothing waits for ever.

use std::collections::BTreeMap;

use crate::clock::Micros;
use crate::config::Config;
use crate::config::queue::{self, Priority};

/// One queue, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub priority: Priority,
    /// Promised in every turn; also the weight among equals.
    pub concurrency: usize,
    /// Taken from memory in one turn.
    pub depth_max: usize,
}

/// All queues; the first is the one of collections that name none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queues {
    list: Vec<Queue>,
    by_nsid: BTreeMap<String, usize>,
    turn_max: usize,
}

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

impl Queues {
    /// The queues of a checked configuration.
    pub fn new(config: &Config) -> Self {
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
        let mut by_nsid = BTreeMap::new();
        for collection in config.collections.values().filter(|it| !it.direct) {
            let name = &collection.queue;
            let index = list.iter().position(|queue| queue.name == *name);
            by_nsid.insert(collection.collection.clone(), index.unwrap_or(0));
        }
        Self {
            list,
            by_nsid,
            turn_max: config.intake.turn_max,
        }
    }

    /// Whether there is nobody to prefer.
    pub fn is_plain(&self) -> bool {
        self.list.len() <= 1
    }

    /// All of them.
    pub fn all(&self) -> &[Queue] {
        &self.list
    }

    /// The queue of a collection; `None` for one that waits in none.
    pub fn of(&self, nsid: &str) -> Option<usize> {
        self.by_nsid.get(nsid).copied()
    }

    /// Collections that have a queue, with its number.
    pub fn collections(&self) -> impl Iterator<Item = (&str, usize)> {
        self.by_nsid
            .iter()
            .map(|(nsid, queue)| (nsid.as_str(), *queue))
    }

    /// Records that one turn works on.
    pub fn turn_max(&self) -> usize {
        self.turn_max
    }

    /// Queues in the order in which a turn serves them.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        order.sort_by_key(|index| self.list.get(*index).map(|queue| queue.priority));
        order
    }

    /// How much of each line is worked on in one turn.
    pub fn shares(&self, lines: &[usize]) -> Vec<usize> {
        if lines.iter().sum::<usize>() <= self.turn_max {
            return lines.to_vec();
        }
        let promised = |(line, queue): (&usize, &Queue)| *line.min(&queue.concurrency);
        let mut shares: Vec<usize> = lines.iter().zip(&self.list).map(promised).collect();
        let mut left = self.turn_max.saturating_sub(shares.iter().sum());
        for priority in [Priority::High, Priority::Medium, Priority::Low] {
            left = self.share_among(priority, lines, &mut shares, left);
        }
        shares
    }

    /// Gives what is left to the queues of one priority, by their weights; returns what remains.
    fn share_among(
        &self,
        priority: Priority,
        lines: &[usize],
        shares: &mut [usize],
        mut left: usize,
    ) -> usize {
        loop {
            let hungry = |(index, queue): (usize, &Queue), shares: &[usize]| {
                let wants = lines.get(index)?.checked_sub(*shares.get(index)?)?;
                (queue.priority == priority && wants > 0).then_some((
                    index,
                    queue.concurrency,
                    wants,
                ))
            };
            let wanting: Vec<(usize, usize, usize)> = self
                .list
                .iter()
                .enumerate()
                .filter_map(|it| hungry(it, shares))
                .collect();
            let weights: usize = wanting.iter().map(|(_, weight, _)| weight).sum();
            if left == 0 || weights == 0 {
                return left;
            }
            let round = left;
            for (index, weight, wants) in wanting {
                let part = (round * weight / weights).max(1).min(wants).min(left);
                if let Some(share) = shares.get_mut(index) {
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

    fn queues(turn_max: usize) -> Queues {
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
            by_nsid: BTreeMap::new(),
            turn_max,
        }
    }

    #[test]
    fn what_fits_into_one_turn_is_done_in_one_turn() {
        assert_eq!(queues(100).shares(&[10, 20, 30, 40]), [10, 20, 30, 40]);
    }

    #[test]
    fn a_higher_priority_has_all_beyond_what_the_others_are_promised() {
        assert_eq!(queues(50).shares(&[1000, 33, 1000, 0]), [15, 33, 2, 0]);
        assert_eq!(queues(50).shares(&[1000, 1000, 1000, 1000]), [5, 33, 2, 10]);
    }

    #[test]
    fn equals_share_by_their_weights() {
        let shares = queues(170).shares(&[1000, 0, 0, 1000]);
        assert_eq!(shares.iter().sum::<usize>(), 170);
        assert!((54..=60).contains(&shares[0]), "{shares:?}");
    }

    /// The properties by which nobody starves, over many small worlds.
    #[test]
    fn every_share_keeps_the_promises() {
        let queues = queues(40);
        let mut state = 7u64;
        let mut next = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let lines = [next(60), next(60), next(60), next(60)];
            let shares = queues.shares(&lines);
            let total: usize = lines.iter().sum();
            assert_eq!(shares.iter().sum::<usize>(), total.min(40), "{lines:?}");
            for (index, queue) in queues.all().iter().enumerate() {
                assert!(shares[index] <= lines[index], "{lines:?} {shares:?}");
                assert!(shares[index] >= lines[index].min(queue.concurrency));
                let waits = shares[index] < lines[index];
                for (other, lower) in queues.all().iter().enumerate() {
                    let beyond = shares[other] > lower.concurrency;
                    assert!(
                        !(waits && lower.priority > queue.priority && beyond),
                        "{lines:?} {shares:?}"
                    );
                }
            }
        }
    }
}
