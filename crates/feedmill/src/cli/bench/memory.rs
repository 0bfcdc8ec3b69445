//! `bench memory`: what a timeline entry costs, all in, and a world of public size.
//!
//! Each part is measured as resident memory of this process, before and after
//! that part is added: records; then readers with their lists and rings. The
//! world is arithmetic on these parts, and every term of it is printed.
//!
//! A timeline's entry is charged with all that its reader adds: ring and its
//! slack, follows, its places in the lists of its keys, the reader itself.
//! What would be there without any reader (records, outboxes, texts, index) is
//! charged to the world, which has a bound of its own; shared out over all
//! entries of the world it is told beside the other.

use sim::rng::Rng;
use sim::shape::Shape;

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
    /// An account with records in the window: its outbox and the text of its URIs.
    author: f64,
    /// A reader that follows nobody yet.
    reader: f64,
    /// One follow, in the reader's list and in the key's.
    follow: f64,
    /// A key that several active readers follow; one alone stands in the index.
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
    let held = resident().saturating_sub(begun) as f64;
    let before = resident();
    for (reader, follows) in (0u32..).zip(&graph.follows) {
        crowd.register(reader, follows);
    }
    crowd.settle();
    let stats = crowd.engine.stats();
    let timelines = resident().saturating_sub(before) as f64;
    // What is dropped would be used again, and then the next part would seem to cost nothing.
    let mut kept = vec![crowd];
    let author = authors(accounts, &mut kept);
    let record = (held - author * accounts as f64) / (records - accounts as f64);
    let (reader, follow, key) = lists(scale, &mut kept);
    drop((kept, graph));
    let parts = Parts {
        record,
        author: author - record,
        reader,
        follow,
        key,
    };
    let mut report = Report {
        workload: format!(
            "{accounts} readers of the public shape with {} entries, cap {ITEMS_MAX}; {records} records; resident memory",
            stats.entries
        ),
        ..Report::default()
    };
    let entry = timelines / stats.entries as f64;
    report.figure("bytes_per_entry", entry);
    report.at_most("bytes per timeline entry, all in", entry, 6.0);
    world(&mut report, &parts);
    let crowd = (timelines + held) / stats.entries as f64;
    report.figure("crowd_bytes_per_entry", crowd);
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
    report.notes.push(
        "bytes_per_entry is all that readers add (rings, follows, lists, themselves); crowd_bytes_per_entry is the measured crowd with its records, which have few followers each; world_bytes_per_entry is the whole world over its entries".into(),
    );
    match redis::bytes_per_entry(ITEMS_MAX)? {
        Some(redis) => {
            report.figure("redis_bytes_per_entry", redis);
            report.ratio("redis_vs_ours", redis / entry);
        }
        None => report.notes.push(redis::MISSING.into()),
    }
    Ok(report)
}

/// Bytes of an account with one record: what the first costs.
fn authors(accounts: usize, kept: &mut Vec<Crowd>) -> f64 {
    let begun = resident();
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    for author in 0..accounts as u32 {
        crowd.post(author);
    }
    kept.push(crowd);
    resident().saturating_sub(begun) as f64 / accounts as f64
}

/// Bytes of a reader without follows, of a follow, of a key that several follow.
fn lists(scale: f64, kept: &mut Vec<Crowd>) -> (f64, f64, f64) {
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
    // All follow one; then every key has some two of them.
    let (bare, _) = grown(1, 1);
    let (own, _) = grown(4, keys * 2);
    let reader = bare / f64::from(readers) - follow;
    let more = own - bare - follow * 3.0 * f64::from(readers);
    (reader, follow, (more / f64::from(keys * 2)).max(0.0))
}

/// Accounts, readers and records of a network of public size.
const WORLD_ACCOUNTS: f64 = 40e6;
const WORLD_FOLLOWS: f64 = 2.4e9;
const WORLD_READERS: f64 = 5e6;
const WORLD_RECORDS: f64 = 13e6;
/// An account's place in the index: 4 bytes for the reader, 4 for the key, 8 for the outbox.
const ACCOUNT_BYTES: f64 = 16.0;

/// Of all accounts, the share with a record in the window, and the share that several active readers follow.
fn shares() -> (f64, f64) {
    let shape = Shape::draw(&Rng::new(1), 400_000);
    let accounts = shape.places.len() as f64;
    let writes: f64 = shape.places.iter().map(|place| place.writes).sum();
    let followers: f64 = shape
        .places
        .iter()
        .map(|place| f64::from(place.followers))
        .sum();
    let records = WORLD_RECORDS / WORLD_ACCOUNTS * accounts / writes;
    let active =
        WORLD_FOLLOWS / WORLD_ACCOUNTS * accounts / followers * WORLD_READERS / WORLD_ACCOUNTS;
    let (mut authors, mut several) = (0.0, 0.0);
    for place in &shape.places {
        // Poisson: none is e^-m, one is m e^-m.
        authors += 1.0 - (-place.writes * records).exp();
        let mean = f64::from(place.followers) * active;
        several += 1.0 - (-mean).exp() * (1.0 + mean);
    }
    (authors / accounts, several / accounts)
}

/// 40 M accounts, 2.4 B follows, 5 M active readers.
fn world(report: &mut Report, parts: &Parts) {
    let (authors, several) = shares();
    let follows = WORLD_FOLLOWS / WORLD_ACCOUNTS * WORLD_READERS;
    let ring = (ITEMS_MAX.next_multiple_of(8) * 4) as f64;
    let terms = [
        ("accounts", WORLD_ACCOUNTS * ACCOUNT_BYTES),
        ("keys", WORLD_ACCOUNTS * several * parts.key),
        ("authors", WORLD_ACCOUNTS * authors * parts.author),
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
    report.figure("author_bytes", parts.author);
    report.figure("reader_bytes", parts.reader);
    report.figure("follow_bytes", parts.follow);
    report.figure("key_bytes", parts.key);
    report.figure("world_gib", total / GIB);
    report.at_most(
        "GiB of a world of public size, timelines of 500",
        total / GIB,
        24.0,
    );
    report.notes.push(format!(
        "world: 40 M accounts, of which {:.0} % have records among 13 M in the window and {:.0} % have several active readers; 5 M active readers with 60 follows and 500 entries each; an account's index is 16 bytes by the layout",
        authors * 100.0,
        several * 100.0
    ));
    let entries = WORLD_READERS * ITEMS_MAX as f64;
    report.figure("world_bytes_per_entry", total / entries);
}
