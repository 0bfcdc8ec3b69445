//! `bench deep`: a page ten thousand entries down, where only the store answers.

use std::sync::Arc;

use sim::rng::Rng;

use crate::config::Config;
use crate::store::batch::{Batch, Commit, Item, Op, Put, Verdict};
use crate::store::{self, FeedQuery, Lens, Plan, Position, Store};

use super::folder::Folder;
use super::meter::cpu_s;
use super::sql::Posts;
use super::{Ending, Report, scaled};

const POST: &str = "app.bsky.feed.post";
const FOLLOW: &str = "app.bsky.graph.follow";
const FOLLOWS: u32 = 1_000;
const AUTHORS: u32 = 20_000;
const RECORDS: usize = 400_000;
const DEPTH: usize = 10_000;
const LIMIT: usize = 50;
const PAGES: usize = 60;
const BEGUN_US: i64 = 1_700_000_000_000_000;

pub(super) const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.post]
collection = "app.bsky.feed.post"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
"#;

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let folder = Folder::new("deep")?;
    let text = format!(
        "{CONFIG}[store]\nurl = \"sqlite://{}/store.db\"\n",
        folder.display()
    );
    let config = Config::parse(&text)?;
    let store = store::open(&config)?;
    let records = scaled(RECORDS, scale).max(DEPTH * 40);
    let mut posts = Posts::create(&folder.join("baseline.db"))?;
    fill(
        &*store,
        &mut |at, author, time_us| posts.add(at, author, time_us),
        records,
    )?;
    posts.follow_each(0, 1..=FOLLOWS)?;
    posts.ready()?;
    let mut query = query(store.plan())?;
    let before = descend(&*store, &mut query)?;
    query.before = Some(before.clone());
    query.limit = LIMIT;
    let start = cpu_s();
    for _ in 0..PAGES {
        let page = store.feed(&query)?;
        if page.rows.len() != LIMIT {
            return Err("the page is not full".into());
        }
    }
    let page_ms = (cpu_s() - start) * 1e3 / PAGES as f64;
    let start = cpu_s();
    for _ in 0..PAGES {
        let ids = posts.page(0, Some(before.time_us), LIMIT)?;
        if ids.len() != LIMIT {
            return Err("the baseline's page is not full".into());
        }
    }
    let join_ms = (cpu_s() - start) * 1e3 / PAGES as f64;
    let mut report = Report {
        workload: format!(
            "{records} records of {AUTHORS} authors in SQLite, a reader of {FOLLOWS}, page of {LIMIT} whole records behind {DEPTH} entries"
        ),
        ..Report::default()
    };
    report.figure("page_ms", page_ms);
    report.figure("join_ms", join_ms);
    report.ratio("vs_join", page_ms / join_ms);
    report.at_most("CPU-milliseconds of the page", page_ms, 20.0);
    report.notes.push(
        "the join gives ids alone, with indexes on (user, time) and on time; the store's page holds the records".into(),
    );
    Ok(report)
}

pub(super) fn did(author: u32) -> String {
    format!("did:plc:{author:024}")
}

/// Takes each post too: its number, author and time.
type Also<'a> = &'a mut dyn FnMut(i64, u32, i64) -> Result<(), Ending>;

/// The same posts for both sides, and the reader's follows for the store.
pub(super) fn fill(store: &dyn Store, also: Also<'_>, records: usize) -> Result<(), Ending> {
    let plan = store.plan();
    let commit =
        |did: String, rev: u64, nsid: &str, body: String, time_us: i64| -> Result<Item, Ending> {
            let value = record::json::from_json(&body)?;
            let derived = plan.derive(nsid, &did, &value);
            Ok(Item::Commit(Commit {
                did,
                rev,
                chain: None,
                filtered: 0,
                ops: vec![Op {
                    collection: nsid.into(),
                    rkey: record::tid::Tid::new(time_us.cast_unsigned(), 1).to_string(),
                    verdict: Verdict::Put(Put {
                        cid: None,
                        seen_us: None,
                        body,
                        time_us: Some(time_us),
                        links: Vec::new(),
                        derived,
                    }),
                }],
                frame: Default::default(),
                seq: 0,
                was_held: false,
                live: true,
            }))
        };
    let apply = |items: Vec<Item>, now_us: i64| {
        store.commit(Batch {
            source: "bench".into(),
            cursor: None,
            now_us,
            items,
        })
    };
    let mut items = Vec::new();
    for (at, author) in (1i64..).zip(1..=FOLLOWS) {
        let body = format!("{{\"subject\":\"{}\"}}", did(author));
        items.push(commit(
            did(0),
            at.cast_unsigned(),
            FOLLOW,
            body,
            BEGUN_US - 10_000_000 + at,
        )?);
    }
    apply(std::mem::take(&mut items), BEGUN_US)?;
    let mut rng = Rng::new(6);
    let text = "x".repeat(120);
    for at in 1..=records as i64 {
        let author = 1 + rng.below(u64::from(AUTHORS)) as u32;
        let time_us = BEGUN_US + at * 20_000;
        items.push(commit(
            did(author),
            at.cast_unsigned() + 1_000_000,
            POST,
            format!("{{\"text\":\"{text}\",\"createdAt\":\"2026-01-01T00:00:00Z\"}}"),
            time_us,
        )?);
        also(at, author, time_us)?;
        if items.len() == 10_000 || at == records as i64 {
            apply(std::mem::take(&mut items), time_us + 1)?;
        }
    }
    Ok(())
}

pub(super) fn query(plan: &Arc<Plan>) -> Result<FeedQuery, Ending> {
    let feed = plan.feed("timeline").ok_or("no such feed")?;
    let lanes = feed.targets.iter().map(|target| (target.lane, None));
    Ok(FeedQuery {
        lens: Lens::default(),
        reader: did(0),
        lanes: lanes.collect(),
        follows: feed.follows.clone(),
        hides: Vec::new(),
        include_self: false,
        before: None,
        limit: 500,
        scan_max: 2_000,
    })
}

/// The place behind [`DEPTH`] entries.
fn descend(store: &dyn Store, query: &mut FeedQuery) -> Result<Position, Ending> {
    let mut seen = 0;
    loop {
        let page = store.feed(query)?;
        seen += page.rows.len();
        query.before = page.next;
        match &query.before {
            Some(place) if seen >= DEPTH => return Ok(place.clone()),
            Some(_) => {}
            None => return Err(format!("the feed ends after {seen} entries").into()),
        }
    }
}
