//! Invalid node blocks: every fault is reported, and the work stays bounded.

use proptest::prelude::*;
use record::car::{self, Car, CarLimits};
use record::cbor::Writer;
use record::cid::Cid;
use record::mst::{MstError, Op, Tree, invert, walk};

use crate::tree::{leaf, pool};

/// An entry as written: prefix length, suffix, link to the right.
type Written<'a> = (i64, &'a str, Option<Cid>);

fn node(left: Option<Cid>, entries: &[Written<'_>]) -> (Cid, Vec<u8>) {
    let mut writer = Writer::default();
    writer.map(2).text("e").list(entries.len());
    for (prefix, suffix, right) in entries {
        writer.map(4);
        writer.text("k").bytes(suffix.as_bytes());
        writer.text("p").int(*prefix);
        writer.text("t").link_or_null(right.as_ref());
        writer.text("v").link(&leaf(1));
    }
    writer.text("l").link_or_null(left.as_ref());
    let block = writer.into_bytes();
    (Cid::of_cbor(&block), block)
}

/// Walks the tree whose root is the first node.
fn walked(nodes: &[(Cid, Vec<u8>)]) -> Result<Vec<(String, Cid)>, MstError> {
    let pairs = nodes.iter().map(|(cid, data)| (*cid, data.as_slice()));
    let bytes = car::write(&[nodes[0].0], pairs);
    let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
    walk(&car, nodes[0].0, 1000).collect()
}

#[track_caller]
fn refused(nodes: &[(Cid, Vec<u8>)], why: &'static str) {
    assert_eq!(walked(nodes), Err(MstError::Malformed(why)));
}

/// The pool's keys: letter by letter, heights 0 to 5 within each.
fn key(letter: usize, height: usize) -> &'static str {
    &pool()[letter * 6 + height]
}

#[test]
fn a_good_tree_written_by_hand_is_read() {
    let low = node(None, &[(0, key(0, 0), None)]);
    let root = node(Some(low.0), &[(0, key(1, 1), None)]);
    assert_eq!(walked(&[root, low]).unwrap().len(), 2);
}

#[test]
fn keys_out_of_order_are_refused_within_and_across_nodes() {
    let order = "keys out of order";
    refused(
        &[node(None, &[(0, key(1, 0), None), (2, "a/0", None)])],
        order,
    );
    let twice = node(
        None,
        &[(0, key(0, 0), None), (key(0, 0).len() as i64, "", None)],
    );
    refused(&[twice], order);
    let low = node(None, &[(0, key(2, 0), None)]);
    let root = node(Some(low.0), &[(0, key(1, 1), None)]);
    refused(&[root, low.clone()], order);
    let again = node(Some(low.0), &[(0, key(3, 1), Some(low.0))]);
    refused(&[again, low], order);
}

#[test]
fn a_key_at_the_wrong_height_is_refused() {
    let wrong = "a key at the wrong height";
    let mixed = node(None, &[(0, key(0, 0), None), (2, &key(1, 1)[2..], None)]);
    refused(&[mixed], wrong);
    let low = node(None, &[(0, key(0, 0), None)]);
    let gap = node(Some(low.0), &[(0, key(1, 2), None)]);
    refused(&[gap, low], wrong);
}

#[test]
fn a_prefix_may_be_shorter_than_it_could_be_but_not_longer_than_the_key_before() {
    let (first, second) = (key(0, 0), key(1, 0));
    for shared in 0..=2 {
        let written = node(
            None,
            &[(0, first, None), (shared, &second[shared as usize..], None)],
        );
        let paths: Vec<_> = walked(&[written]).unwrap();
        assert_eq!((&*paths[0].0, &*paths[1].0), (first, second));
    }
    let long = "a prefix longer than the previous key";
    for prefix in [1000, i64::MAX, -1, i64::MIN] {
        refused(
            &[node(None, &[(0, first, None), (prefix, second, None)])],
            long,
        );
    }
    refused(&[node(None, &[(1, first, None)])], long);
}

