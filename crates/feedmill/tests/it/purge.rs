//! An account that goes takes everything with it, whatever is served of it.

use feedmill::store::AccountStatus;
use feedmill::store::batch::{Item, Snapshot};

use crate::desk::{ALICE, Desk};

const COLLECTIONS: &str = "[collections.secret]\ncollection = \"com.example.secret\"\nvalidate = false\nmethods = [\"getRecord\"]\n";

#[test]
fn a_deleted_account_leaves_no_record_of_a_collection_that_is_not_listed() {
    let desk = Desk::new(COLLECTIONS);
    desk.put(ALICE, "secret", "1", "{}");
    desk.apply(Item::Account {
        did: ALICE.into(),
        status: AccountStatus::Deleted,
        time_us: desk.now_us(),
    });
    assert!(!desk.has(ALICE, "secret", "1"));
    let live: i64 = desk
        .store
        .counts()
        .unwrap()
        .records
        .iter()
        .map(|(_, live)| live)
        .sum();
    assert_eq!(live, 0);
}

#[test]
fn a_snapshot_removes_what_it_no_longer_holds_of_a_collection_that_is_not_listed() {
    let desk = Desk::new(COLLECTIONS);
    desk.put(ALICE, "secret", "1", "{}");
    desk.apply(Item::Snapshot(Snapshot {
        did: ALICE.into(),
        rev: desk.next_rev(),
        data: None,
        ops: Vec::new(),
        held: 0,
    }));
    assert!(!desk.has(ALICE, "secret", "1"));
}
