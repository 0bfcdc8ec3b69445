//! The write-ahead logs of all files have a size limit.

use std::time::{Duration, Instant};

use feedmill::branch::{self, Step};
use feedmill::config::Config;
use feedmill::labels::{Label, Labels};
use feedmill::search::{SearchBranch, SearchIndex};
use rusqlite::Connection;

use crate::bed::PATIENCE;
use crate::desk::{ALICE, Desk};

const MIB: u64 = 1 << 20;

#[test]
fn a_write_ahead_log_above_its_limit_is_cut_back_as_soon_as_readers_allow_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.db");
    let desk = Desk::of(
        Config::parse(&format!(
            "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
             [store]\nurl = \"sqlite://{}\"\nwal_mib_max = 1\n",
            file.display()
        ))
        .unwrap(),
    );
    let wal = || {
        std::fs::metadata(file.with_extension("db-wal"))
            .unwrap()
            .len()
    };
    let reader = Connection::open(&file).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM record")
        .unwrap();
    let body = format!(
        r#"{{"text": "{}", "createdAt": "2026-01-01T00:00:00Z"}}"#,
        "x".repeat(100_000)
    );
    let mut written = 0;
    while wal() < 3 * MIB {
        desk.put(ALICE, "post", &format!("p{written}"), &body);
        written += 1;
        assert!(written < 1000, "the log does not grow");
    }
    // A reader's snapshot is never taken from it.
    let seen: i64 = reader
        .query_row("SELECT count(*) FROM record", [], |row| row.get(0))
        .unwrap();
    assert_eq!(seen, 0);
    reader.execute_batch("ROLLBACK").unwrap();
    let begun = Instant::now();
    while wal() > MIB {
        assert!(begun.elapsed() < PATIENCE, "{} bytes", wal());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Without readers it never grows far beyond the limit.
    for more in 0..40 {
        desk.put(ALICE, "post", &format!("m{more}"), &body);
        assert!(wal() <= 2 * MIB, "{} bytes", wal());
    }
    assert_eq!(
        desk.store.counts().unwrap().records,
        [("com.example.post".to_owned(), written + 40)]
    );
}

/// The write-ahead log of a file beside the store, and what holds it fast.
struct Beside {
    file: std::path::PathBuf,
}

impl Beside {
    fn of(folder: &tempfile::TempDir, name: &str) -> Self {
        let file = folder.path().join(format!("feedmill.{name}.db"));
        Self { file }
    }

    fn bytes(&self) -> u64 {
        let wal = feedmill::file::with_ending(&self.file, "-wal");
        std::fs::metadata(wal).map_or(0, |file| file.len())
    }

    /// A reader in whose snapshot there is nothing new.
    fn reader(&self) -> Connection {
        let reader = Connection::open(&self.file).unwrap();
        let look = "BEGIN; SELECT count(*) FROM sqlite_schema";
        reader.execute_batch(look).unwrap();
        reader
    }
}

fn searchable(folder: &tempfile::TempDir) -> Config {
    let text = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         searchable = [\"text\"]\n[labels]\nsource = [{{ did = \"did:web:labeler.test\" }}]\n\
         [store]\nurl = \"sqlite://{}\"\nwal_mib_max = 1\n",
        folder.path().join("feedmill.db").display()
    );
    Config::parse(&text).unwrap()
}

#[test]
fn the_log_of_the_search_index_is_cut_back_too_also_while_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let config = searchable(&folder);
    let index = SearchIndex::open(&config).unwrap().unwrap();
    let mut branch = SearchBranch::new(index);
    let desk = Desk::of(config);
    let wal = Beside::of(&folder, "search");
    let mut draw = || while branch::step(&mut branch, &*desk.store).unwrap() == Step::More {};
    draw();
    let reader = wal.reader();
    let mut written = 0;
    while wal.bytes() < 2 * MIB {
        let words: Vec<String> = (0..2000).map(|word| format!("w{written}x{word}")).collect();
        let body = format!("{{\"text\":\"{}\"}}", words.join(" "));
        desk.put(ALICE, "post", &format!("p{written}"), &body);
        draw();
        written += 1;
        assert!(written < 1000, "the log does not grow");
    }
    reader.execute_batch("ROLLBACK").unwrap();
    draw();
    assert!(wal.bytes() <= MIB, "{} bytes", wal.bytes());
}

#[test]
fn the_log_of_labels_is_cut_back_too() {
    let folder = tempfile::tempdir().unwrap();
    let labels = Labels::open(&searchable(&folder)).unwrap().unwrap();
    let wal = Beside::of(&folder, "labels");
    let mut seq = 0;
    let mut keep = || {
        seq += 1;
        let label = |number: i64| Label {
            uri: format!("at://did:web:a.test/com.example.post/{seq}-{number}"),
            cid: None,
            word: "spam".into(),
            negated: false,
            made_us: 1,
            ends_us: None,
            json: "x".repeat(2000),
        };
        let said: Vec<Label> = (0..100).map(label).collect();
        labels.keep("did:web:labeler.test", seq, &said).unwrap();
    };
    keep();
    let reader = wal.reader();
    while wal.bytes() < 2 * MIB {
        keep();
    }
    reader.execute_batch("ROLLBACK").unwrap();
    for _ in 0..20 {
        keep();
    }
    assert!(wal.bytes() <= 2 * MIB, "{} bytes", wal.bytes());
}
