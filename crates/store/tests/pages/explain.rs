//! Explanations: never contradicted by the feed, and the first thing that keeps a record out.

use decide::rows::{Dead, Parked, Record};
use proptest::prelude::*;
use store::page::explain::{Explained, Question, Reason, explain};
use store::page::feed::{Feed, Target};

use crate::merged;
use crate::naive::{All, rows};
use crate::world::{
    Counting, EVEN, FOLLOWS, MERGED, MUTES, NOTES, POSTS, did, engines, linking, readers,
};

/// What is not there is explained by what became of it.
fn check_absence(
    all: &All,
    dead: &[Dead],
    record: Option<&Record>,
    found: &Explained,
) -> Result<(), TestCaseError> {
    match record {
        None => prop_assert!(
            matches!(
                found.reason,
                Reason::NeverSeen | Reason::Parked { .. } | Reason::Dead { .. }
            ),
            "{:?}",
            found
        ),
        Some(record) if record.state == 1 => prop_assert!(
            matches!(found.reason, Reason::Deleted | Reason::Parked { .. }),
            "{:?}",
            found
        ),
        Some(record) if record.state == 2 => {
            let letter = dead.iter().rfind(|one| {
                (one.author, one.collection, &one.rkey)
                    == (record.author, record.collection, &record.rkey)
            });
            let Reason::Dead { letter: named } = &found.reason else {
                return Err(TestCaseError::fail(format!(
                    "refused, not {:?}",
                    found.reason
                )));
            };
            prop_assert_eq!(
                named.as_ref().map(|(id, _, _)| *id),
                letter.map(|one| one.id)
            );
        }
        Some(record) if all.is_hidden(record.author) => {
            prop_assert!(matches!(found.reason, Reason::AuthorHidden(_)))
        }
        Some(_) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_explanation_is_what_the_feed_shows(
        steps in prop::collection::vec(linking(), 1..120),
        batch_max in 1..40usize,
        cap in prop::option::of(1..4usize),
        include_self in any::<bool>(),
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let target = |index, collection: &str| Target { index, collection: collection.into(), cap };
        let feed = |targets| Feed { targets, follows: vec![FOLLOWS], hides: vec![MUTES], include_self };
        let even = feed(vec![target(EVEN, "x.post")]);
        let mixed = feed(vec![target(POSTS, "x.post"), target(NOTES, "x.note")]);
        let groups = Feed { include_self: false, ..feed(vec![Target { cap: None, ..target(MERGED, "") }]) };
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let waiting: Vec<String> = rows::<Parked>(&*snapshot).into_iter().filter(|one| one.dead.is_none()).map(|one| one.uri).collect();
            let dead = rows::<Dead>(&*snapshot);
            let mut uris: Vec<String> = all.records.values().map(|one| all.uri(one)).collect();
            uris.extend(waiting.clone());
            uris.push(format!("at://{}/x.post/never", did(0)));
            for reader in readers() {
                let sources = (FOLLOWS, MUTES);
                let shown_even = all.feed(&[(EVEN, cap)], &reader, sources, include_self);
                let shown_mixed = all.feed(&[(POSTS, cap), (NOTES, cap)], &reader, sources, include_self);
                let shown_groups = merged::members_shown(&all, &reader);
                for uri in &uris {
                    let record = all.records.values().find(|one| all.uri(one) == *uri);
                    for (feed, shown) in [(&even, &shown_even), (&mixed, &shown_mixed)] {
                        let counting = Counting::new(&*snapshot);
                        let question = Question { feed, merged: &[], reader: &reader, uri };
                        let found = explain(&counting, &question).unwrap();
                        prop_assert!(counting.trips() <= 22);
                        let is_shown = shown.iter().any(|one| one.1 == *uri);
                        prop_assert_eq!(found.reason == Reason::Shown, is_shown, "{:?}", found);
                        let is_target = feed.targets.iter().any(|target| uri.contains(&format!("/{}/", target.collection)));
                        prop_assert_eq!(found.reason == Reason::NotATarget, !is_target);
                        if !is_target {
                            continue;
                        }
                        check_absence(&all, &dead, record, &found)?;
                        let key = all.key(&reader);
                        for via in &found.follows {
                            let follow = all.follows.iter().find(|row| {
                                Some(row.reader) == key && row.source == FOLLOWS && all.keys[&row.key] == via.key
                                    && via.record == Some(all.uri(&all.records[&row.record]))
                            });
                            let is_own = include_self && via.record.is_none() && via.key == reader;
                            prop_assert!(follow.is_some() || is_own, "{:?}", via);
                        }
                        if let Reason::Muted { key: muted, .. } = &found.reason {
                            let hidden = all.named(MUTES, key.unwrap());
                            prop_assert!(hidden.contains(&all.key(muted).unwrap()));
                        }
                    }
                    let question = Question { feed: &groups, merged: &["x.link"], reader: &reader, uri };
                    let found = explain(&*snapshot, &question).unwrap();
                    prop_assert_eq!(found.reason == Reason::Shown, shown_groups.iter().any(|(member, _)| member == uri), "{:?}", found);
                    if found.reason == Reason::Shown {
                        prop_assert!(shown_groups.contains(&(uri.clone(), found.begins.unwrap())));
                    }
                }
            }
        }
    }
}
