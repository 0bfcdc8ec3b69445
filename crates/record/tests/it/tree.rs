//! The tree under random commits, against a slow tree that follows the
//! definition and shares no code with the crate's.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use proptest::prelude::*;
use record::car::{self, Car, CarLimits};
use record::cbor::encode;
use record::cid::Cid;
use record::mst::{Op, Tree, height, invert, walk};
use record::value::Value;

/// Keys of all heights from 0 to 5 in equal numbers. Random keys would give
/// trees so flat that splits and merges across several layers hardly occur.
pub(crate) fn pool() -> &'static [String] {
    static POOL: OnceLock<Vec<String>> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut pool = Vec::new();
        for letter in 'a'..='p' {
            for wanted in 0..6 {
                let mut names = (0u32..).map(|n| format!("c.{letter}/{wanted}{n}"));
                pool.extend(names.find(|name| height(name.as_bytes()) == wanted));
            }
        }
        pool
    })
}

pub(crate) fn leaf(version: u8) -> Cid {
    Cid::of_cbor(&[version])
}

/// The node over sorted `records` at `layer`, by the definition; its blocks
/// go to `blocks`. `None` if there are no records.
fn slow_node(
    layer: u8,
    records: &[(&String, &Cid)],
    blocks: &mut BTreeMap<Cid, Vec<u8>>,
) -> Option<Cid> {
    if records.is_empty() {
        return None;
    }
    let link = |cid: Option<Cid>| cid.map_or(Value::Null, Value::Link);
    let mut entries = Vec::new();
    let mut left = Value::Null;
    let mut rest = records;
    let mut last = "";
    let mut first = true;
    while first || !rest.is_empty() {
        let entry = (!first).then(|| rest[0]);
        let below = if first { rest } else { &rest[1..] };
        first = false;
        let end = below
            .iter()
            .position(|(key, _)| height(key.as_bytes()) == layer)
            .unwrap_or(below.len());
        let child = layer
            .checked_sub(1)
            .and_then(|layer| slow_node(layer, &below[..end], blocks));
        rest = &below[end..];
        let Some((key, cid)) = entry else {
            left = link(child);
            continue;
        };
        let shared = (0..=last.len().min(key.len()))
            .rev()
            .find(|&n| last[..n] == key[..n])
            .unwrap();
        entries.push(Value::Map(vec![
            (
                "k".into(),
                Value::Bytes(Cow::Borrowed(&key.as_bytes()[shared..])),
            ),
            ("p".into(), Value::Int(shared as i64)),
            ("t".into(), link(child)),
            ("v".into(), Value::Link(*cid)),
        ]));
        last = key;
    }
    let block = encode(&Value::Map(vec![
        ("e".into(), Value::List(entries)),
        ("l".into(), left),
    ]));
    let cid = Cid::of_cbor(&block);
    blocks.insert(cid, block);
    Some(cid)
}

fn slow_tree(records: &BTreeMap<String, Cid>) -> (Cid, BTreeMap<Cid, Vec<u8>>) {
    let sorted: Vec<_> = records.iter().collect();
    let top = records.keys().map(|key| height(key.as_bytes())).max();
    let mut blocks = BTreeMap::new();
    let root = slow_node(top.unwrap_or(0), &sorted, &mut blocks).unwrap_or_else(|| {
        let empty = b"\xa2\x61e\x80\x61l\xf6".to_vec();
        let cid = Cid::of_cbor(&empty);
        blocks.insert(cid, empty);
        cid
    });
    (root, blocks)
}

/// Applies one commit of distinct paths to tree and model.
fn commit(
    tree: &mut Tree,
    model: &mut BTreeMap<String, Cid>,
    changes: &BTreeMap<usize, Option<u8>>,
) -> Vec<Op<'static>> {
    let mut ops = Vec::new();
    for (&at, version) in changes {
        let path = pool()[at].as_str();
        let cid = version.map(leaf);
        let prev = match cid {
            Some(cid) => {
                let prev = tree.insert(path, cid).unwrap();
                assert_eq!(prev, model.insert(path.to_owned(), cid));
                prev
            }
            None => {
                let prev = tree.remove(path).unwrap();
                assert_eq!(prev, model.remove(path));
                prev
            }
        };
        if cid != prev {
            ops.push(Op { path, cid, prev });
        }
    }
    ops
}

fn commits() -> impl Strategy<Value = Vec<BTreeMap<usize, Option<u8>>>> {
    let change = prop_oneof![3 => (0u8..4).prop_map(Some), 2 => Just(None)];
    let one = prop::collection::btree_map(0..pool().len(), change, 1..6);
    prop::collection::vec(one, 1..25)
}

