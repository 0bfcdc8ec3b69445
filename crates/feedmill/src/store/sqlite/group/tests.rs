//! What regrouping costs, and that it equals a naive model, in any order and any batches.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::effort;
use crate::store::plan::LaneId;
use crate::store::sqlite::{outbox, schema};

const LANE: i64 = 5;
const DID: &str = "did:web:a.test";
const SECOND: i64 = 1_000_000;
/// Records of a full group, each with a set of its own beside their author.
const FULL: i64 = GROUP_KEYS_MAX as i64 - 1;

/// A store of one merged lane, and what went through its outbox.
struct Bed {
    connection: Connection,
    memory: Memory,
    ids: Ids,
    thing_max: usize,
    /// How many sets the records are links to.
    sets: i64,
    steps: u64,
    bytes: i64,
    groups_max: usize,
}

impl Bed {
    fn new(thing_max: usize) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        let mut connection = effort::watched(connection).unwrap();
        schema::prepare(&connection, 8).unwrap();
        schema::create(&mut connection).unwrap();
        Self {
            connection,
            memory: Memory::new(1000),
            ids: Ids {
                lanes: vec![LANE],
                ..Ids::default()
            },
            thing_max,
            sets: 7,
            steps: 0,
            bytes: 0,
            groups_max: 0,
        }
    }

    /// A store of records that are links to sets of their own, as an author may make them.
    fn of_many_sets(thing_max: usize) -> Self {
        Self {
            sets: i64::MAX,
            ..Self::new(thing_max)
        }
    }

    /// One transaction: (record, second, whether it comes).
    fn commit(&mut self, edits: &[(i64, i64, bool)]) {
        let tx = self.connection.transaction().unwrap();
        let (memory, ids) = (&mut self.memory, &self.ids);
        let (steps, changes) = effort::of(|| {
            for (record, second, came) in edits {
                let rkey = format!("r{record:05}");
                let subject = Subject {
                    record: *record,
                    author: 1,
                    did: DID,
                    rkey: &rkey,
                    time: second * SECOND,
                };
                let part = Part {
                    lane: LaneId(0),
                    window_us: 120 * SECOND,
                    thing_max: self.thing_max,
                    nsid: "com.example.link".into(),
                    author: DID.into(),
                    merge: Some("at://card".into()),
                    keys: vec![DID.into(), format!("set {}", record % self.sets)],
                    union: vec![format!("set {}", record % self.sets)],
                };
                let how = if *came { Touch::Came } else { Touch::Goes };
                touch(&tx, memory, ids, subject, &[part], how, true).unwrap();
            }
            let mut changes = Vec::new();
            memory.edits.regroup(&tx, &mut changes).unwrap();
            changes
        });
        self.steps += steps;
        for change in &changes {
            let Change::Regroup { was, now, .. } = change else {
                panic!("{change:?}");
            };
            self.groups_max = self.groups_max.max(was.len()).max(now.len());
        }
        let head = outbox::head(&tx).unwrap();
        outbox::append(&tx, head, &changes).unwrap();
        tx.commit().unwrap();
        let bytes = "SELECT coalesce(sum(length(changes)), 0) FROM outbox";
        self.bytes = self
            .connection
            .query_row(bytes, [], |row| row.get(0))
            .unwrap();
    }

    /// The activities as they are published: each with its members' records.
    fn activities(&self) -> Vec<Vec<i64>> {
        let mut rows = self
            .connection
            .prepare("SELECT record, role FROM part ORDER BY time, tail")
            .unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let mut found: Vec<Vec<i64>> = Vec::new();
        for row in rows.unwrap() {
            let (record, role): (i64, i64) = row.unwrap();
            match found.last_mut() {
                Some(open) if role == 0 => open.push(record),
                _ => found.push(vec![record]),
            }
        }
        let firsts: Vec<i64> = found.iter().map(|group| group[0]).collect();
        let recent = "SELECT record FROM recent ORDER BY time, tail";
        assert_eq!(self.numbers(recent), firsts);
        let published = "SELECT record FROM published WHERE key = (SELECT id FROM key WHERE text LIKE 'did:%') ORDER BY time, tail";
        assert_eq!(self.numbers(published), firsts);
        found
    }

    fn numbers(&self, sql: &str) -> Vec<i64> {
        let mut rows = self.connection.prepare(sql).unwrap();
        let rows = rows.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    fn unmerged(&self) -> i64 {
        self.numbers("SELECT rows FROM size WHERE name = 'unmerged'")[0]
    }

    /// How many rows each key has: every member's keys, once for each activity.
    fn published(&self) -> usize {
        self.numbers("SELECT key FROM published").len()
    }
}

