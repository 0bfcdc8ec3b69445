//! Benches of timelines in memory: `fanout`, `coldstart`, `delete`, `growth`.

use std::hint::black_box;

use rusqlite::{Connection, params};
use sim::rng::Rng;
use timeline::{Cold, KeyId, KeyList, Read, RecordId, Settings};

use super::crowd::{Crowd, Draft, Graph, settings};
use super::meter::{cpu_s, resident};
use super::{Ending, Report, redis};

/// Entries of a timeline.
const ITEMS_MAX: usize = 200;

fn scaled(full: usize, scale: f64) -> usize {
    ((full as f64 * scale) as usize).max(1000)
}

/// Pushes into full timelines of a million active readers, beside Redis and SQL.
pub(super) fn fanout(scale: f64) -> Result<Report, Ending> {
    let readers = scaled(1_000_000, scale);
    let graph = Graph::draw(readers);
    let before = resident();
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    for (reader, follows) in (0u32..).zip(&graph.follows) {
        crowd.register(reader, follows);
    }
    crowd.settle();
    let mut rng = Rng::new(99);
    let mut authors = move |count: usize| -> Vec<u32> {
        (0..count)
            .filter_map(|_| graph.writers.spin(&mut rng))
            .map(|author| author as u32)
            .collect()
    };
    // Rings that are not full are cheaper to push to, so they are filled first.
    for author in authors(scaled(3_000_000, scale)) {
        crowd.post(author);
        while crowd.engine.stats().fanouts > 0 {
            crowd.engine.step(crowd.now_us, 65_536);
        }
    }
    let drafts: Vec<Draft> = authors(scaled(500_000, scale))
        .into_iter()
        .map(|author| crowd.draft(author))
        .collect();
    let (stats, start) = (crowd.engine.stats(), cpu_s());
    for draft in &drafts {
        crowd.publish(draft);
        crowd.engine.step(crowd.now_us, 4_096);
    }
    while crowd.engine.stats().fanouts > 0 {
        crowd.engine.step(crowd.now_us, 65_536);
    }
    let (after, spent) = (crowd.engine.stats(), cpu_s() - start);
    let pushes = (after.pushes - stats.pushes) as f64;
    let per_cpu_s = pushes / spent;
    let mut report = Report {
        workload: format!(
            "{readers} active readers, {} posts, cap {ITEMS_MAX}; {}",
            drafts.len(),
            graph.marginals
        ),
        ..Report::default()
    };
    report.figure("pushes_per_cpu_s", per_cpu_s);
    report.figure("pushes", pushes);
    report.figure(
        "deliveries_left_to_pull",
        (after.pulled - stats.pulled) as f64,
    );
    report.figure(
        "bytes_per_entry_all_in",
        (resident() - before) as f64 / after.entries.max(1) as f64,
    );
    report.at_least("pushes per CPU-second", per_cpu_s, 20e6);
    drop(crowd);
    baselines(&mut report, per_cpu_s)?;
    if scale >= 1.0 {
        giant(&mut report);
    }
    Ok(report)
}

/// The same pushes as rows of SQL and as Redis sorted sets.
fn baselines(report: &mut Report, per_cpu_s: f64) -> Result<(), Ending> {
    let sql = sql_pushes_per_cpu_s()?;
    report.figure("sql_pushes_per_cpu_s", sql);
    report.ratio("vs_sql", per_cpu_s / sql);
    report.at_least("times the SQL of seed 000", per_cpu_s / sql, 500.0);
    match redis::pushes_per_cpu_s(20_000, 400_000, ITEMS_MAX)? {
        Some(redis) => {
            report.figure("redis_pushes_per_cpu_s", redis);
            report.ratio("vs_redis", per_cpu_s / redis);
            report.at_least("times Redis", per_cpu_s / redis, 50.0);
        }
        None => report
            .notes
            .push("no redis-server on this machine: that baseline was not run".into()),
    }
    Ok(())
}

