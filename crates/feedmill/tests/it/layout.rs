//! One store, two configurations: whoever only looks changes nothing, and a
//! process whose lanes were laid out anew by another stops instead of losing records.

use std::path::Path;

use feedmill::config::Config;
use feedmill::store::batch::{Batch, Item};
use feedmill::store::{self, StoreError};

use crate::desk::{ALICE, Desk};

fn config(file: &Path, condition: &str) -> Config {
    let text = format!(
        "namespace = \"com.example\"\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [feeds.timeline]\nfollow = \"follow\"\n\
         targets = [{{ collection = \"post\", where = \"{condition}\" }}]\n\
         [store]\nurl = \"sqlite://{}\"\n",
        file.display()
    );
    Config::parse(&text).unwrap()
}

fn nothing() -> Batch {
    Batch::of_no_source(1, Item::Filtered(0))
}

fn cause<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn who_attaches_to_a_store_neither_makes_it_nor_lays_it_out_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, missing) = (folder.path().join("s.db"), folder.path().join("no.db"));
    let (ours, theirs) = ("!has(record.reply)", "!has(record.parent)");
    assert!(cause(store::attach(&config(&missing, ours))).contains("there is no file"));
    assert!(!missing.exists());
    let desk = Desk::of(config(&kept, ours));
    desk.put(ALICE, "post", "a", "{}");
    let refused = cause(store::attach(&config(&kept, theirs)));
    assert!(refused.contains("another configuration"), "{refused}");
    assert!(store::attach(&config(&kept, ours)).is_ok());
    desk.put(ALICE, "post", "b", "{}");
    assert!(
        desk.has(ALICE, "post", "b"),
        "nothing was pulled from under it"
    );
}

#[test]
fn a_process_whose_lanes_were_laid_out_anew_stops() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let desk = Desk::of(config(&file, "!has(record.reply)"));
    desk.put(ALICE, "post", "a", "{}");
    let same = store::open(&config(&file, "!has(record.reply)")).unwrap();
    desk.put(ALICE, "post", "b", "{}");
    drop(same);
    let other = store::open(&config(&file, "!has(record.parent)")).unwrap();
    for _ in 0..2 {
        let written = cause(desk.store.commit(nothing()));
        assert!(written.contains("another configuration"), "{written}");
    }
    let read = cause(desk.store.cursor("any"));
    assert!(read.contains("another configuration"), "{read}");
    assert!(other.commit(nothing()).is_ok());
}

#[test]
fn a_process_that_does_not_know_of_a_collection_kept_since_stops() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let condition = "!has(record.reply)";
    let desk = Desk::of(config(&file, condition));
    let mut more = config(&file, condition);
    let mut like = more.collections["post"].clone();
    like.collection = "com.example.like".into();
    more.collections.insert("like".into(), like);
    let refused = cause(store::attach(&more));
    assert!(refused.contains("another configuration"), "{refused}");
    let other = store::open(&more).unwrap();
    // It would pass over what the other takes for kept.
    let written = cause(desk.store.commit(nothing()));
    assert!(written.contains("another configuration"), "{written}");
    assert!(other.commit(nothing()).is_ok());
}
