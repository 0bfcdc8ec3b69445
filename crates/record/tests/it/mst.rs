//! The tree against vectors and against itself.

use record::car::{self, Car, CarLimits};
use record::cid::Cid;
use record::mst::{Op, Tree, common_prefix, height, invert, walk};
use serde_json::Value as Json;

use crate::{published, vectors};

fn strings(value: &Json) -> Vec<&str> {
    let list = value.as_array().unwrap().iter();
    list.map(|item| item.as_str().unwrap()).collect()
}

fn cid(value: &Json) -> Option<Cid> {
    value.as_str().map(|text| Cid::parse(text).unwrap())
}

fn archive(root: Cid, blocks: &[(Cid, Vec<u8>)]) -> Vec<u8> {
    let blocks = blocks.iter().map(|(cid, data)| (*cid, data.as_slice()));
    car::write(&[root], blocks)
}

#[test]
fn keys_have_the_height_of_the_vectors() {
    let ours = vectors::json("tree");
    let ours = ours["heights"].as_array().unwrap();
    let published = published::cases("interop/mst/key_heights.json");
    for case in ours.iter().chain(&published) {
        let key = case["key"].as_str().unwrap();
        let expected = case["height"].as_u64().unwrap();
        assert_eq!(u64::from(height(key.as_bytes())), expected, "{key}");
    }
}

#[test]
fn example_keys_have_the_height_their_name_says() {
    for key in published::lines("interop/mst/example_keys.txt", true).unwrap_or_default() {
        let expected = key.as_bytes()[1] - b'0';
        assert_eq!(height(key.as_bytes()), expected, "{key}");
    }
}

#[track_caller]
fn check_prefix(left: &str, right: &str, length: u64) {
    let found = common_prefix(left.as_bytes(), right.as_bytes());
    assert_eq!(found as u64, length, "{left} and {right}");
}

#[test]
fn a_common_prefix_is_counted_in_bytes() {
    for (left, right, length) in [
        ("", "", 0),
        ("", "quince", 0),
        ("quince", "", 0),
        ("quince", "quince", 6),
        ("quince", "quinoa", 4),
        ("quince", "quince tree", 6),
        ("quince tree", "quince", 6),
        ("quince", "Quince", 0),
        ("quince", "aquince", 0),
        // Two letters of two bytes each that differ in their second byte.
        ("gä", "gö", 2),
        ("りんご", "りす", 4),
    ] {
        check_prefix(left, right, length);
    }
    for case in published::cases("interop/mst/common_prefix.json") {
        let (left, right) = (case["left"].as_str(), case["right"].as_str());
        check_prefix(left.unwrap(), right.unwrap(), case["len"].as_u64().unwrap());
    }
}

/// Checks that the operations lead from `before` to the named roots, and that
/// the proof of the commit undoes them. Gives the nodes of the proof, sorted.
#[track_caller]
fn check_proof(before: &Tree, ops: &[Op<'_>], roots: [&Json; 2], name: &str) -> Vec<Cid> {
    let mut after = before.clone();
    for op in ops {
        let prev = match op.cid {
            Some(cid) => after.insert(op.path, cid).unwrap(),
            None => after.remove(op.path).unwrap(),
        };
        assert_eq!(prev, op.prev, "{name}");
    }
    let found = [before.root().to_string(), after.root().to_string()];
    assert_eq!(found.each_ref(), roots, "{name}");
    let proof = after.proof(ops.iter().map(|op| op.path));
    let bytes = archive(after.root(), &proof);
    let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
    assert_eq!(invert(&car, after.root(), ops), Ok(before.root()), "{name}");
    let mut nodes: Vec<Cid> = proof.iter().map(|(cid, _)| *cid).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn a_commit_has_the_roots_and_the_proof_of_the_vectors() {
    for case in vectors::cases("proofs") {
        let name = case["name"].as_str().unwrap();
        let mut before = Tree::new();
        for (path, record) in case["records"].as_object().unwrap() {
            before.insert(path, cid(record).unwrap()).unwrap();
        }
        let ops: Vec<Op<'_>> = case["operations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|op| Op {
                path: op["path"].as_str().unwrap(),
                cid: cid(&op["cid"]),
                prev: cid(&op["prev"]),
            })
            .collect();
        let roots = [&case["rootBefore"], &case["rootAfter"]];
        let mut expected: Vec<Cid> = strings(&case["proof"])
            .iter()
            .map(|text| Cid::parse(text).unwrap())
            .collect();
        expected.sort_unstable();
        assert_eq!(check_proof(&before, &ops, roots, name), expected, "{name}");
    }
}

#[test]
fn a_commit_has_the_roots_and_the_proof_that_were_published() {
    for case in published::cases("interop/firehose/commit-proof-fixtures.json") {
        let name = case["comment"].as_str().unwrap();
        let leaf = cid(&case["leafValue"]);
        let mut before = Tree::new();
        for path in strings(&case["keys"]) {
            before.insert(path, leaf.unwrap()).unwrap();
        }
        let (adds, dels) = (strings(&case["adds"]), strings(&case["dels"]));
        let adds = adds.into_iter().map(|path| (path, leaf, None));
        let dels = dels.into_iter().map(|path| (path, None, leaf));
        let ops: Vec<Op<'_>> = adds
            .chain(dels)
            .map(|(path, cid, prev)| Op { path, cid, prev })
            .collect();
        let roots = [&case["rootBeforeCommit"], &case["rootAfterCommit"]];
        let carried = check_proof(&before, &ops, roots, name);
        for expected in strings(&case["blocksInProof"]) {
            let expected = Cid::parse(expected).unwrap();
            assert!(carried.contains(&expected), "{name}: without {expected}");
        }
    }
}

#[test]
fn the_empty_repo_has_the_root_of_the_vectors() {
    let expected = &vectors::json("tree")["emptyRoot"];
    assert_eq!(Tree::new().root().to_string(), *expected);
}

#[track_caller]
fn check_walk(paths: &[&str]) {
    let mut tree = Tree::new();
    for path in paths {
        tree.insert(path, Cid::of_cbor(path.as_bytes())).unwrap();
    }
    let bytes = archive(tree.root(), &tree.blocks());
    let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
    let walked: Vec<(String, Cid)> = walk(&car, tree.root(), 1000)
        .collect::<Result<_, _>>()
        .unwrap();
    let listed: Vec<(String, Cid)> = tree
        .records()
        .into_iter()
        .map(|(path, cid)| (path.to_owned(), cid))
        .collect();
    assert_eq!(walked, listed);
    assert_eq!(walked.len(), paths.len());
}

#[test]
fn a_walk_returns_every_record_in_order() {
    check_walk(&[]);
    for case in vectors::cases("proofs") {
        let records = case["records"].as_object().unwrap();
        check_walk(&records.keys().map(String::as_str).collect::<Vec<_>>());
    }
    let keys = published::lines("interop/mst/example_keys.txt", true).unwrap_or_default();
    check_walk(&keys.iter().map(String::as_str).collect::<Vec<_>>());
}