#[test]
fn the_empty_repo_has_its_known_root() {
    let known = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";
    assert_eq!(Tree::new().root().to_string(), known);
    let mut tree = Tree::new();
    tree.insert(&pool()[5], leaf(1)).unwrap();
    tree.remove(&pool()[5]).unwrap();
    assert_eq!(tree.root().to_string(), known);
}

#[test]
fn invalid_record_paths_are_refused() {
    let mut tree = Tree::new();
    let long = format!("c/{}", "x".repeat(1023));
    for path in [
        "", "a", "/", "a/", "/b", "a/b/c", "a//b", "a b/c", "a/é", "a/b@", &long,
    ] {
        assert!(tree.insert(path, leaf(1)).is_err(), "{path}");
    }
    for byte in 0..=127u8 {
        let path = format!("a/b{}c", char::from(byte));
        let allowed = byte.is_ascii_alphanumeric() || b"_~-:.".contains(&byte);
        assert_eq!(tree.insert(&path, leaf(1)).is_ok(), allowed, "{path:?}");
    }
    let longest = format!("c/{}", "x".repeat(1022));
    for path in ["a/b", "A-z_~:.0/9:~_-.", &longest] {
        assert!(tree.insert(path, leaf(1)).is_ok(), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_tree_equals_the_slow_tree_of_its_records(commits in commits()) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::new());
        for changes in &commits {
            commit(&mut tree, &mut model, changes);
            let (root, blocks) = slow_tree(&model);
            prop_assert_eq!(tree.root(), root);
            prop_assert_eq!(tree.blocks().into_iter().collect::<BTreeMap<_, _>>(), blocks);
        }
        for path in pool() {
            prop_assert_eq!(tree.get(path), model.get(path).copied());
        }
    }

    #[test]
    fn a_proof_holds_every_new_node_and_undoes_its_commit(commits in commits()) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::new());
        for changes in &commits {
            let before = tree.clone();
            let ops = commit(&mut tree, &mut model, changes);
            let proof = tree.proof(ops.iter().map(|op| op.path));
            let known: BTreeSet<Cid> = before.blocks().into_iter().map(|(cid, _)| cid).collect();
            for (cid, _) in tree.blocks() {
                let carried = known.contains(&cid) || proof.iter().any(|(node, _)| *node == cid);
                prop_assert!(carried, "a new node is not in the proof");
            }
            let pairs = proof.iter().map(|(cid, data)| (*cid, data.as_slice()));
            let bytes = car::write(&[tree.root()], pairs);
            let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
            prop_assert_eq!(invert(&car, tree.root(), &ops), Ok(before.root()));
            let reversed: Vec<_> = ops.iter().rev().copied().collect();
            prop_assert_eq!(invert(&car, tree.root(), &reversed), Ok(before.root()));

            for left_out in 0..ops.len() {
                let mut fewer = ops.clone();
                fewer.remove(left_out);
                prop_assert_ne!(invert(&car, tree.root(), &fewer), Ok(before.root()));
            }
            for op in &ops {
                let other = Some(leaf(99));
                for wrong in [Op { cid: other, ..*op }, Op { prev: other, ..*op }] {
                    let wrong_ops: Vec<_> = ops.iter().map(|o| if o == op { wrong } else { *o }).collect();
                    prop_assert_ne!(invert(&car, tree.root(), &wrong_ops), Ok(before.root()));
                }
            }
        }
    }

    #[test]
    fn a_walk_of_the_archive_is_the_model(commits in commits()) {
        let (mut tree, mut model) = (Tree::new(), BTreeMap::new());
        for changes in &commits {
            commit(&mut tree, &mut model, changes);
        }
        let blocks = tree.blocks();
        let pairs = blocks.iter().map(|(cid, data)| (*cid, data.as_slice()));
        let bytes = car::write(&[tree.root()], pairs);
        let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
        let walked: Result<BTreeMap<_, _>, _> = walk(&car, tree.root(), model.len()).collect();
        prop_assert_eq!(walked.as_ref(), Ok(&model));
        if !model.is_empty() {
            let fewer = walk(&car, tree.root(), model.len() - 1).last().unwrap();
            prop_assert!(fewer.is_err());
        }
        let listed: Vec<_> = tree.records().into_iter().map(|(path, cid)| (path.to_owned(), cid)).collect();
        prop_assert_eq!(listed, model.into_iter().collect::<Vec<_>>());
    }
}
