//! Children of parents: counts, and the newest.

use proptest::prelude::*;
use store::page::children::{ChildQuery, children};

use crate::feed::list_of;
use crate::naive::All;
use crate::world::{Counting, FANS, LIKES, did, engines, post, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn children_are_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..200),
        batch_max in 1..40usize,
        limit in 0..4usize,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let posts = (0..4).flat_map(|author| (0..5).map(move |rkey| post(author, rkey)));
        let by_uri: Vec<String> = posts.chain(["nobody".into()]).collect();
        let by_did: Vec<String> = (0..4).map(did).collect();
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            for (index, collection, parents) in [(LIKES, "x.like", &by_uri), (FANS, "x.fan", &by_did)] {
                let counting = Counting::new(&*snapshot);
                let texts: Vec<&str> = parents.iter().map(String::as_str).collect();
                let query = ChildQuery { index, collection, parents: &texts, limit };
                let found = children(&counting, &query).unwrap();
                prop_assert!(counting.trips() <= 6);
                prop_assert_eq!(found.len(), parents.len());
                for (parent, found) in parents.iter().zip(found) {
                    let key = all.key(parent);
                    let mut expected = all.under(index, |other| Some(other) == key);
                    prop_assert_eq!(found.count, all.counted(index, parent));
                    expected.truncate(limit);
                    prop_assert_eq!(list_of(&found.rows), expected);
                }
            }
        }
    }
}
