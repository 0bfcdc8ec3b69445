//! The store's write-ahead log has a size limit.

use std::time::{Duration, Instant};

use feedmill::config::Config;
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
