//! A small world with everything that pages show.

use std::cell::Cell;

use decide::account::Status;
use decide::batch::{Batch, Commit, Event, Fault, Need, Op, Put, Stage, Target, Verdict};
use decide::derived::{Derived, Part, SortKey};
use decide::ids::{FollowId, IndexId, Position, RecordId, Rev, SortId};
use decide::rules::{Counted, IndexRules, Merging, Rules};
use decide::value::Value;
use decide::wants::Names;
use proptest::prelude::*;
use store::apply::apply;
use store::error::StoreError;
use store::memory::Memory;
use store::port::{Asked, Candidate, Newest, Range, Rows, Snapshot, Store, Stored};
use store::sqlite::Sqlite;
use tempfile::TempDir;

pub(crate) const POSTS: IndexId = IndexId(1);
/// Posts whose number is even: a target with `where`.
pub(crate) const EVEN: IndexId = IndexId(2);
pub(crate) const NOTES: IndexId = IndexId(3);
pub(crate) const LIKES: IndexId = IndexId(4);
pub(crate) const FANS: IndexId = IndexId(5);
pub(crate) const MERGED: IndexId = IndexId(6);
pub(crate) const FOLLOWS: FollowId = FollowId(1);
pub(crate) const MUTES: FollowId = FollowId(2);
pub(crate) const BY_N: SortId = SortId(1);
pub(crate) const BY_TAG: SortId = SortId(2);

pub(crate) const WINDOW_US: i64 = 5;
pub(crate) const THING_MAX: usize = 3;

pub(crate) fn rules() -> Rules {
    let counted = |counted| IndexRules {
        counted,
        merging: None,
    };
    let merged = IndexRules {
        counted: Counted::Nothing,
        merging: Some(Merging {
            window_us: WINDOW_US,
            thing_max: THING_MAX,
        }),
    };
    let indexes = [
        (POSTS, IndexRules::default()),
        (EVEN, IndexRules::default()),
        (NOTES, IndexRules::default()),
        (LIKES, counted(Counted::Authors)),
        (FANS, counted(Counted::Records)),
        (MERGED, merged),
    ];
    Rules {
        indexes: indexes.into_iter().collect(),
        parked_max: 1_000,
        ..Rules::default()
    }
}

/// One event of the world.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) author: u8,
    pub(crate) rkey: u8,
    pub(crate) time: u8,
    pub(crate) target: u8,
    pub(crate) n: u8,
    pub(crate) deletes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Post,
    Note,
    Like,
    Fan,
    Follow,
    Mute,
    Link,
    Reply,
    /// A post of a person who uses an app.
    AppPost,
    AppNote,
    /// A follow of such a person.
    AppFollow,
    Refused,
    Account,
    Handle,
}

/// Follows are more frequent, so that some readers have many.
const KINDS: [Kind; 17] = [
    Kind::Post,
    Kind::Post,
    Kind::Note,
    Kind::AppNote,
    Kind::Follow,
    Kind::Follow,
    Kind::Like,
    Kind::Fan,
    Kind::Follow,
    Kind::Mute,
    Kind::Link,
    Kind::Reply,
    Kind::AppPost,
    Kind::AppFollow,
    Kind::Refused,
    Kind::Account,
    Kind::Handle,
];

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(&KINDS[..]);
    let rest = (0..4u8, 0..5u8, 0..20u8, 0..4u8, 0..6u8, 0..6u8);
    (kind, rest).prop_map(|(kind, (author, rkey, time, target, n, dies))| Step {
        kind,
        author,
        rkey,
        time,
        target,
        n,
        deletes: dies == 0,
    })
}

pub(crate) fn did(author: u8) -> String {
    format!("did:web:{author}.test")
}

pub(crate) fn person(number: u8) -> String {
    format!("did:local:{number}")
}

pub(crate) const APP: &str = "did:web:app.test";

/// Everybody who may read.
pub(crate) fn readers() -> Vec<String> {
    (0..4).map(did).chain((0..4).map(person)).collect()
}

pub(crate) fn post(author: u8, rkey: u8) -> String {
    format!("at://{}/x.post/{rkey}", did(author))
}

fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::Post | Kind::AppPost | Kind::Refused => "x.post",
        Kind::Note | Kind::AppNote => "x.note",
        Kind::Like => "x.like",
        Kind::Fan => "x.fan",
        Kind::Follow | Kind::AppFollow => "x.follow",
        Kind::Mute => "x.mute",
        Kind::Link => "x.link",
        Kind::Reply => "x.reply",
        Kind::Account | Kind::Handle => "",
    }
}

/// What a step's record is sorted by.
fn sort_key(n: u8) -> SortKey {
    match n {
        0 => SortKey::Missing,
        1..=3 => SortKey::Number(i64::from(n / 2)),
        _ => SortKey::Text(format!("t{}", n % 2)),
    }
}