/// Grouped as the rule says, with nothing of the engine: oldest first, a window from each first,
/// and everything beyond the cap alone.
fn naive(live: &BTreeSet<(i64, i64)>, cap: usize) -> Vec<Vec<i64>> {
    let mut groups: Vec<(i64, Vec<i64>)> = Vec::new();
    for (rank, (second, record)) in live.iter().enumerate() {
        let fits = groups
            .last()
            .is_some_and(|(first, _)| second - first <= 120);
        if rank < cap && fits {
            groups.last_mut().unwrap().1.push(*record);
        } else {
            groups.push((*second, vec![*record]));
        }
    }
    groups.into_iter().map(|(_, records)| records).collect()
}

fn links(count: i64) -> Vec<(i64, i64, bool)> {
    (0..count).map(|n| (n, n / 20, true)).collect()
}

#[test]
fn newest_first_in_one_transaction_costs_what_oldest_first_costs() {
    let (mut friendly, mut hostile) = (Bed::new(100), Bed::new(100));
    let mut edits = links(400);
    friendly.commit(&edits);
    edits.reverse();
    hostile.commit(&edits);
    assert_eq!(friendly.activities(), hostile.activities());
    assert_eq!(hostile.unmerged(), 300);
    assert!(
        hostile.steps <= 2 * friendly.steps,
        "{} {}",
        hostile.steps,
        friendly.steps
    );
    assert!(
        hostile.bytes <= 2 * friendly.bytes,
        "{} {}",
        hostile.bytes,
        friendly.bytes
    );
}

#[test]
fn a_transaction_costs_as_much_as_its_records_and_thing_max_and_no_more() {
    let mut bed = Bed::new(50);
    let mut edits = links(600);
    edits.reverse();
    let mut costs = Vec::new();
    for edit in edits {
        let (steps, bytes) = (bed.steps, bed.bytes);
        bed.commit(&[edit]);
        costs.push((bed.steps - steps, bed.bytes - bytes));
    }
    let worst = |costs: &[(u64, i64)]| {
        let steps = costs.iter().map(|(steps, _)| *steps).max().unwrap();
        (steps, costs.iter().map(|(_, bytes)| *bytes).max().unwrap())
    };
    let (small, large) = (worst(&costs[60..160]), worst(&costs[500..]));
    effort::is_flat("steps of one late record", small.0, large.0);
    effort::is_flat(
        "bytes of one late record",
        small.1.unsigned_abs(),
        large.1.unsigned_abs(),
    );
    assert!(bed.groups_max <= GROUPS_MAX);
}

#[test]
fn a_batch_of_many_costs_no_more_for_each_than_a_batch_of_few() {
    let cost = |count: i64| {
        let mut bed = Bed::new(50);
        let mut edits = links(count);
        edits.reverse();
        bed.commit(&edits);
        bed.steps / count.unsigned_abs()
    };
    effort::is_flat("steps for each record", cost(500), cost(4000));
}

/// The attack that never finished: 6 000 links of one card, all within one window.
#[test]
fn thousands_of_links_to_as_many_sets_in_one_transaction_cost_no_more_for_each() {
    let cost = |count: i64| {
        let mut bed = Bed::of_many_sets(1000);
        let mut edits: Vec<(i64, i64, bool)> = (0..count).map(|n| (n, n / 100, true)).collect();
        edits.reverse();
        bed.commit(&edits);
        assert_eq!(bed.unmerged(), count - FULL);
        let each = count.unsigned_abs();
        (bed.steps / each, bed.bytes.unsigned_abs() / each)
    };
    let (small, large) = (cost(1000), cost(6000));
    effort::is_flat("steps for each of 6000", small.0, large.0);
    // Those beyond thing_max are activities of their own, each with its own place.
    assert!(large.1 <= 200, "{} bytes of the outbox for each", large.1);
}

