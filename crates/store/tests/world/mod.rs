//! A small world for tests of engines: steps, batches, and what a store holds.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use decide::account::Status;
use decide::batch::{Batch, Commit, Event, Need, Op, Put, Target, Verdict};
use decide::derived::{Derived, Part};
use decide::ids::{CollectionId, FollowId, IndexId, KeyId, Rev};
use decide::rows::{Counter, Entry, Follow, Member, Outcomes, Record, Reference, TABLES};
use decide::rules::{Counted, IndexRules, Merging, Rules};
use decide::table::{Row, Table};
use decide::value::Value;
use proptest::prelude::*;
use store::apply::apply;
use store::port::{Range, Snapshot, Store};
use store::work;

pub(crate) const POSTS: IndexId = IndexId(1);
pub(crate) const LIKES: IndexId = IndexId(2);
pub(crate) const MERGED: IndexId = IndexId(3);
pub(crate) const FOLLOWS: FollowId = FollowId(1);
pub(crate) const BLOCKS: FollowId = FollowId(2);

pub(crate) fn rules() -> Rules {
    let indexes = [
        (POSTS, IndexRules::default()),
        (
            LIKES,
            IndexRules {
                counted: Counted::Authors,
                merging: None,
            },
        ),
        (
            MERGED,
            IndexRules {
                counted: Counted::Nothing,
                merging: Some(Merging {
                    window_us: 20,
                    thing_max: 3,
                }),
            },
        ),
    ];
    Rules {
        indexes: indexes.into_iter().collect(),
        layout: 1,
        parked_max: 1_000,
        ..Rules::default()
    }
}

pub(crate) const COLLECTIONS: [&str; 6] = [
    "x.post", "x.like", "x.follow", "x.link", "x.reply", "x.block",
];

/// Every name that can be a key.
pub(crate) fn texts() -> Vec<String> {
    let dids = (0..3).map(did);
    let topics = (0..3).map(|topic| format!("topic{topic}"));
    let posts = (0..3).flat_map(|author| (0..4).map(move |rkey| (author, rkey)));
    let posts = posts.map(|(author, rkey)| format!("at://{}/x.post/{rkey}", did(author)));
    dids.chain(topics).chain(posts).collect()
}

/// One operation of a small world.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) author: u8,
    pub(crate) kind: u8,
    pub(crate) rkey: u8,
    pub(crate) rev: u8,
    pub(crate) time: u8,
    pub(crate) target: u8,
}

impl Step {
    pub(crate) fn is_account(&self) -> bool {
        self.kind as usize == COLLECTIONS.len()
    }
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    (0..3u8, 0..7u8, 0..4u8, 1..40u8, 0..60u8, 0..3u8).prop_map(
        |(author, kind, rkey, rev, time, target)| Step {
            author,
            kind,
            rkey,
            rev,
            time,
            target,
        },
    )
}

pub(crate) fn did(author: u8) -> String {
    format!("did:web:{author}.test")
}

/// What a record derives, and what it waits for.
fn derived(step: &Step, collection: &str, subject: &str) -> (Derived, Vec<Need>) {
    let mut derived = Derived::default();
    let mut needs = Vec::new();
    match collection {
        "x.post" => derived.entries.push((POSTS, vec![did(step.author)])),
        "x.like" => derived.entries.push((LIKES, vec![subject.to_owned()])),
        "x.follow" => derived.follows.push((FOLLOWS, did(step.target))),
        "x.block" => derived.follows.push((BLOCKS, did(step.target))),
        "x.link" => derived.parts.push(Part {
            index: MERGED,
            author: did(step.author),
            thing: Some(format!("thing{}", step.target)),
            keys: vec![did(step.author), format!("topic{}", step.time % 3)],
            adds: vec![format!("topic{}", step.time % 3)],
        }),
        _ => needs.push(Need {
            path: "parent".into(),
            target: Target::Record {
                did: did(step.target),
                collection: "x.post".into(),
                rkey: "0".into(),
            },
        }),
    }
    (derived, needs)
}

pub(crate) fn event(step: &Step) -> Event {
    if step.is_account() {
        return Event::Account {
            did: did(step.author),
            status: [Status::Active, Status::Deactivated][step.rev as usize % 2],
            time_us: i64::from(step.rev),
        };
    }
    let collection = COLLECTIONS[step.kind as usize];
    let subject = format!("at://{}/x.post/{}", did(step.target), step.rkey);
    let (derived, needs) = derived(step, collection, &subject);
    // What replies wait for stays: whether a reply that met it is kept after it was deleted is a
    // matter of which came first.
    let needed = collection == "x.post" && step.rkey == 0;
    let deletes = step.rev.is_multiple_of(4) && !needed;
    let put = Put {
        cid: Some(vec![step.rev]),
        body: format!("{{\"rev\":{}}}", step.rev),
        time_us: Some(i64::from(step.time)),
        seen_us: Some(1_000),
        links: vec![("subject".into(), subject)],
        derived,
        needs,
        satisfies: vec![format!(
            "at://{}/{collection}/{}",
            did(step.author),
            step.rkey
        )],
        linked: None,
    };
    let op = Op {
        collection: collection.into(),
        rkey: step.rkey.to_string(),
        verdict: if deletes {
            Verdict::Delete
        } else {
            Verdict::Put(Box::new(put))
        },
    };
    Event::Commit(Commit {
        did: did(step.author),
        rev: Rev(u64::from(step.rev)),
        chain: None,
        filtered: 0,
        ops: vec![op],
        frame: Vec::new(),
        live: true,
    })
}

/// Of each path, every revision says one thing.
pub(crate) fn consistent(steps: Vec<Step>) -> Vec<Step> {
    let mut seen = BTreeMap::new();
    steps
        .into_iter()
        .map(|step| {
            seen.entry((step.author, step.kind, step.rkey, step.rev))
                .or_insert(step)
                .clone()
        })
        .collect()
}

