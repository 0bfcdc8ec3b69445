//! Queues change when an operation is applied, never what becomes of it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod world;

use decide::batch::{Batch, Order};
use decide::queue::{Priority, Queue, Queues};
use decide::rows::{Depth, Pending, Record};
use decide::rules::Rules;
use proptest::prelude::*;
use store::apply::apply;
use store::memory::Memory;
use store::port::Store;
use store::work;
use world::{
    COLLECTIONS, Step, adds_up, batches, consistent, dump, give_up, rows, settle_by, step,
};

fn queue(name: &str, priority: Priority, concurrency: usize) -> Queue {
    Queue {
        name: name.into(),
        priority,
        concurrency,
        depth_max: 4,
    }
}

/// Posts are urgent, likes and follows are not, the rest is as usual.
fn queued(quota_max: usize) -> Rules {
    let number = |nsid: &str| match nsid {
        "x.post" => 1,
        "x.like" | "x.follow" => 2,
        _ => 0,
    };
    Rules {
        queues: Queues {
            list: vec![
                queue("default", Priority::Medium, 2),
                queue("fast", Priority::High, 1),
                queue("late", Priority::Low, 1),
            ],
            by_collection: COLLECTIONS
                .map(|nsid| (nsid.to_owned(), number(nsid)))
                .into(),
            quota_max,
        },
        ..world::rules()
    }
}

/// The depth that is counted is the number of rows there are.
fn check_depths(store: &dyn Store) {
    let snapshot = store.snapshot().unwrap();
    let waiting = rows::<Pending>(&*snapshot);
    for depth in rows::<Depth>(&*snapshot) {
        let mut mine = waiting.iter().filter(|row| row.queue == depth.queue);
        assert_eq!(mine.clone().count() as i64, depth.n);
        let known = work::waiting(&*snapshot).unwrap();
        let known = known.into_iter().find(|one| one.queue == depth.queue);
        assert_eq!(known.unwrap().since_us, mine.next().map(|row| row.seen_us));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queues_change_the_order_of_work_and_not_its_result(
        steps in prop::collection::vec(step(), 1..60),
        batch_max in 1..20usize,
        quota_max in 4..12usize,
        worked in prop::collection::vec(any::<bool>(), 60),
    ) {
        // Counts follow an account's status only once its job has passed.
        let steps = steps.into_iter().filter(|step| !step.is_account()).collect();
        let steps = consistent(steps);
        let (plain, store) = (Memory::new(), Memory::new());
        let rules = queued(quota_max);
        for (batch, works) in batches(&steps, batch_max).iter().zip(worked) {
            world::run(&plain, batch);
            let applied = apply(&store, &rules, batch).unwrap();
            prop_assert!(applied.loads <= 3);
            let done: u64 = applied.worked.values().map(|(done, _)| done).sum();
            prop_assert!(done <= quota_max as u64);
            check_depths(&store);
            prop_assert!(adds_up(&store));
            if works {
                settle_by(&store, &rules, batch.now_us);
            }
        }
        give_up(&plain);
        for second in 1..60 {
            settle_by(&store, &rules, 2_000_000 * second);
        }
        prop_assert_eq!(rows::<Pending>(&*store.snapshot().unwrap()), []);
        prop_assert_eq!(dump(&store), dump(&plain));
        prop_assert!(adds_up(&store));
    }
}

fn post(rkey: u8, rev: u8, kind: u8) -> Step {
    Step {
        author: 0,
        kind,
        rkey,
        rev,
        time: 1,
        target: 0,
    }
}

#[test]
fn the_urgent_come_first_and_nobody_is_forgotten() {
    let store = Memory::new();
    let rules = queued(4);
    // Eight blocks, then four posts; nobody else.
    let kinds = [5, 5, 5, 5, 5, 5, 5, 5, 0, 0, 0, 0];
    let steps: Vec<Step> = (0..)
        .zip(kinds)
        .map(|(n, kind)| post(n, 4 * n + 1, kind))
        .collect();
    apply(&store, &rules, &batches(&steps, 100)[0]).unwrap();
    let snapshot = store.snapshot().unwrap();
    let names = store
        .intern(&Default::default(), &COLLECTIONS.into())
        .unwrap();
    let done = |nsid: &str| {
        let records = rows::<Record>(&*snapshot).into_iter();
        records
            .filter(|row| row.collection == names.collections[nsid])
            .count()
    };
    assert_eq!((done("x.block"), done("x.post")), (2, 2));
}

#[test]
fn a_queue_that_is_no_longer_configured_is_worked_off() {
    let store = Memory::new();
    let steps: Vec<Step> = (0..9).map(|n| post(n, 4 * n + 1, 1)).collect();
    apply(&store, &queued(4), &batches(&steps, 100)[0]).unwrap();
    assert!(!rows::<Pending>(&*store.snapshot().unwrap()).is_empty());
    let orders = work::next(&*store.snapshot().unwrap(), &world::rules(), 0).unwrap();
    assert!(
        matches!(&orders[..], [Order::Drain(queue)] if queue == "late"),
        "{orders:?}"
    );
    settle_by(&store, &world::rules(), 5_000);
    assert_eq!(rows::<Pending>(&*store.snapshot().unwrap()), []);
    assert!(adds_up(&store));
}

#[test]
fn a_batch_without_operations_leaves_the_queues_alone() {
    let store = Memory::new();
    let steps: Vec<Step> = (0..9).map(|n| post(n, 4 * n + 1, 1)).collect();
    apply(&store, &queued(4), &batches(&steps, 100)[0]).unwrap();
    let waiting = rows::<Pending>(&*store.snapshot().unwrap());
    apply(&store, &queued(4), &Batch::default()).unwrap();
    assert_eq!(rows::<Pending>(&*store.snapshot().unwrap()), waiting);
}
