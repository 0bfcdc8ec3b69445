//! What applying a batch costs: `cargo run --release -p store --example apply_cost [records] [batch]`
//!
//! Fills a SQLite store with records (posts, likes, follows), then applies further events in
//! batches: 20 % posts, 55 % likes of posts, 10 % follows, 5 % edits, 10 % deletes. Prints events
//! for each CPU-second of the thread that applies them, and of that how much is deciding.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use decide::batch::{Batch, Commit, Event, Op, Put, Verdict};
use decide::decide::{Undecided, decide, wants};
use decide::derived::Derived;
use decide::ids::{FollowId, IndexId, Rev};
use decide::names::names;
use decide::rules::{Counted, IndexRules, Rules};
use store::apply::apply;
use store::port::Store;
use store::sqlite::Sqlite;

const POSTS: IndexId = IndexId(1);
const LIKES: IndexId = IndexId(2);
const FOLLOWS: FollowId = FollowId(1);
const MEASURED: usize = 200_000;

fn did(author: usize) -> String {
    format!("did:plc:{author:024}")
}

/// A stream of events that repeats itself exactly.
struct Stream {
    random: u64,
    authors: usize,
    rev: usize,
    /// Posts so far: (author, key).
    posts: Vec<(usize, usize)>,
}

impl Stream {
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n as u64) as usize
    }

    fn next(&mut self) -> (i64, Event) {
        self.rev += 1;
        let (author, rev) = (self.below(self.authors), self.rev);
        let kind = self.below(100);
        let known = self.posts.len();
        match kind {
            _ if known == 0 => self.post(author, rev),
            0..20 => self.post(author, rev),
            20..75 => {
                let at = self.below(known);
                let (of, key) = *self.posts.get(at).unwrap();
                let subject = format!("at://{}/x.post/{key:013}", did(of));
                let derived = Derived {
                    entries: vec![(LIKES, vec![subject.clone()])],
                    ..Derived::default()
                };
                let links = vec![("subject.uri".to_owned(), subject)];
                event(rev, author, ("x.like", rev), Some((derived, links, 60)))
            }
            75..85 => {
                let derived = Derived {
                    follows: vec![(FOLLOWS, did(self.below(self.authors)))],
                    ..Derived::default()
                };
                event(
                    rev,
                    author,
                    ("x.follow", rev),
                    Some((derived, Vec::new(), 20)),
                )
            }
            85..90 => {
                let at = self.below(known);
                let (author, key) = *self.posts.get(at).unwrap();
                event(
                    rev,
                    author,
                    ("x.post", key),
                    Some((posted(author), Vec::new(), 120)),
                )
            }
            _ => {
                let at = self.below(known);
                let (author, key) = self.posts.swap_remove(at);
                event(rev, author, ("x.post", key), None)
            }
        }
    }

    fn post(&mut self, author: usize, rev: usize) -> (i64, Event) {
        self.posts.push((author, rev));
        event(
            rev,
            author,
            ("x.post", rev),
            Some((posted(author), Vec::new(), 120)),
        )
    }

    fn batch(&mut self, events: usize) -> Batch {
        let events = (0..events).map(|_| self.next()).collect();
        Batch {
            source: "s".into(),
            cursor: Some(self.rev as i64),
            now_us: i64::MAX / 2,
            events,
            orders: Vec::new(),
        }
    }
}

fn posted(author: usize) -> Derived {
    Derived {
        entries: vec![(POSTS, vec![did(author)])],
        ..Derived::default()
    }
}

type Content = (Derived, Vec<(String, String)>, usize);

fn event(
    rev: usize,
    author: usize,
    (collection, key): (&str, usize),
    content: Option<Content>,
) -> (i64, Event) {
    let verdict = match content {
        None => Verdict::Delete,
        Some((derived, links, length)) => Verdict::Put(Box::new(Put {
            cid: Some(rev.to_le_bytes().repeat(4)),
            body: format!(
                "{{\"text\":\"{}\",\"createdAt\":\"2026-01-01T00:00:00Z\"}}",
                "x".repeat(length)
            ),
            time_us: Some(1_000_000 + rev as i64 * 20),
            seen_us: None,
            links,
            derived,
            needs: Vec::new(),
            linked: None,
            satisfies: Vec::new(),
        })),
    };
    let op = Op {
        collection: collection.into(),
        rkey: format!("{key:013}"),
        verdict,
    };
    let commit = Commit {
        did: did(author),
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

/// CPU-nanoseconds of each step of a batch.
#[derive(Default)]
struct Steps {
    names: u64,
    load: u64,
    decide: u64,
    commit: u64,
}

/// The same as [`apply`], with a clock between its steps.
fn timed(store: &dyn Store, rules: &Rules, batch: &Batch, steps: &mut Steps) {
    let mut last = cpu_ns();
    let mut lap = |sum: &mut u64| {
        let now = cpu_ns();
        *sum += now - last;
        last = now;
    };
    let (keys, collections) = names(batch);
    let names = store.intern(&keys, &collections).unwrap();
    lap(&mut steps.names);
    let mut unit = store.begin().unwrap();
    let first = wants(batch, &names, rules);
    lap(&mut steps.decide);
    let mut loaded = unit.load(&first).unwrap();
    lap(&mut steps.load);
    let writes = loop {
        match decide(batch, &names, rules, &loaded) {
            Ok(writes) => break writes,
            Err(Undecided::Load(more)) => {
                lap(&mut steps.decide);
                loaded.extend(unit.load(&more).unwrap());
                lap(&mut steps.load);
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    lap(&mut steps.decide);
    unit.commit(&writes).unwrap();
    drop((writes, loaded));
    lap(&mut steps.commit);
}

fn main() {
    let number = |at: usize, or: usize| std::env::args().nth(at).map_or(or, |n| n.parse().unwrap());
    let (records, batch) = (number(1, 1_000_000), number(2, 5_000));
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db")).unwrap();
    let counted = IndexRules {
        counted: Counted::Records,
        merging: None,
    };
    let rules = Rules {
        parked_max: 1_000,
        indexes: [(POSTS, IndexRules::default()), (LIKES, counted)].into(),
        ..Rules::default()
    };
    let mut stream = Stream {
        random: 88_172_645_463_325_252,
        authors: records / 10 + 1,
        rev: 0,
        posts: Vec::new(),
    };
    while stream.rev < records {
        apply(&store, &rules, &stream.batch(10_000)).unwrap();
    }
    let mut steps = Steps::default();
    let measured = MEASURED.min(records);
    for _ in 0..measured / batch {
        let batch = stream.batch(batch);
        timed(&store, &rules, &batch, &mut steps);
    }
    let Steps {
        names,
        load,
        decide,
        commit,
    } = steps;
    let us = |ns: u64| ns as f64 / 1e3 / measured as f64;
    let all = names + load + decide + commit;
    println!(
        "{records} events before, batches of {batch}: {:.0} events a CPU-second",
        1e6 / us(all)
    );
    println!(
        "CPU-microseconds an event: names {:.1}, load {:.1}, decide {:.1}, commit {:.1}",
        us(names),
        us(load),
        us(decide),
        us(commit)
    );
}
