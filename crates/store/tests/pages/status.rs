//! Numbers for the operator.

use std::collections::BTreeMap;

use decide::rows::{Account, Dead, Parked};
use proptest::prelude::*;
use store::page::status::status;

use crate::naive::{All, rows};
use crate::world::{Counting, engines, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_status_is_what_all_rows_say(steps in prop::collection::vec(step(), 1..200), batch_max in 1..40usize) {
        let (_folder, engines) = engines(&steps, batch_max);
        let mut of_engines = Vec::new();
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let counting = Counting::new(&*snapshot);
            let found = status(&counting, usize::MAX).unwrap();
            prop_assert_eq!(counting.trips(), 3);
            let mut live: BTreeMap<String, i64> = BTreeMap::new();
            for record in all.records.values().filter(|record| record.state == 0) {
                *live.entry(all.collections[&record.collection].clone()).or_default() += 1;
            }
            let mut records = found.records.clone();
            records.retain(|_, n| *n != 0);
            prop_assert_eq!(records, live);
            let mut outcomes = found.outcomes["s"].clone();
            prop_assert_eq!(outcomes.remove("received"), Some(steps.len() as i64));
            prop_assert_eq!(outcomes.values().sum::<i64>(), steps.len() as i64, "every unit has one outcome");
            let parked = rows::<Parked>(&*snapshot);
            prop_assert_eq!(found.outcomes["s"].get("parked").copied().unwrap_or_default(), parked.iter().filter(|one| one.dead.is_none()).count() as i64);
            prop_assert_eq!(found.due_us, parked.iter().filter_map(|one| one.due_us).min());
            prop_assert_eq!(found.cursors["s"], (steps.len() as i64 - 1) / batch_max as i64);
            prop_assert_eq!(found.accounts.unwrap().n, rows::<Account>(&*snapshot).len());
            prop_assert_eq!(found.dead.unwrap().n, rows::<Dead>(&*snapshot).len());
            prop_assert_eq!(found.held.unwrap().n, 0);
            of_engines.push(found);
        }
        prop_assert_eq!(&of_engines[0], &of_engines[1]);
    }
}
