//! Records that come before what they lean on: parked, tried again, released, buried, woken.

use feedmill::store::batch::{Item, Snapshot};
use feedmill::store::{AccountStatus, Fate};

use super::desk::{ALICE, BOB, Desk};

const COLLECTIONS: &str = "[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
    [collections.reply]\ncollection = \"com.example.reply\"\nvalidate = false\nrequires = [\"parent\"]\n\
    [collections.tag]\ncollection = \"com.example.tag\"\nvalidate = false\n\
    requires = [{ path = \"subject\", in = \"label\", field = \"of\" }]\n\
    [collections.label]\ncollection = \"com.example.label\"\nvalidate = false\n";

fn desk() -> Desk {
    Desk::new(COLLECTIONS)
}

fn reply(desk: &Desk, parent: &str) -> String {
    format!("{{\"parent\":\"{}\"}}", desk.uri(ALICE, "post", parent))
}

#[test]
fn an_early_record_is_parked_and_released_by_the_commit_that_brings_what_it_lacks() {
    let desk = desk();
    let committed = desk.put(BOB, "reply", "1", &reply(&desk, "1"));
    assert_eq!(committed.accounting.parked, 1);
    assert!(!desk.has(BOB, "reply", "1"));
    desk.put(ALICE, "post", "1", "{}");
    assert!(desk.has(BOB, "reply", "1"));
    let accounting = desk.accounting();
    assert_eq!((accounting.applied, accounting.parked), (2, 0));
}

#[test]
fn a_record_whose_parent_is_here_does_not_wait() {
    let desk = desk();
    desk.put(ALICE, "post", "1", "{}");
    assert_eq!(
        desk.put(BOB, "reply", "1", &reply(&desk, "1"))
            .accounting
            .applied,
        1
    );
    // Nothing is required where nothing is named, or where nobody keeps what is named.
    assert_eq!(desk.put(BOB, "reply", "2", "{}").accounting.applied, 1);
    let foreign = "{\"parent\":\"at://did:web:c.test/com.elsewhere.post/1\"}";
    assert_eq!(desk.put(BOB, "reply", "3", foreign).accounting.applied, 1);
}

#[test]
fn an_early_record_is_tried_after_1_4_and_16_seconds_and_then_buried_and_wakes_all_the_same() {
    let desk = desk();
    desk.put(BOB, "reply", "1", &reply(&desk, "1"));
    for pause in [1, 4] {
        assert!(desk.pass(pause).fates.is_empty());
        assert_eq!(desk.accounting().parked, 1);
    }
    assert!(desk.pass(15).fates.is_empty(), "not before its time");
    assert_eq!(desk.accounting().parked, 1);
    assert_eq!(desk.pass(1).fates, [Fate::Buried]);
    let accounting = desk.accounting();
    assert_eq!((accounting.parked, accounting.dead), (0, 1));
    let letter = desk.letter();
    assert_eq!(letter.stage, "dependency");
    assert_eq!(letter.path, ["parent"]);
    assert_eq!(letter.received, desk.uri(ALICE, "post", "1"));

    desk.put(ALICE, "post", "1", "{}");
    assert!(desk.has(BOB, "reply", "1"));
    assert!(desk.letters().is_empty());
    let accounting = desk.accounting();
    assert_eq!(
        (accounting.applied, accounting.parked, accounting.dead),
        (2, 0, 0)
    );
}

#[test]
fn a_chain_of_early_records_is_released_at_once() {
    let desk = Desk::new(
        "[collections.node]\ncollection = \"com.example.node\"\nvalidate = false\nrequires = [\"parent\"]\n",
    );
    for number in (1..=20).rev() {
        let parent = desk.uri(ALICE, "node", &(number - 1).to_string());
        desk.put(
            ALICE,
            "node",
            &number.to_string(),
            &format!("{{\"parent\":\"{parent}\"}}"),
        );
    }
    assert_eq!(desk.accounting().parked, 20);
    desk.put(ALICE, "node", "0", "{}");
    let accounting = desk.accounting();
    assert_eq!((accounting.applied, accounting.parked), (21, 0));
}

#[test]
fn a_lookup_waits_for_any_record_that_says_the_same() {
    let desk = desk();
    assert_eq!(
        desk.put(BOB, "tag", "1", "{\"subject\":\"x\"}")
            .accounting
            .parked,
        1
    );
    desk.put(ALICE, "label", "1", "{\"of\":\"y\"}");
    assert!(!desk.has(BOB, "tag", "1"));
    desk.put(ALICE, "label", "2", "{\"of\":[\"w\",\"x\"]}");
    assert!(desk.has(BOB, "tag", "1"));
    assert_eq!(
        desk.put(BOB, "tag", "2", "{\"subject\":\"y\"}")
            .accounting
            .applied,
        1
    );
    desk.delete(ALICE, "label", "1");
    assert_eq!(
        desk.put(BOB, "tag", "3", "{\"subject\":\"y\"}")
            .accounting
            .parked,
        1
    );
}