/// The batches of some steps, each of at most `batch_max`.
pub(crate) fn batches(steps: &[Step], batch_max: usize) -> Vec<Batch> {
    let chunks = steps.chunks(batch_max.max(1)).enumerate();
    let batch = |(number, chunk): (usize, &[Step])| Batch {
        source: "s".into(),
        cursor: Some(number as i64),
        now_us: 2_000 + number as i64,
        events: chunk
            .iter()
            .enumerate()
            .map(|(seq, step)| (seq as i64, event(step)))
            .collect(),
        orders: Vec::new(),
    };
    chunks.map(batch).collect()
}

/// Applies a batch and whatever becomes due by it.
pub(crate) fn run(store: &dyn Store, batch: &Batch) {
    run_by(store, &rules(), batch);
}

/// Applies a batch by these rules, and whatever becomes due by it.
pub(crate) fn run_by(store: &dyn Store, rules: &Rules, batch: &Batch) {
    assert!(apply(store, rules, batch).unwrap().loads <= 3);
    settle_by(store, rules, batch.now_us);
}

/// Does what is due until nothing is.
pub(crate) fn settle(store: &dyn Store, now_us: i64) {
    settle_by(store, &rules(), now_us);
}

pub(crate) fn settle_by(store: &dyn Store, rules: &Rules, now_us: i64) {
    loop {
        let orders = work::next(&*store.snapshot().unwrap(), rules, now_us).unwrap();
        if orders.is_empty() {
            return;
        }
        let batch = Batch {
            now_us,
            orders,
            ..Batch::default()
        };
        assert!(apply(store, rules, &batch).unwrap().loads <= 3);
    }
}

/// Waits until everything that still waits is a dead letter.
pub(crate) fn give_up(store: &dyn Store) {
    for second in 1..60 {
        settle(store, 2_000_000 * second);
    }
}

/// All rows of a table, in the order of its primary key.
pub(crate) fn all(snapshot: &dyn Snapshot, table: &'static Table) -> Vec<Vec<Value>> {
    let range = Range {
        table,
        index: "",
        prefix: Vec::new(),
        after: Vec::new(),
        inclusive: false,
        descending: false,
        max: usize::MAX,
    };
    let found = snapshot.range(&[range]).unwrap();
    found[0].iter().map(<[Value]>::to_vec).collect()
}

pub(crate) fn rows<R: Row>(snapshot: &dyn Snapshot) -> Vec<R> {
    let rows = all(snapshot, R::TABLE);
    rows.iter()
        .map(|row| R::from_values(row).unwrap())
        .collect()
}

/// Every row of every table.
pub(crate) fn everything(snapshot: &dyn Snapshot) -> Vec<(&'static str, Vec<Vec<Value>>)> {
    let tables = TABLES.iter();
    tables
        .map(|table| (table.name, all(snapshot, table)))
        .collect()
}

fn flip<T: Ord>(names: HashMap<String, T>) -> BTreeMap<T, String> {
    names.into_iter().map(|(name, id)| (id, name)).collect()
}

/// Everything that must not depend on the order of arrival. Numbers are replaced by names.
pub(crate) fn dump(store: &dyn Store) -> Vec<String> {
    let snapshot = store.snapshot().unwrap();
    let snapshot = &*snapshot;
    let texts = texts();
    let keys: BTreeSet<&str> = texts.iter().map(String::as_str).collect();
    let names = store
        .intern(&keys, &COLLECTIONS.into_iter().collect())
        .unwrap();
    let by_key: BTreeMap<KeyId, String> = flip(names.keys);
    let by_collection: BTreeMap<CollectionId, String> = flip(names.collections);
    let name = |id: KeyId| by_key[&id].as_str();
    let nsid = |id: CollectionId| by_collection[&id].as_str();
    let mut lines = Vec::new();
    let mut uris = BTreeMap::new();
    for row in rows::<Record>(snapshot) {
        uris.insert(
            row.id,
            format!("{} {} {}", name(row.author), nsid(row.collection), row.rkey),
        );
        if row.state == 0 {
            lines.push(format!(
                "record {} {} {:?}",
                uris[&row.id], row.time_us, row.body
            ));
        }
    }
    for row in rows::<Entry>(snapshot) {
        let key = name(row.key);
        lines.push(format!(
            "entry {} {key} {} {} {}",
            row.index.0, row.time_us, row.tail, uris[&row.record]
        ));
    }
    for row in rows::<Follow>(snapshot) {
        lines.push(format!(
            "follow {} {} {}",
            name(row.reader),
            name(row.key),
            uris[&row.record]
        ));
    }
    for row in rows::<Reference>(snapshot) {
        lines.push(format!(
            "reference {} {} {}",
            row.target, row.path, uris[&row.record]
        ));
    }
    for row in rows::<Member>(snapshot) {
        lines.push(format!(
            "member {} {} {} first {}",
            row.thing, row.time_us, row.tail, row.first
        ));
    }
    for row in rows::<Counter>(snapshot)
        .into_iter()
        .filter(|row| row.n != 0)
    {
        lines.push(format!("count {} {} {}", row.index.0, name(row.key), row.n));
    }
    lines.sort();
    lines
}

/// Whether every unit received has one outcome.
pub(crate) fn adds_up(store: &dyn Store) -> bool {
    let rows = rows::<Outcomes>(&*store.snapshot().unwrap());
    let sum = |received| {
        let rows = rows
            .iter()
            .filter(|row| (row.outcome == "received") == received);
        rows.map(|row| row.n).sum::<i64>()
    };
    sum(true) == sum(false)
}
