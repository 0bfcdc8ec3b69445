//! What is counted for a window is what it takes.
//!
//! One test, in a process of its own: memory that another test freed would be used again, and the
//! kernel would see nothing grow.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod posts;

use posts::{post, world};
use timeline::Settings;

/// Memory of this process that is in use, from the kernel.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let kib = line
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap();
    kib.parse::<usize>().unwrap() * 1024
}

#[test]
fn what_is_counted_for_a_window_is_what_it_takes() {
    let records = if cfg!(debug_assertions) {
        30_000
    } else {
        1_000_000
    };
    let mut engines = Vec::new();
    for per_author in [200, 20, 2] {
        let authors = records / per_author;
        let mut engine = world(Settings::default());
        post(&mut engine, 0..1, 1);
        let (before, empty) = (resident_bytes(), engine.stats().window_bytes);
        post(&mut engine, 1..records, authors);
        let taken = resident_bytes() - before;
        let counted = engine.stats().window_bytes - empty;
        println!(
            "{per_author} per author: {} bytes a record, counted {}",
            taken as u64 / records,
            counted as u64 / records
        );
        // Where blocks are short, most of their memory is what the allocator adds to each.
        let least = if cfg!(debug_assertions) { 5 } else { 9 };
        assert!(counted * 10 >= taken * least, "{counted} of {taken}");
        assert!(counted * 4 <= taken * 5, "{counted} of {taken}");
        engines.push(engine);
    }
}
