//! Timelines as they are drawn from a real store: what happens when a change cannot be made.

use feedmill::config::Config;
use feedmill::fanout::{Fanout, Wish};
use rusqlite::Connection;

use crate::desk::{ALICE, BOB, Desk};

const NEW: &str = "did:web:new.test";

/// A desk over a file, which the test may open beside it.
fn desk(file: &std::path::Path) -> Desk {
    let text = format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [feeds.timeline]\ntargets = [\"post\"]\n\
         [store]\nurl = \"sqlite://{}\"\n",
        file.display()
    );
    Desk::of(Config::parse(&text).unwrap())
}

fn follow(desk: &Desk, rkey: &str, of: &str) {
    desk.put(BOB, "follow", rkey, &format!("{{\"subject\":\"{of}\"}}"));
}

/// Timelines hold keys of 32 bits. A record under a later one cannot be taken in; then none of its
/// batch is, so that pages stay those of the position before.
#[test]
fn a_batch_with_a_change_that_cannot_be_made_is_not_made_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.db");
    let desk = desk(&file);
    follow(&desk, "1", ALICE);
    desk.put(ALICE, "post", "1", "{}");
    let (fanout, mut drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let wish = Wish {
        feed: "timeline",
        target: Some(0),
        reader: BOB,
        before: None,
        limit: 10,
        now_us: desk.now_us(),
        is_incomplete: false,
    };
    // Bob is active from his first page on.
    assert_eq!(fanout.page(&wish).unwrap().unwrap().rows.len(), 1);
    while drawer.step(desk.now_us()).unwrap() {}
    let before = fanout.position();
    let page = fanout.page(&wish).unwrap().unwrap();

    // One good change, and one of a key with a number that is too large.
    let beside = Connection::open(&file).unwrap();
    let large = "INSERT INTO key (id, hash, text) VALUES (4294967295, 0, 'did:web:last.test')";
    beside.execute(large, []).unwrap();
    follow(&desk, "2", ALICE);
    desk.delete(BOB, "follow", "1");
    desk.put(NEW, "post", "1", "{}");
    assert!(desk.store.key(NEW).unwrap().unwrap() > i64::from(u32::MAX));

    for _ in 0..3 {
        let refused = drawer.step(desk.now_us()).unwrap_err();
        assert!(refused.to_string().contains("4294967296"), "{refused}");
        assert_eq!(fanout.position(), before);
        // A batch that was made in part would leave Bob's page to the store.
        assert_eq!(fanout.page(&wish).unwrap().unwrap(), page);
    }
}