#[test]
fn empty_nodes_and_links_under_the_lowest_layer_are_refused() {
    let empty = node(None, &[]);
    assert_eq!(walked(std::slice::from_ref(&empty)), Ok(vec![]));
    let over_empty = node(Some(empty.0), &[(0, key(1, 1), None)]);
    refused(&[over_empty, empty.clone()], "an empty node below the root");
    let low = node(None, &[(0, key(0, 0), None)]);
    refused(
        &[node(Some(low.0), &[]), low.clone()],
        "a root without keys",
    );
    let deeper = "a link below the lowest layer";
    refused(
        &[node(Some(low.0), &[(0, key(1, 0), None)]), low.clone()],
        deeper,
    );
    refused(&[node(None, &[(0, key(1, 0), Some(low.0))]), low], deeper);
}

#[test]
fn keys_that_are_no_paths_are_refused() {
    for text in ["a", "/a", "a/", "a/b/c", "a/\n", "a/é"] {
        refused(
            &[node(None, &[(0, text, None)])],
            "a key that is not a record path",
        );
    }
}

#[test]
fn a_missing_node_is_named() {
    let low = node(None, &[(0, key(0, 0), None)]);
    let root = node(Some(low.0), &[(0, key(1, 1), None)]);
    assert_eq!(
        walked(std::slice::from_ref(&root)),
        Err(MstError::Missing(low.0))
    );

    let bytes = car::write(&[root.0], [(root.0, root.1.as_slice())]);
    let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
    let create = |path| Op {
        path,
        cid: Some(leaf(1)),
        prev: None,
    };
    let inverted = invert(&car, root.0, &[create(key(1, 1))]);
    assert_eq!(
        inverted,
        Err(MstError::Missing(low.0)),
        "the heir of the root is missing"
    );
    assert_eq!(
        invert(&car, low.0, &[]),
        Err(MstError::Missing(low.0)),
        "the root itself is missing"
    );
}

#[test]
fn a_walk_ends_at_its_first_fault() {
    let low = node(None, &[(0, key(2, 0), None)]);
    let root = node(
        Some(low.0),
        &[(0, key(1, 1), None), (2, &key(3, 1)[2..], None)],
    );
    let pairs = [&root, &low].map(|(cid, data)| (*cid, data.as_slice()));
    let bytes = car::write(&[root.0], pairs);
    let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
    let mut walk = walk(&car, root.0, 1000);
    assert!(walk.next().unwrap().is_ok());
    assert!(walk.next().unwrap().is_err());
    assert!(walk.next().is_none());
}

#[test]
fn a_node_is_checked_before_it_is_inverted() {
    let twice = node(
        None,
        &[(0, key(0, 0), None), (key(0, 0).len() as i64, "", None)],
    );
    let mut longer = node(None, &[(0, key(0, 0), None)]);
    longer.1.push(0);
    for (cid, block) in [twice, longer] {
        let bytes = car::write(&[cid], [(cid, block.as_slice())]);
        let car = Car::read(&bytes, CarLimits::COMMIT, false).unwrap();
        let inverted = invert(&car, cid, &[]);
        assert!(
            matches!(inverted, Err(MstError::Malformed(_))),
            "{inverted:?}"
        );
    }
}