/// One post to 31 million timelines, with pushing forced.
fn giant(report: &mut Report) {
    const READERS: u32 = 31_000_000;
    let mut crowd = Crowd::new(Settings {
        pull_above: usize::MAX,
        ..settings(64)
    });
    for reader in 0..READERS {
        crowd.register(reader + 100, &[7]);
    }
    crowd.settle();
    let mut worst = 0f64;
    for post in 0..70 {
        let draft = crowd.draft(7);
        let start = cpu_s();
        crowd.publish(&draft);
        while crowd.engine.stats().fanouts > 0 {
            crowd.engine.step(crowd.now_us, 65_536);
        }
        if post >= 65 {
            worst = worst.max(cpu_s() - start); // rings are full by now
        }
    }
    report.figure("giant_cpu_s", worst);
    report.at_most("CPU-seconds of one post to 31 M timelines", worst, 1.0);
}

/// Seed 000's fan-out: one INSERT … SELECT per post into rows per delivery.
fn sql_pushes_per_cpu_s() -> Result<f64, Ending> {
    let folder = std::env::temp_dir().join(format!("feedmill-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let database = Connection::open(folder.join("baseline.db"))?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "NORMAL")?;
    database.pragma_update(None, "cache_size", -262_144)?;
    database.execute_batch(
        "CREATE TABLE follows (did TEXT NOT NULL, subject TEXT NOT NULL);
         CREATE INDEX follows_by_subject ON follows (subject);
         CREATE TABLE feed_items (actor TEXT NOT NULL, uri TEXT NOT NULL, collection TEXT NOT NULL, time_us INTEGER NOT NULL, PRIMARY KEY (actor, uri));
         CREATE INDEX feed_by_collection ON feed_items (actor, collection, time_us DESC);
         CREATE INDEX feed_by_time ON feed_items (actor, time_us DESC);
         BEGIN;",
    )?;
    let graph = Graph::draw(5_000);
    let mut edges = 0u64;
    for (reader, follows) in graph.follows.iter().enumerate() {
        for followed in follows {
            database
                .prepare_cached("INSERT INTO follows VALUES (?1, ?2)")?
                .execute([
                    format!("did:plc:{reader:024}"),
                    format!("did:plc:{followed:024}"),
                ])?;
            edges += 1;
        }
    }
    database.execute_batch("COMMIT")?;
    let mut rng = Rng::new(3);
    let (start, mut pushes) = (cpu_s(), 0usize);
    for post in 0..200i64 {
        database.execute_batch("BEGIN")?;
        for copy in 0..50i64 {
            let Some(author) = graph.writers.spin(&mut rng) else {
                continue;
            };
            let uri = format!("at://did:plc:{author:024}/app.bsky.feed.post/{post:08}{copy:05}");
            pushes += database
                .prepare_cached("INSERT OR IGNORE INTO feed_items SELECT did, ?1, 'app.bsky.feed.post', ?2 FROM follows WHERE subject = ?3")?
                .execute(params![uri, post * 50 + copy, format!("did:plc:{author:024}")])?;
        }
        database.execute_batch("COMMIT")?;
    }
    let spent = cpu_s() - start;
    drop(database);
    std::fs::remove_dir_all(&folder)?;
    if edges == 0 {
        return Err("the baseline has no follows".into());
    }
    Ok(pushes as f64 / spent)
}

/// Records by many authors, and nobody who reads.
fn authors_only(accounts: u32, records: usize) -> Crowd {
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    let mut rng = Rng::new(3);
    for _ in 0..records {
        let place = rng.unit().powi(3) * f64::from(accounts);
        crowd.post((place as u64 * 40_503 % u64::from(accounts)) as u32);
    }
    crowd
}

/// The first page of readers that were never seen.
pub(super) fn coldstart(scale: f64) -> Report {
    const ACCOUNTS: u32 = 1_000_000;
    let crowd = authors_only(ACCOUNTS, scaled(2_000_000, scale));
    let mut report = Report {
        workload: format!(
            "{} records by {ACCOUNTS} accounts in memory; follows drawn evenly; mean of many readers",
            crowd.engine.stats().records
        ),
        ..Report::default()
    };
    let mut largest = 0f64;
    for (follows, bound, readers) in [
        (200u64, 100.0, 4_000),
        (1_000, 100.0, 2_000),
        (5_000, 200.0, 800),
        (300_000, 200.0, 60),
    ] {
        let mut rng = Rng::new(follows);
        let lists: Vec<KeyList> = (0..readers)
            .map(|_| {
                KeyList::new((0..follows).map(|_| KeyId(rng.below(u64::from(ACCOUNTS)) as u32)))
            })
            .collect();
        let start = cpu_s();
        let mut below = 0;
        for list in &lists {
            let cold = Cold {
                follows: list,
                hidden: &KeyList::default(),
                as_of: 0,
            };
            let read = black_box(crowd.engine.read_cold(&crowd.request(1), &cold));
            below += usize::from(!matches!(read, Read::Page { .. }));
        }
        let mean_us = (cpu_s() - start) * 1e6 / lists.len() as f64;
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
    report
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
    // So few deletes are over before the kernel counts; wall time is an upper bound of theirs.
    let start = std::time::Instant::now();
    for id in 1..=50 {
        black_box(crowd.engine.remove(RecordId(id)));
    }
    let delete_us = start.elapsed().as_secs_f64() * 1e6 / 50.0;
    let count = readers.min(20_000);
    let start = cpu_s();
    for reader in 0..count {
        crowd.engine.begin(u64::from(reader) + 1);
        crowd.engine.unfollow(0, KeyId(reader + 100), KeyId(7));
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
    report.at_most(
        "microseconds of a delete, by the wall clock",
        delete_us,
        2.0,
    );
    report.at_most("CPU-microseconds of an unfollow", unfollow_us, 2.0);
    Ok(report)
}

/// Fan-out and read at one and at ten million stored records.
pub(super) fn growth(scale: f64) -> Report {
    const ACCOUNTS: u32 = 1_000_000;
    const READERS: u32 = 100_000;
    let mut found = Vec::new();
    for records in [scaled(1_000_000, scale), scaled(10_000_000, scale)] {
        let mut crowd = authors_only(ACCOUNTS, records);
        let mut rng = Rng::new(8);
        for reader in 0..READERS {
            let follows: Vec<u32> = (0..50)
                .map(|_| rng.below(u64::from(ACCOUNTS)) as u32)
                .collect();
            crowd.register(ACCOUNTS + reader, &follows);
        }
        crowd.settle();
        let (start, pushes) = (cpu_s(), crowd.engine.stats().pushes);
        for _ in 0..500_000 {
            crowd.post(rng.below(u64::from(ACCOUNTS)) as u32);
        }
        let push_ns =
            (cpu_s() - start) * 1e9 / (crowd.engine.stats().pushes - pushes).max(1) as f64;
        let start = cpu_s();
        for _ in 0..200_000 {
            let reader = ACCOUNTS + rng.below(u64::from(READERS)) as u32;
            black_box(crowd.engine.read(&crowd.request(reader)));
        }
        found.push((push_ns, (cpu_s() - start) * 1e6 / 200_000.0));
    }
    let mut report = Report {
        workload: format!(
            "{READERS} readers of 50 among {ACCOUNTS} accounts; posts made up included in the push"
        ),
        ..Report::default()
    };
    if let [(push_small, read_small), (push_large, read_large)] = found.as_slice() {
        report.figure("push_ns_small", *push_small);
        report.figure("push_ns_large", *push_large);
        report.figure("read_us_small", *read_small);
        report.figure("read_us_large", *read_large);
        report.ratio("fanout", push_large / push_small);
        report.ratio("read", read_large / read_small);
        report.at_most("growth of fan-out", push_large / push_small, 1.2);
        report.at_most("growth of a read", read_large / read_small, 1.2);
    }
    report
}
