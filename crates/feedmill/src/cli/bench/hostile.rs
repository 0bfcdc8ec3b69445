//! `bench hostile`: orders that one author chooses, beside the friendly order of the same.
//!
//! The same records of one thing are stored oldest first and newest first, each as a transaction of
//! its own and in parts, and the same follows are changed by a reader who has each once and one who has
//! each twice. The friendly order is the baseline, run by turns with the hostile one.

use timeline::KeyId;

use super::crowd::{Crowd, settings};
use super::folder::Folder;
use super::meter::{cpu_s, middle, process_s};
use super::{Ending, Report, scaled};
use crate::config::Config;
use crate::store::batch::{Batch, Commit, Item, Op, Put, Verdict};
use crate::store::{self, Store};

/// Records of one thing, all within one window.
const MEMBERS: usize = 2_000;
/// Records of one transaction, where they come together.
const PART: usize = 50;
const ROUNDS: usize = 5;
/// Authors that one reader follows.
const FOLLOWS: u32 = 10_000;
/// Follows that are changed in one round.
const CHANGES: u32 = 2_000;
const READER: u32 = 1_000_000;
const BEGUN_US: i64 = 1_700_000_000_000_000;
const LINK: &str = "com.example.link";
const DID: &str = "did:plc:author";

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
[collections.link]
collection = "com.example.link"
[feeds.merged]
follow = "follow"
targets = [{ collection = "link", merge = "card", keys = ["author", "set"], union = ["set"] }]
"#;

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let members = scaled(MEMBERS, scale);
    let mut report = Report {
        workload: format!(
            "{members} records of one author about one thing, newest first and oldest first, {PART} and 1 in a transaction; \
             {CHANGES} changes of a reader's {FOLLOWS} follows, each there twice and once; {ROUNDS} rounds, middle of each"
        ),
        ..Report::default()
    };
    let parts = orders(members, PART)?;
    let singles = orders(members, 1)?;
    let worst = parts.ratio().max(singles.ratio());
    report.figure("oldest_cpu_s", parts.friendly.cpu_s);
    report.figure("newest_cpu_s", parts.hostile.cpu_s);
    report.figure("oldest_single_cpu_s", singles.friendly.cpu_s);
    report.figure("newest_single_cpu_s", singles.hostile.cpu_s);
    report.figure("newest_file_bytes", parts.hostile.file_bytes);
    report.figure("newest_single_file_bytes", singles.hostile.file_bytes);
    report.ratio("newest_vs_oldest", worst);
    report.at_most("times the cost of oldest first", worst, 2.0);
    let (single_us, doubled_us) = follows();
    report.figure("single_us", single_us);
    report.figure("doubled_us", doubled_us);
    report.ratio("doubled_vs_single", doubled_us / single_us);
    report.at_most(
        "times the cost of follows that are there once",
        doubled_us / single_us,
        2.0,
    );
    Ok(report)
}

/// What storing all records cost.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    cpu_s: f64,
    file_bytes: f64,
}

#[derive(Debug, Clone, Copy)]
struct Orders {
    friendly: Cost,
    hostile: Cost,
}

impl Orders {
    fn ratio(&self) -> f64 {
        self.hostile.cpu_s / self.friendly.cpu_s
    }
}

/// Both orders by turns.
fn orders(members: usize, part: usize) -> Result<Orders, Ending> {
    let (mut friendly, mut hostile) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        friendly.push(stored((0..members).collect(), part)?);
        hostile.push(stored((0..members).rev().collect(), part)?);
    }
    let middle_of = |costs: &[Cost]| Cost {
        cpu_s: middle(costs.iter().map(|cost| cost.cpu_s)),
        file_bytes: middle(costs.iter().map(|cost| cost.file_bytes)),
    };
    Ok(Orders {
        friendly: middle_of(&friendly),
        hostile: middle_of(&hostile),
    })
}

/// Stores records in this order, so many in a transaction.
fn stored(order: Vec<usize>, part: usize) -> Result<Cost, Ending> {
    let folder = Folder::new("hostile")?;
    let url = format!("sqlite://{}/store.db", folder.display());
    let config = Config::parse(&format!("{CONFIG}[store]\nurl = \"{url}\"\n"))?;
    let store = store::open(&config)?;
    let items = order.into_iter().enumerate();
    let items: Result<Vec<Item>, Ending> = items
        .map(|(arrival, number)| link(&*store, arrival as u64, number))
        .collect();
    let mut items = items?;
    let start = process_s();
    while !items.is_empty() {
        let rest = items.split_off(items.len().min(part));
        store.commit(Batch {
            source: "bench".into(),
            cursor: None,
            now_us: BEGUN_US,
            items: std::mem::replace(&mut items, rest),
        })?;
    }
    let cpu_s = process_s() - start;
    drop(store);
    let file_bytes = std::fs::metadata(folder.join("store.db"))?.len() as f64;
    Ok(Cost { cpu_s, file_bytes })
}

/// A link of the one card to a set of its own; twenty are made in a second.
fn link(store: &dyn Store, arrival: u64, number: usize) -> Result<Item, Ending> {
    let body = format!("{{\"card\":\"at://{DID}/com.example.card/1\",\"set\":\"set {number}\"}}");
    let value = record::json::from_json(&body)?;
    Ok(Item::Commit(Commit {
        did: DID.into(),
        rev: arrival + 1,
        chain: None,
        filtered: 0,
        ops: vec![Op {
            collection: LINK.into(),
            rkey: format!("{number:06}"),
            verdict: Verdict::Put(Put {
                cid: None,
                time_us: Some(BEGUN_US + number as i64 * 50_000),
                seen_us: None,
                links: Vec::new(),
                derived: store.plan().derive(LINK, DID, &value),
                body,
            }),
        }],
        frame: Default::default(),
        seq: 0,
        was_held: false,
        live: true,
    }))
}

/// CPU-microseconds of a change of one's follows: each there once, and each twice.
fn follows() -> (f64, f64) {
    let once: Vec<u32> = (0..FOLLOWS).collect();
    let twice: Vec<u32> = (0..FOLLOWS).flat_map(|key| [key, key]).collect();
    let mut crowds = [once, twice].map(|follows| {
        let mut crowd = Crowd::new(settings(200));
        crowd.register(READER, &follows);
        crowd.settle();
        (crowd, 0)
    });
    let rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|_| crowds.each_mut().map(|(crowd, at)| changes_us(crowd, at)))
        .collect();
    let of = |side: usize| middle(rounds.iter().filter_map(|round| round.get(side).copied()));
    (of(0), of(1))
}

/// A further follow of somebody who is followed, and its end.
fn changes_us(crowd: &mut Crowd, at: &mut u64) -> f64 {
    let start = cpu_s();
    for change in 0..CHANGES {
        let key = KeyId(change * (FOLLOWS / CHANGES));
        for follows in [true, false] {
            *at += 1;
            crowd.engine.begin(*at);
            match follows {
                true => crowd.engine.follow(0, KeyId(READER), key),
                false => crowd.engine.unfollow(0, KeyId(READER), key),
            }
            crowd.engine.end();
        }
    }
    (cpu_s() - start) * 1e6 / f64::from(2 * CHANGES)
}
