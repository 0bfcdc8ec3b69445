//! What a first page of 50 costs: for a reader who follows 40 authors that post often, and for one
//! who follows 200 of very many. `cargo run --release -p store --example page_cost [records]`
//!
//! Prints CPU-microseconds for each page, bodies included, after pages that warm the cache.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use decide::batch::{Batch, Commit, Event, Op, Put, Verdict};
use decide::derived::Derived;
use decide::ids::{FollowId, IndexId, Rev};
use decide::rules::Rules;
use store::apply::apply;
use store::page::budget::Budget;
use store::page::feed::{Feed, FeedQuery, Target, feed};
use store::page::filter::Filter;
use store::port::Store;
use store::sqlite::Sqlite;

const POSTS: IndexId = IndexId(1);
const FOLLOWS: FollowId = FollowId(1);
const LIMIT: usize = 50;
const PAGES: u32 = 400;
const BATCH: usize = 5_000;

fn did(author: usize) -> String {
    format!("did:plc:{author:024}")
}

fn event(
    rev: usize,
    did: String,
    collection: &str,
    time_us: i64,
    derived: Derived,
) -> (i64, Event) {
    let body = format!(
        "{{\"text\":\"{}\",\"createdAt\":\"2026-01-01T00:00:00Z\"}}",
        "x".repeat(120)
    );
    let put = Put {
        cid: Some(vec![1; 36]),
        body,
        time_us: Some(time_us),
        seen_us: None,
        links: Vec::new(),
        derived,
        needs: Vec::new(),
        linked: None,
        satisfies: Vec::new(),
    };
    let op = Op {
        collection: collection.into(),
        rkey: format!("{rev:013}"),
        verdict: Verdict::Put(Box::new(put)),
    };
    let commit = Commit {
        did,
        rev: Rev(rev as u64),
        chain: None,
        filtered: 0,
        ops: vec![op],
        frame: Vec::new(),
        live: true,
    };
    (rev as i64, Event::Commit(commit))
}

/// CPU-nanoseconds of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn measure(name: &str, store: &dyn Store, reader: &str) {
    let timeline = Feed {
        targets: vec![Target {
            index: POSTS,
            collection: "x.post".into(),
            cap: None,
        }],
        follows: vec![FOLLOWS],
        ..Feed::default()
    };
    let filter = Filter::default();
    let page = || {
        let query = FeedQuery {
            feed: &timeline,
            reader,
            before: None,
            filter: &filter,
            budget: Budget::of(LIMIT),
        };
        feed(&*store.snapshot().unwrap(), &query).unwrap()
    };
    for _ in 0..20 {
        assert_eq!(page().rows.len(), LIMIT);
    }
    let start = cpu_ns();
    for _ in 0..PAGES {
        page();
    }
    let us = (cpu_ns() - start) as f64 / 1e3 / f64::from(PAGES);
    println!("{name}: {us:.0} CPU-microseconds a page");
}

/// Writes the records, and the follows of two readers.
fn fill(store: &Sqlite, records: usize, authors: usize) {
    let rules = Rules {
        parked_max: 1_000,
        ..Rules::default()
    };
    let mut events = Vec::new();
    let mut number = 0;
    let mut add =
        |number: &mut usize, did: String, collection: &str, derived: Derived, flush: bool| {
            *number += 1;
            events.push(event(
                *number,
                did,
                collection,
                1_000_000 + *number as i64 * 20,
                derived,
            ));
            if events.len() == BATCH || flush {
                let batch = Batch {
                    source: "s".into(),
                    cursor: Some(*number as i64),
                    now_us: i64::MAX / 2,
                    events: std::mem::take(&mut events),
                    orders: Vec::new(),
                };
                apply(store, &rules, &batch).unwrap();
            }
        };
    // The first 40 authors write every twentieth record.
    let mut random = 88_172_645_463_325_252u64;
    for at in 0..records {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let author = match at % 20 {
            0 => random as usize % 40,
            _ => 40 + random as usize % authors,
        };
        let derived = Derived {
            entries: vec![(POSTS, vec![did(author)])],
            ..Derived::default()
        };
        add(&mut number, did(author), "x.post", derived, false);
    }
    let readers = [("did:web:store.test", 40), ("did:web:sparse.test", 200)];
    for (reader, follows) in readers {
        for at in 0..follows {
            let author = match follows {
                40 => at,
                _ => 40 + at * (authors / follows),
            };
            let derived = Derived {
                follows: vec![(FOLLOWS, did(author))],
                ..Derived::default()
            };
            add(
                &mut number,
                reader.into(),
                "x.follow",
                derived,
                at + 1 == follows,
            );
        }
    }
}

fn main() {
    let records: usize = std::env::args()
        .nth(1)
        .map_or(400_000, |n| n.parse().unwrap());
    let authors = records / 2;
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db")).unwrap();
    fill(&store, records, authors);
    println!("{records} records of {authors} authors");
    measure("store, follows 40", &store, "did:web:store.test");
    measure("sparse, follows 200", &store, "did:web:sparse.test");
}
