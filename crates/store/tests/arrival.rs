//! Any order of arrival, any split into batches and any repetition of the same
//! commits leave the same live records, follows, entries, groups and counts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod world;

use proptest::prelude::*;
use store::memory::Memory;
use world::{Step, adds_up, batches, consistent, dump, give_up, step};

fn run(steps: &[Step], batch_max: usize) -> Memory {
    let memory = Memory::new();
    for batch in batches(steps, batch_max) {
        world::run(&memory, &batch);
    }
    give_up(&memory);
    memory
}

/// A record that is about another thing now, at the same time, has the same place in both.
#[test]
fn a_record_that_moves_between_things_keeps_its_entries() {
    for (from, to) in [(0, 1), (1, 0)] {
        let link = |rev, target| Step {
            author: 0,
            kind: 3,
            rkey: 2,
            rev,
            time: 18,
            target,
        };
        let moved = run(&[link(1, from), link(2, to)], 1);
        let made = run(&[link(2, to)], 1);
        assert_eq!(dump(&moved), dump(&made));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arrival_split_and_repetition_do_not_matter(
        steps in prop::collection::vec(step(), 1..40),
        order in any::<u64>(),
        batch_max in 1..12usize,
        again in 0..20usize,
    ) {
        // Counts follow an account's status only once its job has passed.
        let steps = steps.into_iter().filter(|step| !step.is_account()).collect();
        let steps = consistent(steps);
        let expected = run(&steps, 1);
        let mut shuffled = steps.clone();
        let mut state = order | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let repeated: Vec<Step> = shuffled.iter().take(again).cloned().collect();
        shuffled.extend(repeated);
        let found = run(&shuffled, batch_max);
        prop_assert_eq!(dump(&found), dump(&expected));
        prop_assert!(adds_up(&found) && adds_up(&expected));
    }
}
