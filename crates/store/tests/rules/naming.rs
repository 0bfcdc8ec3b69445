//! A record that needs any other one which names a value.

use decide::batch::Order;
use decide::rows::{Parked, Reference};

use crate::case::{Case, commit, delete, names, op, put};

fn label(value: &str) -> decide::batch::Put {
    let mut label = put(value);
    label.links = vec![("of".into(), value.into())];
    label.satisfies = vec![names("x.label", value).key()];
    label
}

fn tag(value: &str) -> decide::batch::Put {
    let mut tag = put("tag");
    tag.needs = vec![names("x.label", value)];
    tag
}

/// A stranger may name a value as often as he likes, and take all of it back at once.
#[test]
fn any_number_of_records_that_name_a_value_may_be_deleted_at_once() {
    for left in [0, 1] {
        let mut case = Case::new();
        let n = 700;
        for chunk in (0..n + left).collect::<Vec<_>>().chunks(100) {
            let ops = chunk.iter();
            let ops = ops.map(|n| op("x.label", &n.to_string(), label("v")));
            case.events(vec![commit(0, 1, ops.collect())]);
        }
        let ops = (0..n).map(|n| delete("x.label", &n.to_string()));
        let tag = commit(1, 1, vec![op("x.tag", "0", tag("v"))]);
        case.events(vec![commit(0, 2, ops.collect()), tag]);
        case.settle();
        assert_eq!(case.live().contains(&"\"tag\"".into()), left == 1);
        assert_eq!(case.rows::<Parked>().len(), 1 - left);
    }
}

#[test]
fn another_text_with_the_same_hash_is_not_what_was_needed() {
    let mut case = Case::new();
    let other = op("x.label", "0", label("other"));
    case.events(vec![commit(0, 1, vec![other])]);
    let target = decide::ids::hash("v");
    case.damage(|row: &mut Reference| row.target = target);
    case.events(vec![commit(1, 1, vec![op("x.tag", "0", tag("v"))])]);
    assert_eq!(case.rows::<Parked>().len(), 1);
    case.events(vec![commit(0, 2, vec![op("x.label", "1", label("v"))])]);
    case.settle();
    assert!(case.live().contains(&"\"tag\"".into()));
}

/// What one batch brings satisfies what it needs, whatever came first in it.
#[test]
fn a_record_of_the_same_batch_satisfies_a_need() {
    let mut case = Case::new();
    let label = commit(0, 1, vec![op("x.label", "0", label("v"))]);
    case.events(vec![label, commit(1, 1, vec![op("x.tag", "0", tag("v"))])]);
    assert_eq!(case.rows::<Parked>(), []);
    case.batch(Vec::new(), vec![Order::Queues]);
    case.check();
}
