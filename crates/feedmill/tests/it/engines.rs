//! Which files know the database.
//!
//! In:    every Rust file of the crates' sources.
//! Out:   those that name `rusqlite` and are no SQLite engine.
//! Never: an exception that nothing needs any more: the list only shrinks.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the SQLite engines of store, log, search and labels, and the baselines of benches.
const ENGINES: &[&str] = &[
    "feedmill/src/store/sqlite/",
    "feedmill/src/search/",
    "feedmill/src/labels/",
    "feedmill/src/cli/bench/",
    "replicate/src/sqlite/",
    "store/src/sqlite/",
];

/// Files that name the database today and should not.
const TODAY: &[&str] = &[
    "feedmill/src/backup.rs",
    "feedmill/src/effort.rs",
    "feedmill/src/file.rs",
    "feedmill/src/store/budget.rs",
    "feedmill/src/wal.rs",
    "replicate/src/effort.rs",
    "replicate/src/streams/append.rs",
    "replicate/src/streams/mod.rs",
    "replicate/src/streams/reply.rs",
    "replicate/src/streams/stream.rs",
];

/// Every Rust file below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn only_engines_name_the_database() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = crates.canonicalize().unwrap();
    let mut naming: Vec<String> = Vec::new();
    for member in fs::read_dir(&crates).unwrap() {
        let source = member.unwrap().path().join("src");
        for path in rust_files(&source) {
            let name = path.strip_prefix(&crates).unwrap();
            let name = name.display().to_string();
            let is_engine = ENGINES.iter().any(|folder| name.starts_with(folder));
            if !is_engine && fs::read_to_string(&path).unwrap().contains("rusqlite") {
                naming.push(name);
            }
        }
    }
    naming.sort();
    assert_eq!(
        naming, TODAY,
        "left: files that name the database outside of its engines; right: those that may today"
    );
}