fn derived(step: &Step) -> Derived {
    let mut derived = Derived::default();
    let author = match step.kind {
        Kind::AppPost | Kind::AppNote | Kind::AppFollow => person(step.author),
        _ => did(step.author),
    };
    let topic = format!("topic{}", step.n % 3);
    match step.kind {
        Kind::Post | Kind::AppPost => {
            derived.entries.push((POSTS, vec![author.clone()]));
            if step.n.is_multiple_of(2) {
                derived.entries.push((EVEN, vec![author.clone()]));
            }
            derived.sorts.push((BY_N, sort_key(step.n)));
            for tag in 0..step.n % 3 {
                let tag = SortKey::Text(format!("tag{tag}"));
                derived.sorts.push((BY_TAG, tag));
            }
        }
        Kind::Note | Kind::AppNote => derived.entries.push((NOTES, vec![author.clone(), topic])),
        Kind::Like => {
            let subject = post(step.target, step.rkey);
            derived.entries.push((LIKES, vec![subject]));
        }
        Kind::Fan => derived.entries.push((FANS, vec![did(step.target)])),
        Kind::Follow | Kind::AppFollow => {
            let key = match step.n {
                0..3 => did(step.target),
                3 => person(step.target),
                _ => topic,
            };
            derived.follows.push((FOLLOWS, key));
        }
        Kind::Mute => {
            let key = match step.n {
                0..3 => did(step.target),
                3..5 => person(step.target),
                _ => topic,
            };
            derived.follows.push((MUTES, key));
        }
        Kind::Link => derived.parts.push(Part {
            index: MERGED,
            author: author.clone(),
            thing: (step.n > 0).then(|| post(step.target, step.n % 2)),
            keys: vec![author.clone(), topic],
            adds: vec![format!("at://{}/x.note/{}", did(step.target), step.rkey)],
        }),
        Kind::Reply | Kind::Refused | Kind::Account | Kind::Handle => {}
    }
    if matches!(step.kind, Kind::AppPost | Kind::AppNote | Kind::AppFollow) {
        derived.person = Some(author);
    }
    derived
}

fn links(step: &Step) -> Vec<(String, String)> {
    let subject = post(step.target, step.rkey);
    match step.kind {
        Kind::Like => vec![("subject".into(), subject)],
        Kind::Fan => vec![("subject".into(), did(step.target))],
        Kind::Link => vec![
            ("embed.uri".into(), post(step.target, step.n % 2)),
            ("quote".into(), subject),
        ],
        Kind::Reply => vec![("parent".into(), post(step.target, 0))],
        _ => Vec::new(),
    }
}

fn verdict(step: &Step, number: usize) -> Verdict {
    if step.deletes && step.kind != Kind::Refused {
        return Verdict::Delete;
    }
    if step.kind == Kind::Refused {
        let stage = [Stage::Lexicon, Stage::Rule][step.n as usize % 2];
        return Verdict::Refused {
            fault: Fault {
                stage,
                message: format!("bad {}", step.n),
                rule: None,
                path: vec!["text".into()],
                expected: "a text".into(),
                received: "a number".into(),
            },
            raw: format!("{{\"number\":{number}}}"),
        };
    }
    let parent = Need {
        path: "parent".into(),
        target: Target::Record {
            did: did(step.target),
            collection: "x.post".into(),
            rkey: "0".into(),
        },
    };
    Verdict::Put(Box::new(Put {
        cid: Some(vec![number as u8, 1]),
        body: format!("{{\"n\":{},\"number\":{number}}}", step.n),
        time_us: Some(i64::from(step.time)),
        seen_us: Some(1_000),
        links: links(step),
        derived: derived(step),
        needs: match step.kind {
            Kind::Reply => vec![parent],
            _ => Vec::new(),
        },
        linked: None,
        satisfies: vec![uri(step)],
    }))
}

fn account(step: &Step) -> String {
    match step.kind {
        Kind::AppPost | Kind::AppNote | Kind::AppFollow => APP.into(),
        _ => did(step.author),
    }
}

/// An app's records are told apart by who wrote them.
fn rkey(step: &Step) -> String {
    match step.kind {
        Kind::AppPost | Kind::AppNote | Kind::AppFollow => format!("{}{}", step.author, step.rkey),
        Kind::Follow => format!("{}{}", step.rkey, step.target),
        _ => step.rkey.to_string(),
    }
}

fn uri(step: &Step) -> String {
    let (did, nsid) = (account(step), collection(step.kind));
    format!("at://{did}/{nsid}/{}", rkey(step))
}

