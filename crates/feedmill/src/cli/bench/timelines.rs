//! Benches of timelines in memory: `coldstart`, `delete`, `growth`.

use std::hint::black_box;

use sim::rng::Rng;
use timeline::{Cold, KeyId, KeyList, Read, RecordId, Settings};

use super::crowd::{Crowd, Draft, settings};
use super::folder::Folder;
use super::meter::{cpu_s, middle};
use super::sql::{self, Posts};
use super::{Ending, Report, scaled};
use crate::fanout::TOGETHER_MAX;

/// Entries of a timeline.
const ITEMS_MAX: usize = 200;

/// An account for a place in [0, 1): a few write most.
fn author_at(place: f64, accounts: u32) -> u32 {
    let place = place.powi(3) * f64::from(accounts);
    (place as u64 * 40_503 % u64::from(accounts)) as u32
}

/// Records by many authors, and nobody who reads.
fn authors_only(accounts: u32, records: usize) -> Crowd {
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    let mut rng = Rng::new(3);
    for _ in 0..records {
        crowd.post(author_at(rng.unit(), accounts));
    }
    crowd
}

const ACCOUNTS: u32 = 1_000_000;
/// Follows of a reader, microseconds its first page may take, readers measured.
const COLD: [(u32, f64, u32); 4] = [
    (200, 100.0, 4_000),
    (1_000, 100.0, 2_000),
    (5_000, 200.0, 800),
    (300_000, 200.0, 400),
];

/// The first page of readers that were never seen, beside seed 002's join.
pub(super) fn coldstart(scale: f64) -> Result<Report, Ending> {
    let records = scaled(2_000_000, scale);
    let crowd = authors_only(ACCOUNTS, records);
    let mut report = Report {
        workload: format!(
            "{records} records by {ACCOUNTS} accounts in memory; follows drawn evenly; mean of all readers"
        ),
        ..Report::default()
    };
    let mut largest = 0f64;
    for (follows, bound, readers) in COLD {
        let (mean_us, below) = first_pages(&crowd, follows, readers);
        largest = largest.max(mean_us);
        report.figure(&format!("follows_{follows}_us"), mean_us);
        report.at_most("CPU-microseconds of a first page", mean_us, bound);
        if below > 0 {
            report.notes.push(format!(
                "{below} of {readers} readers of {follows} needed the store"
            ));
        }
    }
    report.figure("max_us", largest);
    drop(crowd);
    let folder = Folder::new("coldstart")?;
    joins(&folder, records, &mut report)?;
    Ok(report)
}

