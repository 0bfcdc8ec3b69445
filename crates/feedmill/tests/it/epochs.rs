//! Restores: whoever followed the life of a store that a restore ended notices, also after the store
//! has grown past where it was.

use std::path::Path;
use std::sync::Arc;

use feedmill::backup;
use feedmill::branch::{self, Step};
use feedmill::config::{self, Config};
use feedmill::live::{Ear, Live, News, Next};
use feedmill::search::{SearchBranch, SearchIndex};
use feedmill::store::search::Search;

use crate::desk::{ALICE, BOB, Desk};

const POST: &str = "com.example.post";

fn config(folder: &Path) -> Config {
    let text = format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.post]\ncollection = \"{POST}\"\nvalidate = false\nsearchable = [\"text\"]\n\
         [feeds.timeline]\ntargets = [\"post\"]\n[store]\nurl = \"sqlite://{}\"\n",
        folder.join("feedmill.db").display(),
    );
    Config::parse(&text).unwrap()
}

/// Writes posts of one word.
fn posts(desk: &Desk, word: &str, count: usize) {
    for number in 0..count {
        let body = format!(r#"{{"text": "{word}", "createdAt": "2026-01-01T00:00:00Z"}}"#);
        desk.put(ALICE, "post", &format!("{word}{number}"), &body);
    }
}

fn draw(desk: &Desk) -> Arc<SearchIndex> {
    let index = SearchIndex::open(&desk.config).unwrap().unwrap();
    let mut branch = SearchBranch::new(Arc::clone(&index));
    while branch::step(&mut branch, &*desk.store).unwrap() == Step::More {}
    index
}

/// How many posts hold a word, by the index alone.
fn found(index: &Arc<SearchIndex>, word: &str) -> usize {
    let search = Search::parse(word, &["text".to_owned()]).unwrap();
    let found = index.candidates(POST, &search, None).unwrap().unwrap();
    found.next().unwrap().found.len()
}

/// A store that was backed up, went on, and was restored; then it grew past where it had been.
struct Restored {
    desk: Desk,
    /// The head at the backup, and the last one of the life that ended.
    at_backup: i64,
    lost: i64,
    folder: tempfile::TempDir,
}

fn restored() -> Restored {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("before")).unwrap();
    let before = Desk::of(config(&folder.path().join("before")));
    before.put(BOB, "follow", "1", &format!("{{\"subject\":\"{ALICE}\"}}"));
    posts(&before, "kept", 5);
    draw(&before);
    let copy = folder.path().join("copy");
    backup::back_up(&before.config, &copy, before.now_us(), &mut |_| {}).unwrap();
    let at_backup = before.store.head().unwrap();
    posts(&before, "lost", 5);
    draw(&before);
    let lost = before.store.head().unwrap();

    let after = config(&folder.path().join("after"));
    backup::restore(&after, &copy, &mut |_| {}).unwrap();
    // The index is the one that followed to the end, as where only the store is restored.
    let index = |life: &str| folder.path().join(life).join("feedmill.search.db");
    drop(before);
    std::fs::copy(index("before"), index("after")).unwrap();
    let desk = Desk::of(after);
    posts(&desk, "new", 20);
    Restored {
        desk,
        at_backup,
        lost,
        folder,
    }
}

#[test]
fn positions_of_a_life_that_a_restore_ended_are_gone_and_those_before_the_backup_are_good() {
    let Restored {
        desk,
        at_backup,
        lost,
        folder: _folder,
    } = restored();
    let store = &desk.store;
    assert!(store.head().unwrap() > lost + 20);
    for position in at_backup + 1..=lost {
        assert!(store.draw(position, 1000).unwrap().gone, "{position}");
    }
    let drawn = store.draw(at_backup, 1000).unwrap();
    assert!(!drawn.gone);
    assert_eq!(drawn.changes.len(), 20);
    assert_eq!(drawn.position, store.head().unwrap());
    // In small steps, and from the middle of a step, they are the same.
    let mut position = at_backup - 3;
    let mut stepwise = Vec::new();
    while position < drawn.position {
        let some = store.draw(position, 2).unwrap();
        assert!(!some.gone && some.position > position);
        stepwise.extend(some.changes);
        position = some.position;
    }
    assert_eq!(stepwise.split_off(3), drawn.changes);
    // Two restores of one backup are two lives.
    let other = restored().desk.store.head().unwrap();
    assert_ne!(other, store.head().unwrap());
}

#[test]
fn a_branch_that_followed_a_life_that_a_restore_ended_starts_anew_from_the_records() {
    let Restored {
        desk,
        folder: _folder,
        ..
    } = restored();
    let index = draw(&desk);
    let words = ["kept", "lost", "new"].map(|word| found(&index, word));
    assert_eq!(words, [5, 0, 20]);
}

#[tokio::test]
async fn a_listener_of_a_life_that_a_restore_ended_is_told_to_read_the_feed_again() {
    let Restored {
        desk,
        at_backup,
        lost,
        folder: _folder,
    } = restored();
    let live = Live::open(&desk.store, None, &config::Serve::default()).unwrap();
    let ear = Ear {
        feed: "timeline".into(),
        did: BOB.into(),
        reader: desk.store.key(BOB).unwrap().unwrap(),
        address: None,
    };
    let first = async |from: i64| {
        let listening = live.listen(ear.clone(), Some(from), Arc::default());
        let mut listening = listening.unwrap();
        loop {
            match listening.next().await {
                Next::Missed(missed) => missed.read(),
                Next::Told(told) => return told.news,
                Next::Over => panic!("it is over"),
            }
        }
    };
    assert!(matches!(first(lost).await, News::Outdated));
    assert!(matches!(first(at_backup).await, News::Entry(_)));
}
