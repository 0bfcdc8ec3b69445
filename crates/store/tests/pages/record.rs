//! One record, some records, and where a record was.

use decide::ids::RecordId;
use proptest::prelude::*;
use store::page::place::Place;
use store::page::record::{place, record, records, records_at};

use crate::feed::{list_of, shown};
use crate::naive::All;
use crate::world::{Counting, engines, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_is_what_all_rows_say(steps in prop::collection::vec(step(), 1..140), batch_max in 1..40usize) {
        let (_folder, engines) = engines(&steps, batch_max);
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let counting = Counting::new(&*snapshot);
            let visible = all.records.keys().filter_map(|id| all.visible(*id));
            let visible: Vec<_> = visible.map(|record| all.shown(record)).collect();
            for one in all.records.values() {
                let uri = all.uri(one);
                let found = record(&counting, &uri).unwrap();
                prop_assert!(counting.trips() <= 2);
                let expected = all.visible(one.id).map(|record| all.shown(record));
                prop_assert_eq!(found.as_ref().map(shown), expected);
                prop_assert_eq!(found.and_then(|row| row.cid), one.cid.clone().filter(|_| all.visible(one.id).is_some()));
                let expected = Place { time_us: one.time_us, uri: uri.clone() };
                prop_assert_eq!(place(&counting, &uri).unwrap(), Some(expected), "also of what is gone");
                prop_assert!(counting.trips() <= 2);
            }
            let mut ids: Vec<RecordId> = all.records.keys().copied().collect();
            ids.insert(0, RecordId(1_000_000));
            prop_assert_eq!(list_of(&records(&counting, &ids).unwrap()), visible.clone());
            prop_assert!(counting.trips() <= 2);
            let uris: Vec<String> = all.records.values().map(|one| all.uri(one)).collect();
            let uris: Vec<&str> = uris.iter().map(String::as_str).chain(["at://did:web:9.test/x.post/1", "nonsense"]).collect();
            let mut found: Vec<_> = records_at(&counting, &uris).unwrap().into_values().map(|row| shown(&row)).collect();
            prop_assert!(counting.trips() <= 2);
            found.sort_by_key(|one| one.2);
            prop_assert_eq!(found, visible);
        }
    }
}
