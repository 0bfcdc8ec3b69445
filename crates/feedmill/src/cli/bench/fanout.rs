//! `bench fanout`: pushes into capped timelines, beside Redis and SQL; and one
//! post to 31 million timelines.
//!
//! Posts are handed over in batches as the drawer hands them over, with the
//! background work between them. A shared machine disturbs; so the posts are
//! measured in rounds, the best round is the figure, and the mean stands beside it.

use sim::rng::Rng;
use timeline::Settings;

use super::crowd::{Crowd, Draft, Graph, settings};
use super::meter::{available, cpu_s};
use super::{Ending, Report, redis, scaled, sql};
use crate::fanout::{TOGETHER_MAX, WORK};

/// Entries of a timeline.
const ITEMS_MAX: usize = 200;
/// Neighbours of a shared machine disturb for seconds at a time; a round takes a fifth of one.
const ROUNDS: usize = 30;
/// Followers of the most followed account of the public network.
pub(super) const GIANT: u32 = 31_000_000;
/// The giant's key; its readers come behind it.
pub(super) const GIANT_KEY: u32 = 7;
/// Left to everybody else: where nothing is swapped, somebody would be killed.
const SPARE_BYTES: usize = 5 << 29;
/// Readers of the giant at least; these fit anywhere.
const GIANT_READERS_MIN: u32 = 1_000;
/// What one reader of the giant needs, ring and lists included, when its ring is full.
const GIANT_BYTES: usize = 520;

/// Pushes into full timelines of a million active readers, beside Redis and SQL.
pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let readers = scaled(1_000_000, scale);
    let graph = Graph::draw(readers);
    let mut crowd = Crowd::new(settings(ITEMS_MAX));
    for (reader, follows) in (0u32..).zip(&graph.follows) {
        crowd.register(reader, follows);
    }
    crowd.settle();
    let mut rng = Rng::new(99);
    let mut authors = |count: usize| -> Vec<u32> {
        (0..count)
            .filter_map(|_| graph.writers.spin(&mut rng))
            .map(|author| author as u32)
            .collect()
    };
    // Filled first: a ring that grows takes fresh memory, and one that is full lets its oldest go.
    for some in authors(scaled(12_000_000, scale)).chunks(TOGETHER_MAX) {
        let drafts: Vec<Draft> = some.iter().map(|author| crowd.draft(*author)).collect();
        crowd.publish_all(&drafts);
        crowd.engine.step(crowd.now_us, 65_536);
    }
    crowd.finish_fanouts();
    let began = crowd.engine.stats();
    let mut rounds = Rounds::default();
    let posts = scaled(100_000, scale);
    for _ in 0..ROUNDS {
        let drafts: Vec<Draft> = authors(posts)
            .into_iter()
            .map(|author| crowd.draft(author))
            .collect();
        rounds.measure(&mut crowd, &drafts);
    }
    let ended = crowd.engine.stats();
    let mut report = Report {
        workload: format!(
            "{readers} active readers, {ROUNDS} rounds of {posts} posts, cap {ITEMS_MAX}; {}",
            graph.marginals
        ),
        ..Report::default()
    };
    rounds.tell(&mut report);
    let pulled = (ended.pulled - began.pulled) as f64;
    report.figure("deliveries_left_to_pull", pulled);
    report.figure("deliveries_satisfied", rounds.pushes + pulled);
    report.figure("entries", ended.entries as f64);
    drop((crowd, graph));
    baselines(&mut report, rounds.best)?;
    giant(&mut report, scale);
    Ok(report)
}

/// Pushes, and the processor time they took.
#[derive(Debug, Default)]
struct Rounds {
    best: f64,
    pushes: f64,
    posts: usize,
    spent_s: f64,
}

impl Rounds {
    fn measure(&mut self, crowd: &mut Crowd, drafts: &[Draft]) {
        let (before, start) = (crowd.engine.stats().pushes, cpu_s());
        for some in drafts.chunks(TOGETHER_MAX) {
            crowd.publish_all(some);
            crowd.engine.step(crowd.now_us, WORK);
        }
        crowd.finish_fanouts();
        let spent_s = cpu_s() - start;
        let pushes = (crowd.engine.stats().pushes - before) as f64;
        self.best = self.best.max(pushes / spent_s);
        self.pushes += pushes;
        self.posts += drafts.len();
        self.spent_s += spent_s;
    }

    fn tell(&self, report: &mut Report) {
        report.figure("pushes_per_cpu_s", self.best);
        report.figure("mean_pushes_per_cpu_s", self.pushes / self.spent_s);
        report.figure("pushes", self.pushes);
        report.figure("pushes_per_post", self.pushes / self.posts as f64);
        report.at_least("pushes per CPU-second", self.best, 20e6);
        report
            .notes
            .push("pushes_per_cpu_s is the best round; all that a post needs is counted, not only its pushes".into());
    }
}

/// The same pushes as rows of SQL and as Redis sorted sets.
fn baselines(report: &mut Report, per_cpu_s: f64) -> Result<(), Ending> {
    let sql = sql::pushes_per_cpu_s()?;
    report.figure("sql_pushes_per_cpu_s", sql);
    report.ratio("vs_sql", per_cpu_s / sql);
    report.at_least("times the SQL of seed 000", per_cpu_s / sql, 500.0);
    match redis::pushes_per_cpu_s(20_000, 400_000, ITEMS_MAX)? {
        Some(redis) => {
            report.figure("redis_pushes_per_cpu_s", redis);
            report.ratio("vs_redis", per_cpu_s / redis);
            report.at_least("times Redis", per_cpu_s / redis, 50.0);
        }
        None => report.notes.push(redis::MISSING.into()),
    }
    Ok(())
}

/// An engine in which very many readers follow one key, pushing forced.
pub(super) fn giant_crowd(readers: u32) -> Crowd {
    let mut crowd = Crowd::new(Settings {
        pull_above: usize::MAX,
        ..settings(64)
    });
    for reader in 0..readers {
        crowd.register(reader + 100, &[GIANT_KEY]);
    }
    crowd.settle();
    crowd
}

/// How many of the giant's readers fit into memory, if one needs `bytes`.
pub(super) fn giant_readers(scale: f64, bytes: usize, report: &mut Report) -> u32 {
    let wanted = scaled(GIANT as usize, scale) as u32;
    let fit = (available().saturating_sub(SPARE_BYTES) / bytes) as u32;
    if fit < wanted {
        report.notes.push(format!(
            "memory for {fit} of {wanted} timelines; what is measured with these is told for 31 million"
        ));
    }
    fit.min(wanted).max(GIANT_READERS_MIN)
}

/// One post to 31 million timelines, with pushing forced.
fn giant(report: &mut Report, scale: f64) {
    let readers = giant_readers(scale, GIANT_BYTES, report);
    let mut crowd = giant_crowd(readers);
    let mut costs = Vec::new();
    for post in 0..96 {
        let draft = crowd.draft_at_once(GIANT_KEY);
        let start = cpu_s();
        crowd.publish(&draft);
        crowd.finish_fanouts();
        if post >= 80 {
            costs.push(cpu_s() - start); // rings are full by now
        }
    }
    let share = f64::from(GIANT) / f64::from(readers);
    let mean = costs.iter().sum::<f64>() / costs.len() as f64;
    let worst = costs.iter().copied().fold(0.0, f64::max);
    report.figure("giant_readers", f64::from(readers));
    report.figure("giant_cpu_s", mean * share);
    report.figure("giant_worst_cpu_s", worst * share);
    report.at_most(
        "CPU-seconds of one post to 31 M timelines, the worst of 16",
        worst * share,
        1.0,
    );
}
