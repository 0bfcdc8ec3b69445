//! Records that wait, and the dead letters of those that waited too long.

use std::sync::Arc;

use decide::accounting::Outcome;
use decide::batch::{Fault, Put};
use decide::change::Change;
use decide::derived::{Derived, Part};
use decide::rows::{Dead, Parked};
use decide::rules::{Expressions, Subject};

use crate::case::{Case, commit, did, fault, needs, op, put};
use crate::world::MERGED;

/// Every record that looks at others breaks a rule.
#[derive(Debug)]
struct Strict;

impl Expressions for Strict {
    fn derive(&self, record: Subject<'_>) -> Put {
        let mut again = put("");
        again.body = record.body.to_owned();
        again.needs = vec![needs(1, "x.post", "0")];
        again.linked = Some(Vec::new());
        again
    }

    fn broken(&self, _: Subject<'_>, _: &dyn Fn(&str) -> Option<String>) -> Option<Fault> {
        Some(fault("no"))
    }
}

fn reply() -> Put {
    let mut reply = put("reply");
    reply.needs = vec![needs(1, "x.post", "0")];
    reply.linked = Some(Vec::new());
    reply
}

fn parent() -> Put {
    let mut parent = put("parent");
    parent.satisfies = vec![format!("at://{}/x.post/0", did(1))];
    parent
}

#[test]
fn a_dead_letter_keeps_its_number_when_its_record_breaks_a_rule() {
    let mut case = Case::new();
    case.rules.expressions = Some(Arc::new(Strict));
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", reply())])]);
    for _ in 0..5 {
        case.now_us += 60_000_000;
        case.settle();
    }
    let before = case.rows::<Dead>();
    assert_eq!((before.len(), case.rows::<Parked>().len()), (1, 1));
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent())])]);
    case.settle();
    let after = case.rows::<Dead>();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].id, before[0].id);
    assert_eq!(after[0].arrivals, 1);
    assert!(after[0].fault.contains("\"no\""), "{}", after[0].fault);
    assert_eq!(case.rows::<Parked>(), []);
    assert_eq!(case.outcome(Outcome::Dead), 1);
}

/// A replayed dead letter that waits keeps its number if it is refused in the end.
#[test]
fn a_record_that_was_a_dead_letter_is_refused_under_that_number() {
    let mut case = Case::new();
    case.rules.expressions = Some(Arc::new(Strict));
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", reply())])]);
    case.damage(|row: &mut Parked| row.was = Some(decide::ids::DeadId(77)));
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent())])]);
    case.settle();
    assert_eq!(case.rows::<Dead>()[0].id.0, 77);
}

#[test]
fn parked_records_are_tried_in_batches_of_bounded_bytes() {
    let mut case = Case::new();
    for n in 0..4 {
        let mut reply = reply();
        reply.linked = None;
        reply.body = format!("\"{}\"", "x".repeat(2_500));
        let reply = op("x.reply", &n.to_string(), reply);
        case.events(vec![commit(0, n + 1, vec![reply])]);
    }
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent())])]);
    let mut batches = 0;
    while let Some(orders) = case.due() {
        case.batch(Vec::new(), orders);
        batches += 1;
    }
    assert_eq!((batches, case.live().len()), (4, 5));
}

/// The author of many records about one thing decides how many groups change at once.
#[test]
fn groups_that_change_at_once_are_published_in_parts() {
    let mut case = Case::new();
    let link = |time_us: i64| {
        let mut link = put("link");
        link.time_us = Some(time_us);
        link.derived = Derived {
            parts: vec![Part {
                index: MERGED,
                author: did(0),
                thing: Some("thing".into()),
                keys: vec![did(0)],
                adds: Vec::new(),
            }],
            ..Derived::default()
        };
        op("x.link", &time_us.to_string(), link)
    };
    let ops = (0..11).map(|n| link(n * 1_000)).collect();
    case.events(vec![commit(0, 1, ops)]);
    let parts: Vec<(usize, bool)> = case
        .changes()
        .iter()
        .filter_map(|change| match change {
            Change::Regroup {
                was,
                now,
                continues,
                ..
            } => Some((was.len() + now.len(), *continues)),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [(4, true), (4, true), (3, false)]);
}

/// A later configuration puts records under the key "new" as well.
#[derive(Debug)]
struct Later;

impl Expressions for Later {
    fn derive(&self, record: Subject<'_>) -> Put {
        let mut again = reply();
        again.linked = None;
        again.body = record.body.to_owned();
        again.time_us = Some(5);
        again.derived.entries = vec![(crate::world::POSTS, vec!["new".into()])];
        again
    }

    fn broken(&self, _: Subject<'_>, _: &dyn Fn(&str) -> Option<String>) -> Option<Fault> {
        None
    }
}

#[test]
fn a_record_that_waited_is_placed_as_the_configuration_says_when_it_is_applied() {
    let mut case = Case::new();
    let mut waits = reply();
    waits.linked = None;
    waits.derived.entries = vec![(crate::world::LIKES, vec![did(0)])];
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", waits)])]);
    case.rules.layout = 2;
    case.rules.expressions = Some(Arc::new(Later));
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent())])]);
    case.settle();
    let entries = case.rows::<decide::rows::Entry>();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].index, entries[0].time_us),
        (crate::world::POSTS, 5)
    );
}
