//! References, forward and backward.

use decide::ids::RecordId;
use decide::rows::Record;
use proptest::prelude::*;
use store::page::budget::Budget;
use store::page::reference::{ReferrerQuery, references, referrers};

use crate::feed::shown;
use crate::naive::{All, Shown};
use crate::world::{Counting, did, engines, post, step};

/// What a record links to, by path.
pub(crate) fn links(record: &Record) -> Vec<(String, String)> {
    serde_json::from_str(record.links.as_deref().unwrap_or("[]")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn referrers_are_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..200),
        batch_max in 1..40usize,
        limit in 1..4usize,
        scan_max in 1..10usize,
        wanted in prop::option::of(prop::sample::select(vec!["subject", "quote", "embed.uri"])),
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let posts = (0..4).flat_map(|author| (0..3).map(move |rkey| post(author, rkey)));
        let targets: Vec<String> = posts.chain([did(0), "nobody".into()]).collect();
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            for uri in &targets {
                let mut expected: Vec<(Shown, String)> = Vec::new();
                for record in all.records.keys().rev().filter_map(|id| all.visible(*id)) {
                    for (path, target) in links(record) {
                        if target == *uri && wanted.is_none_or(|wanted| wanted == path) {
                            expected.push((all.shown(record), path));
                        }
                    }
                }
                let counting = Counting::new(&*snapshot);
                let mut found = Vec::new();
                let mut before: Option<(RecordId, String)> = None;
                loop {
                    let budget = Budget { scan_max, ..Budget::of(limit) };
                    let query = ReferrerQuery { uri, path: wanted, before: before.as_ref(), budget };
                    let page = referrers(&counting, &query).unwrap();
                    prop_assert!(counting.trips() <= 9);
                    prop_assert!(page.found.len() <= limit);
                    found.extend(page.found.iter().map(|one| (shown(&one.row), one.path.clone())));
                    before = page.next;
                    if before.is_none() {
                        break;
                    }
                }
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn references_are_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..200),
        batch_max in 1..40usize,
        limit in 1..3usize,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let at = |uri: &str| {
                let mut records = all.records.keys().filter_map(|id| all.visible(*id));
                records.find(|record| all.uri(record) == uri)
            };
            for record in all.records.values() {
                let uri = all.uri(record);
                let counting = Counting::new(&*snapshot);
                let mut found = Vec::new();
                let mut after = None;
                while let Some(page) = references(&counting, &uri, after.as_ref(), &Budget::of(limit)).unwrap() {
                    prop_assert!(counting.trips() <= 4);
                    let Some(last) = page.last() else { break };
                    after = Some((last.path.clone(), last.uri.clone()));
                    found.extend(page.iter().map(|one| (one.path.clone(), one.uri.clone(), one.row.as_ref().map(shown))));
                }
                let expected: Vec<_> = match all.visible(record.id) {
                    Some(record) => links(record).into_iter().map(|(path, target)| {
                        let row = at(&target).map(|record| all.shown(record));
                        (path, target, row)
                    }).collect(),
                    None => Vec::new(),
                };
                prop_assert_eq!(found, expected);
            }
        }
    }
}