pub(crate) fn event(number: usize, step: &Step) -> Event {
    match step.kind {
        Kind::Account => Event::Account {
            did: did(step.author),
            status: [Status::Active, Status::Active, Status::Deactivated][step.n as usize % 3],
            time_us: number as i64,
        },
        Kind::Handle => Event::Identity {
            did: did(step.author),
            handle: Some(format!("handle{}.test", step.n)),
            time_us: number as i64,
        },
        _ => Event::Commit(Commit {
            did: account(step),
            rev: Rev(number as u64 + 1),
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: collection(step.kind).into(),
                rkey: rkey(step),
                verdict: verdict(step, number),
            }],
            frame: Vec::new(),
            live: true,
        }),
    }
}

/// A world on every engine, and the folder of those that have one.
pub(crate) fn engines(steps: &[Step], batch_max: usize) -> (TempDir, Vec<Box<dyn Store>>) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Sqlite::open(&folder.path().join("store.db")).unwrap();
    let engines: Vec<Box<dyn Store>> = vec![Box::new(Memory::new()), Box::new(sqlite)];
    for store in &engines {
        fill(&**store, steps, batch_max);
    }
    (folder, engines)
}

/// Applies steps, and whatever becomes due by them.
pub(crate) fn fill(store: &dyn Store, steps: &[Step], batch_max: usize) {
    let numbered: Vec<(usize, &Step)> = steps.iter().enumerate().collect();
    for (at, chunk) in numbered.chunks(batch_max.max(1)).enumerate() {
        let event = |(number, step): &(usize, &Step)| (*number as i64, event(*number, step));
        let batch = Batch {
            source: "s".into(),
            cursor: Some(at as i64),
            now_us: 2_000 + at as i64,
            events: chunk.iter().map(event).collect(),
            orders: Vec::new(),
        };
        apply(store, &rules(), &batch).unwrap();
        settle(store, batch.now_us);
    }
}

/// Does what is left to later batches until nothing is.
fn settle(store: &dyn Store, now_us: i64) {
    loop {
        let orders = store::work::next(&*store.snapshot().unwrap(), &rules(), now_us).unwrap();
        if orders.is_empty() {
            return;
        }
        let batch = Batch {
            now_us,
            orders,
            ..Batch::default()
        };
        apply(store, &rules(), &batch).unwrap();
    }
}

/// A snapshot that counts its round trips.
pub(crate) struct Counting<'s> {
    snapshot: &'s dyn Snapshot,
    trips: Cell<usize>,
}

impl<'s> Counting<'s> {
    pub(crate) fn new(snapshot: &'s dyn Snapshot) -> Self {
        Self {
            snapshot,
            trips: Cell::new(0),
        }
    }

    /// Round trips since the last time it was asked.
    pub(crate) fn trips(&self) -> usize {
        self.trips.take()
    }

    fn counted(&self) -> &dyn Snapshot {
        self.trips.set(self.trips.get() + 1);
        self.snapshot
    }
}

impl Snapshot for Counting<'_> {
    fn position(&self) -> Position {
        self.snapshot.position()
    }

    fn names(&self, asked: &Asked<'_>) -> Result<Names, StoreError> {
        self.counted().names(asked)
    }

    fn range(&self, ranges: &[Range]) -> Result<Vec<Rows>, StoreError> {
        self.counted().range(ranges)
    }

    fn keys(&self, ranges: &[Range]) -> Result<Vec<Vec<Vec<Value>>>, StoreError> {
        self.counted().keys(ranges)
    }

    fn count(&self, ranges: &[Range]) -> Result<Vec<usize>, StoreError> {
        self.counted().count(ranges)
    }

    fn newest(&self, asked: &[Newest<'_>]) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.counted().newest(asked)
    }

    fn records(&self, ids: &[RecordId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.counted().records(ids)
    }
}

/// Adds posts of one author, a microsecond apart.
pub(crate) fn many_posts(store: &dyn Store, author: u8, n: usize, from_us: i64) {
    let posts = (0..n).map(|at| {
        let step = Step {
            kind: Kind::Post,
            author,
            rkey: 0,
            time: 0,
            target: 0,
            n: 0,
            deletes: false,
        };
        let mut event = event(at + 100_000, &step);
        if let Event::Commit(commit) = &mut event {
            for op in &mut commit.ops {
                op.rkey = format!("p{at}");
                if let Verdict::Put(put) = &mut op.verdict {
                    put.time_us = Some(from_us + at as i64);
                    put.seen_us = Some(i64::MAX);
                    put.satisfies.clear();
                }
            }
        }
        (at as i64, event)
    });
    let batch = Batch {
        source: "many".into(),
        cursor: Some(1),
        now_us: 9_000_000,
        events: posts.collect(),
        orders: Vec::new(),
    };
    apply(store, &rules(), &batch).unwrap();
}

/// Steps of a world in which links are frequent.
pub(crate) fn linking() -> impl Strategy<Value = Step> {
    (step(), any::<bool>()).prop_map(|(mut step, links)| {
        if links && !matches!(step.kind, Kind::Follow | Kind::Account | Kind::Handle) {
            step.kind = Kind::Link;
        }
        step
    })
}
