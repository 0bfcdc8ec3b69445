//! The writer: what is marked while it works, and when a commit is on the disk.

use parking_lot::Mutex;

use super::super::{Place, schema};
use super::*;
use crate::config::Config;

fn desk() -> Desk {
    let text = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n";
    let config = Config::parse(text).unwrap();
    let plan = Plan::new(&config);
    let place = Place::of(&config.store.url);
    let mut connection = place.connect(1).unwrap();
    schema::create(&mut connection).unwrap();
    let ids = rebuild::align(&mut connection, &plan).unwrap();
    let head = Arc::new(Head::default());
    let marks = (connection, RowMark::default());
    Desk::new(marks, Arc::new(plan), ids, &config.store, &head).unwrap()
}

fn batch(source: &str) -> Batch {
    Batch {
        source: source.into(),
        cursor: Some(1),
        now_us: 1,
        items: Vec::new(),
    }
}

/// SQLite's number of the mode in which these batches were committed.
fn synchronous(desk: &mut Desk, sources: &[&str]) -> i64 {
    let batches: Vec<Batch> = sources.iter().map(|source| batch(source)).collect();
    let batches: Vec<&Batch> = batches.iter().collect();
    desk.transaction(&batches).unwrap();
    let mode = desk
        .connection
        .pragma_query_value(None, "synchronous", |row| row.get(0));
    mode.unwrap()
}

/// A marker of this source, named for a batch of two frames.
fn marked(desk: &Desk, source: &str, path: &std::path::Path) {
    let attempt = Attempt::open(path).unwrap();
    attempt.name(Some(crate::store::attempt::Mark {
        frames: 2,
        first: 1,
        tries: 1,
    }));
    let attempt = Arc::new(attempt);
    desk.marks.insert(source, attempt);
}

#[test]
fn a_batch_is_marked_while_it_is_applied_and_not_while_the_disk_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mark");
    let mut desk = desk();
    marked(&desk, "relay", &path);
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let look = |path: &std::path::Path| Attempt::open(path).unwrap().found().is_some();
    let (applying, committing) = (Arc::clone(&seen), Arc::clone(&seen));
    let (at, then) = (path.clone(), path.clone());
    desk.connection
        .update_hook(Some(move |_, _: &str, _: &str, _| {
            applying.lock().push(look(&at));
        }))
        .unwrap();
    desk.connection
        .commit_hook(Some(move || {
            committing.lock().push(look(&then));
            false
        }))
        .unwrap();
    let letter = Item::Unopened(crate::store::batch::DeadLetter::default());
    let one = Batch {
        items: vec![letter],
        ..batch("relay")
    };
    desk.transaction(&[&one]).unwrap();
    let seen = seen.lock();
    let (committing, applying) = seen.split_last().unwrap();
    assert!(!committing && applying.contains(&true) && !applying.contains(&false));
    assert!(!look(&path));
}

#[test]
fn a_full_store_leaves_no_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mark");
    let mut desk = desk();
    marked(&desk, "relay", &path);
    let pages: i64 = desk
        .connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    desk.connection
        .pragma_update(None, "max_page_count", pages)
        .unwrap();
    let letters = (0..2000).map(|number| {
        Item::Unopened(crate::store::batch::DeadLetter {
            stage: "frame".into(),
            raw: format!("{number}").repeat(500),
            ..Default::default()
        })
    });
    let full = Batch {
        items: letters.collect(),
        ..batch("relay")
    };
    let refused = desk.transaction(&[&full]).unwrap_err();
    assert!(refused.passes(), "{refused}");
    assert_eq!(Attempt::open(&path).unwrap().found(), None);
}

#[test]
fn a_group_with_a_direct_write_is_on_the_disk_before_it_is_answered() {
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    let mut desk = desk();
    assert_eq!(synchronous(&mut desk, &["relay"]), NORMAL);
    assert_eq!(synchronous(&mut desk, &[DIRECT]), FULL);
    assert_eq!(synchronous(&mut desk, &["relay", "other"]), NORMAL);
    assert_eq!(synchronous(&mut desk, &["relay", DIRECT, "other"]), FULL);
}

#[test]
fn a_suspected_batch_has_a_transaction_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["relay", "other", "third"].map(|source| (source, folder.path().join(source)));
    let mut desk = desk();
    for (source, path) in &paths {
        marked(&desk, source, path);
    }
    let suspect = Attempt::open(&paths[1].1).unwrap();
    suspect.name(Some(crate::store::attempt::Mark {
        frames: 1,
        first: 1,
        tries: 1,
    }));
    suspect.suspect(true);
    desk.marks.insert("other", Arc::new(suspect));
    let seen: Arc<Mutex<Vec<Vec<&str>>>> = Arc::default();
    let (changes, looked) = (Arc::clone(&seen), paths.clone());
    desk.connection
        .update_hook(Some(move |_, _: &str, table: &str, _| {
            let working = looked.iter().filter(|(_, path)| {
                table == "dead" && Attempt::open(path).unwrap().found().is_some()
            });
            let working: Vec<&str> = working.map(|(source, _)| *source).collect();
            if !working.is_empty() {
                changes.lock().push(working);
            }
        }))
        .unwrap();
    let mut answers = Vec::new();
    let jobs = paths.iter().map(|(source, _)| {
        let (answer, reply) = sync_channel(1);
        answers.push(reply);
        let letter = crate::store::batch::DeadLetter {
            raw: (*source).to_owned(),
            ..Default::default()
        };
        let batch = Batch {
            items: vec![Item::Unopened(letter)],
            ..batch(source)
        };
        Job { batch, answer }
    });
    let jobs = jobs.collect();
    desk.serve_all(jobs);
    assert!(
        answers
            .iter()
            .all(|answer| answer.recv().unwrap().0.is_ok())
    );
    assert_eq!(*seen.lock(), [vec!["relay"], vec!["other"], vec!["third"]]);
}

#[test]
fn a_repository_is_applied_without_the_mark_of_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mark");
    let mut desk = desk();
    marked(&desk, "relay", &path);
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (changes, at) = (Arc::clone(&seen), path.clone());
    desk.connection
        .update_hook(Some(move |_, _: &str, _: &str, _| {
            changes
                .lock()
                .push(Attempt::open(&at).unwrap().found().is_some());
        }))
        .unwrap();
    let letter = Item::Unopened(crate::store::batch::DeadLetter::default());
    let fetched = Batch {
        cursor: None,
        items: vec![letter],
        ..batch("relay")
    };
    desk.transaction(&[&fetched]).unwrap();
    let seen = seen.lock();
    assert!(!seen.is_empty() && !seen.contains(&true));
}

#[test]
fn a_writer_that_has_ended_is_noted_when_the_next_batch_comes() {
    let (jobs, queue) = sync_channel(1);
    drop(queue);
    let writer = Writer {
        marks: Sources::default(),
        waiting_suspected: false,
        notes: Arc::default(),
        jobs: Some(jobs),
        thread: None,
    };
    assert_eq!(writer.writing().damage, None);
    assert!(writer.commit(batch("relay")).is_err());
    let damage = writer.writing().damage.unwrap();
    assert!(damage.contains("the writer thread has ended"), "{damage}");
}