#[test]
fn a_newer_event_supersedes_the_parked_one_and_an_older_one_does_not() {
    let desk = desk();
    let (old, parked, newer) = (desk.next_rev(), desk.next_rev(), desk.next_rev());
    desk.put_at(parked, BOB, "reply", "1", &reply(&desk, "1"));
    assert_eq!(
        desk.put_at(old, BOB, "reply", "1", "{}")
            .accounting
            .superseded,
        1
    );
    assert_eq!(
        desk.put_at(parked, BOB, "reply", "1", &reply(&desk, "1"))
            .accounting
            .repeated,
        1
    );
    desk.put_at(newer, BOB, "reply", "1", "{\"text\":\"new\"}");
    let accounting = desk.accounting();
    assert_eq!(
        (accounting.parked, accounting.superseded, accounting.applied),
        (0, 2, 1)
    );
    desk.put(ALICE, "post", "1", "{}");
    let row = desk
        .store
        .record(&desk.uri(BOB, "reply", "1"))
        .unwrap()
        .unwrap();
    assert!(row.body.contains("new"));
}

#[test]
fn a_delete_ends_what_is_parked() {
    let desk = desk();
    desk.put(BOB, "reply", "1", &reply(&desk, "1"));
    desk.delete(BOB, "reply", "1");
    desk.put(ALICE, "post", "1", "{}");
    assert!(!desk.has(BOB, "reply", "1"));
    assert_eq!(desk.accounting().parked, 0);
}

#[test]
fn an_early_edit_leaves_the_old_version_standing_until_it_is_buried() {
    let desk = desk();
    desk.put(BOB, "reply", "1", "{\"text\":\"old\"}");
    desk.put(BOB, "reply", "1", &reply(&desk, "1"));
    assert!(desk.has(BOB, "reply", "1"));
    for pause in [1, 4, 16] {
        desk.pass(pause);
    }
    assert!(!desk.has(BOB, "reply", "1"));
}

#[test]
fn replaying_the_stream_changes_nothing_while_parked_and_after_the_burial() {
    let desk = desk();
    let rev = desk.next_rev();
    let body = reply(&desk, "1");
    desk.put_at(rev, BOB, "reply", "1", &body);
    assert_eq!(
        desk.put_at(rev, BOB, "reply", "1", &body)
            .accounting
            .repeated,
        1
    );
    for pause in [1, 4, 16] {
        desk.pass(pause);
    }
    assert_eq!(
        desk.put_at(rev, BOB, "reply", "1", &body)
            .accounting
            .repeated,
        1
    );
    desk.store.discard(desk.now_us(), desk.letter().id).unwrap();
    assert_eq!(
        desk.put_at(rev, BOB, "reply", "1", &body)
            .accounting
            .repeated,
        1
    );
    assert_eq!(desk.accounting().parked, 0);
}

#[test]
fn no_more_than_parked_max_wait_and_the_oldest_is_buried() {
    let desk = Desk::new(&format!("{COLLECTIONS}[settle]\nparked_max = 2\n"));
    for number in ["1", "2", "3"] {
        desk.put(BOB, "reply", number, &reply(&desk, number));
    }
    let accounting = desk.accounting();
    assert_eq!((accounting.parked, accounting.dead), (2, 1));
    assert_eq!(desk.letter().rkey, "1");
    desk.put(ALICE, "post", "1", "{}");
    assert!(desk.has(BOB, "reply", "1"));
}

#[test]
fn a_snapshot_confirms_what_is_parked_or_ends_it() {
    let desk = desk();
    let body = reply(&desk, "1");
    desk.put(BOB, "reply", "1", &body);
    desk.put(BOB, "reply", "2", &body);
    let rev = desk.next_rev();
    let op = feedmill::store::Op {
        collection: "com.example.reply".into(),
        rkey: "1".into(),
        verdict: desk.check(BOB, "reply", "1", rev, &body),
    };
    desk.apply(Item::Snapshot(Snapshot {
        did: BOB.into(),
        rev,
        data: None,
        ops: vec![op],
        held: 0,
    }));
    assert_eq!(desk.accounting().parked, 1);
    desk.put(ALICE, "post", "1", "{}");
    assert!(desk.has(BOB, "reply", "1"));
    assert!(
        !desk.has(BOB, "reply", "2"),
        "the snapshot did not hold it any more"
    );
}

#[test]
fn a_deleted_account_leaves_nothing_parked() {
    let desk = desk();
    desk.put(BOB, "reply", "1", &reply(&desk, "1"));
    desk.apply(Item::Account {
        did: BOB.into(),
        status: AccountStatus::Deleted,
        time_us: desk.now_us(),
    });
    desk.put(ALICE, "post", "1", "{}");
    assert!(!desk.has(BOB, "reply", "1"));
    assert_eq!(desk.accounting().parked, 0);
}

#[test]
fn what_is_parked_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "namespace = \"com.example\"\n{COLLECTIONS}[store]\nurl = \"sqlite://{}/s.db\"\n",
        folder.path().display()
    );
    let config = || feedmill::config::Config::parse(&text).unwrap();
    let first = Desk::of(config());
    first.put(BOB, "reply", "1", &reply(&first, "1"));
    drop(first);
    let second = Desk::of(config());
    assert_eq!(second.accounting().parked, 1);
    second.put(ALICE, "post", "1", "{}");
    assert!(second.has(BOB, "reply", "1"));
}
