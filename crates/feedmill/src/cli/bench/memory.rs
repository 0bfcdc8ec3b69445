//! `bench memory`: what a timeline entry costs, all in, and a world of public size.
//!
//! Each part is measured as resident memory of this process, before and after
//! that part is added: records; then readers with their lists and rings. The
//! world is arithmetic on these parts, and every term of it is printed.

use sim::rng::Rng;

use super::crowd::{Crowd, Graph, settings};
use super::meter::resident;
use super::{Ending, Report, redis, scaled};

/// Entries of a timeline, as seed 002 has them.
const ITEMS_MAX: usize = 500;
const ACCOUNTS: usize = 100_000;
/// Posts of each account: enough to fill the timeline of one who follows seven.
const POSTS: usize = 72;
const GIB: f64 = (1u64 << 30) as f64;

/// Bytes of each part, measured.
#[derive(Debug)]
struct Parts {
    record: f64,
    /// A reader that follows nobody yet.
    reader: f64,
    /// One follow, in the reader's list and in the key's.
    follow: f64,
    /// An account that is only an index.
    account: f64,
    /// A key that somebody active follows.
    key: f64,
}

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let accounts = scaled(ACCOUNTS, scale);
    let graph = Graph::draw(accounts);
    let begun = resident();
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    for _ in 0..POSTS {
        for author in 0..accounts as u32 {
            crowd.post(author);
        }
    }
    let records = crowd.engine.stats().records as f64;
    let record = resident().saturating_sub(begun) as f64 / records;
    let before = resident();
    for (reader, follows) in (0u32..).zip(&graph.follows) {
        crowd.register(reader, follows);
    }
    crowd.settle();
    let stats = crowd.engine.stats();
    let timelines = resident().saturating_sub(before) as f64;
    let entry = timelines / stats.entries as f64;
    // What is dropped would be used again, and then the next part would seem to cost nothing.
    let mut kept = vec![crowd];
    let (reader, follow, account, key) = lists(scale, &mut kept);
    drop((kept, graph));
    let parts = Parts {
        record,
        reader,
        follow,
        account,
        key,
    };
    let mut report = Report {
        workload: format!(
            "{accounts} readers of the public shape with {} entries, cap {ITEMS_MAX}; {records} records; resident memory",
            stats.entries
        ),
        ..Report::default()
    };
    report.figure("bytes_per_entry", entry);
    report.figure(
        "entries_per_timeline",
        stats.entries as f64 / stats.rings as f64,
    );
    report.figure(
        "bytes_counted_by_engine",
        stats.reader_bytes as f64 / stats.entries as f64,
    );
    report.figure(
        "follows_per_reader",
        stats.edges as f64 / stats.readers as f64,
    );
    report.at_most("bytes per timeline entry, all in", entry, 6.0);
    world(&mut report, &parts);
    match redis::bytes_per_entry(ITEMS_MAX)? {
        Some(redis) => {
            report.figure("redis_bytes_per_entry", redis);
            report.ratio("redis_vs_ours", redis / entry);
        }
        None => report.notes.push(redis::MISSING.into()),
    }
    Ok(report)
}

/// Bytes of a reader without follows, of a follow, of an account, of a followed key.
fn lists(scale: f64, kept: &mut Vec<Crowd>) -> (f64, f64, f64, f64) {
    let readers = scaled(200_000, scale) as u32;
    let keys = readers;
    let mut grown = |follows: u32, spread: u32| {
        let begun = resident();
        let mut crowd = Crowd::new(settings(ITEMS_MAX));
        let mut rng = Rng::new(5);
        for reader in 0..readers {
            let list: Vec<u32> = (0..follows)
                .map(|_| keys + rng.below(u64::from(spread)) as u32)
                .collect();
            crowd.register(reader, &list);
        }
        crowd.settle();
        let edges = crowd.engine.stats().edges as f64;
        kept.push(crowd);
        (resident().saturating_sub(begun) as f64, edges)
    };
    // The same keys with twice the follows: what is more is follows alone.
    let (once, once_edges) = grown(40, keys);
    let (twice, twice_edges) = grown(80, keys);
    let follow = (twice - once) / (twice_edges - once_edges);
    // Nobody followed, then one key for each reader.
    let (bare, _) = grown(1, 1);
    let (own, _) = grown(1, keys);
    let reader = bare / f64::from(readers) - follow;
    let followed = f64::from(keys) * (1.0 - (-1.0f64).exp());
    // An index costs 4 bytes for the reader's slot, 8 for the key, 8 for the outbox.
    let account = 20.0;
    (reader, follow, account, ((own - bare) / followed).max(0.0))
}

/// 40 M accounts, 2.4 B follows, 5 M active readers.
fn world(report: &mut Report, parts: &Parts) {
    const WORLD_ACCOUNTS: f64 = 40e6;
    const WORLD_FOLLOWS: f64 = 2.4e9;
    const WORLD_READERS: f64 = 5e6;
    const WORLD_RECORDS: f64 = 13e6;
    let follows = WORLD_FOLLOWS / WORLD_ACCOUNTS * WORLD_READERS;
    // In the entry's measured bytes readers and lists are included; here they are their own terms.
    let ring = (ITEMS_MAX.next_multiple_of(8) * 4) as f64;
    let terms = [
        ("accounts", WORLD_ACCOUNTS * parts.account),
        ("keys", WORLD_ACCOUNTS * parts.key),
        ("readers", WORLD_READERS * parts.reader),
        ("follows", follows * parts.follow),
        ("rings", WORLD_READERS * ring),
        ("records", WORLD_RECORDS * parts.record),
    ];
    let total: f64 = terms.iter().map(|(_, bytes)| bytes).sum();
    for (name, bytes) in terms {
        report.figure(&format!("world_{name}_gib"), bytes / GIB);
    }
    report.figure("record_bytes", parts.record);
    report.figure("reader_bytes", parts.reader);
    report.figure("follow_bytes", parts.follow);
    report.figure("key_bytes", parts.key);
    report.figure("world_gib", total / GIB);
    report.at_most(
        "GiB of a world of public size, timelines of 500",
        total / GIB,
        24.0,
    );
    report.notes.push(
        "world: 40 M accounts, all followed by somebody active; 5 M active readers with 60 follows and 500 entries each; 13 M records in the window; an account's index is 20 bytes by the layout".into(),
    );
}