/// Mean microseconds of a first page, and how many pages the engine left to the store.
fn first_pages(crowd: &Crowd, follows: u32, readers: u32) -> (f64, u32) {
    let mut rng = Rng::new(u64::from(follows));
    let lists: Vec<KeyList> = (0..readers)
        .map(|_| KeyList::new((0..follows).map(|_| KeyId(rng.below(u64::from(ACCOUNTS)) as u32))))
        .collect();
    let mut below = 0;
    let start = cpu_s();
    for list in &lists {
        let cold = Cold {
            follows: list,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        let read = black_box(crowd.engine.read_cold(&crowd.request(1), &cold));
        below += u32::from(!matches!(read, Read::Page(_)));
    }
    ((cpu_s() - start) * 1e6 / f64::from(readers), below)
}

/// Seed 002's join for the same pages, and what it costs to load the follows.
fn joins(folder: &std::path::Path, records: usize, report: &mut Report) -> Result<(), Ending> {
    const PAGES: u32 = 10;
    let mut posts = Posts::create(&folder.join("baseline.db"))?;
    let mut rng = Rng::new(3);
    for id in 1..=records as i64 {
        posts.add(id, author_at(rng.unit(), ACCOUNTS), id * 20_000)?;
    }
    for (reader, (follows, ..)) in (0u32..).zip(COLD) {
        let mut rng = Rng::new(u64::from(follows));
        let followed = (0..follows).map(|_| rng.below(u64::from(ACCOUNTS)) as u32);
        posts.follow_each(reader, followed)?;
    }
    posts.ready()?;
    for (reader, (follows, ..)) in (0u32..).zip(COLD) {
        let start = cpu_s();
        for _ in 0..PAGES {
            black_box(posts.page(reader, None, 50)?);
        }
        let join_us = (cpu_s() - start) * 1e6 / f64::from(PAGES);
        let start = cpu_s();
        for _ in 0..PAGES {
            let keys = posts.followed(reader)?.into_iter().map(KeyId);
            black_box(KeyList::new(keys));
        }
        let load_us = (cpu_s() - start) * 1e6 / f64::from(PAGES);
        report.figure(&format!("join_{follows}_us"), join_us);
        report.figure(&format!("load_follows_{follows}_us"), load_us);
    }
    Ok(())
}

/// Delete of records in very many timelines, and unfollow.
pub(super) fn delete(scale: f64) -> Result<Report, Ending> {
    let readers = scaled(1_000_000, scale) as u32;
    let mut crowd = Crowd::new(Settings {
        pull_above: usize::MAX,
        ..settings(64)
    });
    for reader in 0..readers {
        crowd.register(reader + 100, &[7]);
    }
    for _ in 0..60 {
        crowd.post(7);
    }
    crowd.settle();
    // All of them take ten microseconds; one interrupt among them would take more.
    let deleted: Vec<u64> = (1..=50).collect();
    let delete_us = middle(deleted.chunks(5).map(|some| {
        let start = cpu_s();
        for &id in some {
            black_box(crowd.engine.remove(RecordId(id)));
            crowd.engine.end();
        }
        (cpu_s() - start) * 1e6 / some.len() as f64
    }));
    let count = readers.min(20_000);
    let start = cpu_s();
    for reader in 0..count {
        crowd.engine.begin(u64::from(reader) + 1);
        crowd.engine.unfollow(0, KeyId(reader + 100), KeyId(7));
        crowd.engine.end();
    }
    let unfollow_us = (cpu_s() - start) * 1e6 / f64::from(count);
    let mut report = Report {
        workload: format!(
            "records that stand in {readers} timelines each; {count} unfollows of one author"
        ),
        ..Report::default()
    };
    report.figure("delete_us", delete_us);
    report.figure("unfollow_us", unfollow_us);
    report.at_most("CPU-microseconds of a delete", delete_us, 2.0);
    report.at_most("CPU-microseconds of an unfollow", unfollow_us, 2.0);
    drop(crowd);
    let sql_us = sql::delete_us(readers)?;
    report.figure("sql_delete_us", sql_us);
    report.ratio("sql_vs_ours", sql_us / delete_us);
    Ok(report)
}

const GROWTH_READERS: u32 = 100_000;

/// A crowd whose engine holds so many records, with readers of fifty each.
struct Grown {
    crowd: Crowd,
    rng: Rng,
}

impl Grown {
    fn new(records: usize) -> Self {
        let mut crowd = authors_only(ACCOUNTS, records);
        let mut rng = Rng::new(8);
        for reader in 0..GROWTH_READERS {
            let follows: Vec<u32> = (0..50)
                .map(|_| rng.below(u64::from(ACCOUNTS)) as u32)
                .collect();
            crowd.register(ACCOUNTS + reader, &follows);
        }
        crowd.settle();
        Self { crowd, rng }
    }

    /// CPU-nanoseconds of a push.
    fn push_ns(&mut self, posts: usize) -> f64 {
        let mut author = || self.rng.below(u64::from(ACCOUNTS)) as u32;
        let drafts: Vec<Draft> = (0..posts).map(|_| self.crowd.draft(author())).collect();
        let (start, pushes) = (cpu_s(), self.crowd.engine.stats().pushes);
        for some in drafts.chunks(TOGETHER_MAX) {
            self.crowd.publish_all(some);
        }
        let pushes = self.crowd.engine.stats().pushes - pushes;
        (cpu_s() - start) * 1e9 / pushes.max(1) as f64
    }

    /// CPU-microseconds of a page.
    fn read_us(&mut self, reads: usize) -> f64 {
        let start = cpu_s();
        for _ in 0..reads {
            let reader = ACCOUNTS + self.rng.below(u64::from(GROWTH_READERS)) as u32;
            black_box(self.crowd.engine.read(&self.crowd.request(reader)));
        }
        (cpu_s() - start) * 1e6 / reads as f64
    }
}

/// Fan-out and read at one and at ten million stored records, by turns, so that both meet the
/// same machine.
pub(super) fn growth(scale: f64) -> Report {
    const TURNS: usize = 10;
    const POSTS: usize = 500_000;
    const READS: usize = 200_000;
    let mut sizes = [1_000_000, 10_000_000].map(|records| Grown::new(scaled(records, scale)));
    let mut turns = |work: &dyn Fn(&mut Grown) -> f64| -> [f64; 2] {
        let each: Vec<[f64; 2]> = (0..TURNS).map(|_| sizes.each_mut().map(work)).collect();
        [0, 1].map(|size| middle(each.iter().filter_map(|turn| turn.get(size).copied())))
    };
    let [push_small, push_large] = turns(&|size| size.push_ns(POSTS / TURNS));
    let [read_small, read_large] = turns(&|size| size.read_us(READS / TURNS));
    let mut report = Report {
        workload: format!(
            "{GROWTH_READERS} readers of 50 among {ACCOUNTS} accounts; all that a post needs is counted, not only its pushes"
        ),
        ..Report::default()
    };
    report.figure("push_ns_small", push_small);
    report.figure("push_ns_large", push_large);
    report.figure("read_us_small", read_small);
    report.figure("read_us_large", read_large);
    report.ratio("fanout", push_large / push_small);
    report.ratio("read", read_large / read_small);
    report.at_most("growth of fan-out", push_large / push_small, 1.2);
    report.at_most("growth of a read", read_large / read_small, 1.2);
    report
}