/// The attack that cost 180 MB of file: 2 000 links of one card, the newest first.
#[test]
fn backdated_links_to_as_many_sets_cost_a_transaction_no_more_than_thing_max() {
    let mut bed = Bed::of_many_sets(200);
    let mut edits: Vec<(i64, i64, bool)> = (0..2000).map(|n| (n, n / 20, true)).collect();
    edits.reverse();
    let mut costs = Vec::new();
    for part in edits.chunks(50) {
        let (steps, bytes) = (bed.steps, bed.bytes);
        bed.commit(part);
        costs.push((bed.steps - steps, (bed.bytes - bytes).unsigned_abs()));
    }
    assert_eq!(bed.unmerged(), 2000 - FULL);
    assert_eq!(bed.activities().len() as i64, 2001 - FULL);
    // The group is full after three parts; from then on each moves the same number of keys.
    let worst = |costs: &[(u64, u64)]| {
        let steps = costs.iter().map(|(steps, _)| *steps).max().unwrap();
        (steps, costs.iter().map(|(_, bytes)| *bytes).max().unwrap())
    };
    let (small, large) = (worst(&costs[5..12]), worst(&costs[30..]));
    effort::is_flat("steps of a late part", small.0, large.0);
    effort::is_flat("bytes of a late part", small.1, large.1);
}

#[test]
fn any_order_in_any_batches_gives_what_the_records_say() {
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        let cap = 1 + below(9) as usize;
        let mut bed = Bed::new(cap);
        let mut live: BTreeMap<i64, i64> = BTreeMap::new();
        for step in 0..60 {
            let mut edits = Vec::new();
            for _ in 0..1 + below(8) {
                let record = below(30) as i64;
                if let Some(second) = live.remove(&record) {
                    edits.push((record, second, false));
                }
                if below(3) > 0 {
                    let second = below(600) as i64;
                    live.insert(record, second);
                    edits.push((record, second, true));
                }
            }
            bed.commit(&edits);
            let ordered = live
                .iter()
                .map(|(record, second)| (*second, *record))
                .collect();
            let expected = naive(&ordered, cap);
            assert_eq!(
                bed.activities(),
                expected,
                "seed {seed}, step {step}, cap {cap}"
            );
            assert_eq!(bed.unmerged(), live.len().saturating_sub(cap) as i64);
            let keys =
                |group: &Vec<i64>| 1 + group.iter().map(|it| it % 7).collect::<BTreeSet<_>>().len();
            assert_eq!(bed.published(), expected.iter().map(keys).sum::<usize>());
        }
    }
}

#[test]
fn a_change_of_a_group_is_small_however_many_keys_its_records_have() {
    let single = links(300);
    let orders = [single.clone(), single.into_iter().rev().collect()];
    let found = orders.map(|order| {
        let mut bed = Bed::of_many_sets(1000);
        for edit in order {
            bed.commit(&[edit]);
        }
        let longest = bed.numbers("SELECT max(length(changes)) FROM outbox");
        assert!(longest[0] < 4000, "{longest:?} bytes in one entry");
        let activities = bed.activities();
        // Each record has a set of its own beside its author.
        assert_eq!(activities[0].len() as i64, FULL);
        assert_eq!(bed.unmerged(), 300 - FULL);
        activities
    });
    assert_eq!(found[0], found[1]);
}

/// Each record becomes the first of its group, whose place in every list moves with it.
#[test]
fn newest_first_one_at_a_time_costs_a_bounded_multiple_of_oldest_first() {
    let steps = |edits: Vec<(i64, i64, bool)>| {
        let mut bed = Bed::of_many_sets(1000);
        for edit in edits {
            bed.commit(&[edit]);
        }
        bed.steps
    };
    let (oldest, newest) = (links(500), links(500).into_iter().rev().collect());
    let (oldest, newest) = (steps(oldest), steps(newest));
    println!("{oldest} steps oldest first, {newest} newest first");
    assert!(
        newest <= 4 * oldest,
        "{oldest} steps oldest first, {newest} newest first"
    );
}