#[test]
fn a_subtree_with_keys_outside_its_range_is_not_inverted() {
    let order = Err(MstError::Malformed("keys out of order"));
    let op = |path| Op {
        path,
        cid: Some(leaf(1)),
        prev: None,
    };
    let high = node(None, &[(0, key(3, 0), None)]);
    let low = node(None, &[(0, key(0, 0), None)]);
    for (left, right) in [(Some(high.0), None), (None, Some(low.0))] {
        let root = node(left, &[(0, key(2, 1), right)]);
        let pairs = [&root, &high, &low].map(|(cid, data)| (*cid, data.as_slice()));
        let bytes = car::write(&[root.0], pairs);
        let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
        let beside = if left.is_some() { key(1, 0) } else { key(4, 0) };
        assert_eq!(invert(&car, root.0, &[op(beside)]), order, "on the path");
    }
    let root = node(Some(high.0), &[(0, key(2, 1), Some(low.0))]);
    let pairs = [&root, &high, &low].map(|(cid, data)| (*cid, data.as_slice()));
    let bytes = car::write(&[root.0], pairs);
    let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
    assert_eq!(
        invert(&car, root.0, &[op(key(2, 1))]),
        order,
        "while merging"
    );
}

#[test]
fn operations_that_contradict_the_tree_or_each_other_are_refused() {
    let mut tree = Tree::new();
    let path = key(1, 1);
    tree.insert(path, leaf(1)).unwrap();
    let blocks = tree.blocks();
    let pairs = blocks.iter().map(|(cid, data)| (*cid, data.as_slice()));
    let bytes = car::write(&[tree.root()], pairs);
    let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
    let op = |path, cid, prev| Op { path, cid, prev };
    let inverted = |ops: &[Op<'_>]| invert(&car, tree.root(), ops);
    let (new, old) = (Some(leaf(1)), Some(leaf(2)));

    assert_eq!(inverted(&[op(path, new, None)]), Ok(Tree::new().root()));
    let wrong = Err(MstError::Disagrees("another record at the path"));
    assert_eq!(inverted(&[op(path, old, None)]), wrong);
    assert_eq!(inverted(&[op(path, None, old)]), wrong);
    assert_eq!(inverted(&[op(key(2, 0), new, None)]), wrong);
    let twice = Err(MstError::Disagrees("two operations on one path"));
    assert_eq!(inverted(&[op(path, new, None), op(path, new, old)]), twice);
    let nothing = Err(MstError::Disagrees("a delete without its record"));
    assert_eq!(inverted(&[op(key(2, 0), None, None)]), nothing);
    assert_eq!(inverted(&[op("no path", None, old)]), Err(MstError::Path));
}

#[test]
fn a_node_linked_many_times_is_read_once() {
    // Layer by layer each node links the one below twice: 2^5 visits if it were followed.
    let mut nodes = vec![node(None, &[(0, key(0, 0), None)])];
    for height in 1..6 {
        let below = nodes[0].0;
        nodes.insert(
            0,
            node(Some(below), &[(0, key(height, height), Some(below))]),
        );
    }
    refused(&nodes, "keys out of order");
}

proptest! {
    #[test]
    fn broken_node_blocks_never_panic(
        which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
        value in any::<u8>(), path_at in 0usize..96,
    ) {
        let mut tree = Tree::new();
        for path in pool() {
            tree.insert(path, leaf(1)).unwrap();
        }
        let mut blocks = tree.blocks();
        let which = which.index(blocks.len());
        let at = at.index(blocks[which].1.len());
        let changed = blocks[which].1[at] != value;
        blocks[which].1[at] = value;
        // Hashes unchecked, as if a collision had been found: the other checks must suffice.
        let pairs = blocks.iter().map(|(cid, data)| (*cid, data.as_slice()));
        let bytes = car::write(&[tree.root()], pairs);
        let car = Car::read(&bytes, CarLimits::COMMIT, false).unwrap();
        let walked: Result<Vec<_>, _> = walk(&car, tree.root(), 1000).collect();
        if let Ok(records) = walked {
            prop_assert!(records.is_sorted_by(|(a, _), (b, _)| a < b));
        }
        let op = Op { path: &pool()[path_at], cid: Some(leaf(1)), prev: Some(leaf(2)) };
        let inverted = invert(&car, tree.root(), &[op]);
        prop_assert!(changed || inverted.is_ok());
    }
}
