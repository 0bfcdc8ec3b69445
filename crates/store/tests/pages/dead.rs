//! Dead letters.

use decide::batch::{Fault, Stage};
use decide::ids::DeadId;
use decide::rows::Dead;
use proptest::prelude::*;
use store::page::budget::Budget;
use store::page::dead::{DeadQuery, dead, letter};

use crate::naive::{All, rows};
use crate::world::{Counting, did, engines, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dead_letters_are_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..250),
        batch_max in 1..40usize,
        limit in 1..4usize,
        scan_max in 1..20usize,
        author in prop::option::of(0..5u8),
        stage in prop::option::of(prop::sample::select(vec![Stage::Lexicon, Stage::Rule])),
        collection in prop::option::of(prop::sample::select(vec!["x.post", "x.note", "x.unknown"])),
        since_us in prop::option::of(2_000..2_010i64),
        until_us in prop::option::of(2_000..2_010i64),
        count_max in 1..10usize,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let letters = rows::<Dead>(&*snapshot);
            let author = author.map(did);
            let mut expected = Vec::new();
            for one in letters.iter().rev() {
                let fault: Fault = serde_json::from_str(&one.fault).unwrap();
                let of = (all.keys[&one.author].clone(), all.collections[&one.collection].clone());
                let admits = author.as_ref().is_none_or(|author| *author == of.0)
                    && collection.is_none_or(|wanted| wanted == of.1)
                    && stage.is_none_or(|stage| stage == fault.stage)
                    && since_us.is_none_or(|since_us| one.time_us >= since_us)
                    && until_us.is_none_or(|until_us| one.time_us < until_us);
                if admits {
                    expected.push((one.id, of.0, of.1, one.rkey.clone(), fault, one.raw.clone(), one.arrivals));
                }
            }
            let counting = Counting::new(&*snapshot);
            let mut found = Vec::new();
            let mut before = None;
            loop {
                let budget = Budget { scan_max, ..Budget::of(limit) };
                let query = DeadQuery { collection, stage, did: author.as_deref(), since_us, until_us, before, budget };
                let page = dead(&counting, &query, count_max).unwrap();
                prop_assert!(counting.trips() <= 6);
                prop_assert_eq!(page.total.n, letters.len().min(count_max));
                prop_assert_eq!(page.total.is_cut, letters.len() >= count_max);
                prop_assert!(page.letters.len() <= limit);
                for one in page.letters {
                    prop_assert_eq!(letter(&*snapshot, one.id).unwrap(), Some(one.clone()));
                    found.push((one.id, one.did, one.collection, one.rkey, one.fault, one.raw, one.arrivals));
                }
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(letter(&*snapshot, DeadId(1_000_000)).unwrap(), None);
        }
    }
}
