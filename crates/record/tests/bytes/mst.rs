//! The tree against the interop vectors and against itself.

use record::car::{self, Car, CarLimits};
use record::cid::Cid;
use record::mst::{Op, Tree, common_prefix, height, invert, walk};

use crate::fixture;

fn strings(value: &serde_json::Value) -> Vec<&str> {
    let list = value.as_array().unwrap().iter();
    list.map(|item| item.as_str().unwrap()).collect()
}

fn archive(root: Cid, blocks: &[(Cid, Vec<u8>)]) -> Vec<u8> {
    let blocks = blocks.iter().map(|(cid, data)| (*cid, data.as_slice()));
    car::write(&[root], blocks)
}

#[test]
fn heights_are_those_of_the_interop_vectors() {
    let Some(cases) = fixture::json("mst/key_heights.json") else {
        return;
    };
    for case in cases.as_array().unwrap() {
        let key = case["key"].as_str().unwrap();
        let expected = case["height"].as_u64().unwrap();
        assert_eq!(u64::from(height(key.as_bytes())), expected, "{key}");
    }
}

#[test]
fn prefixes_are_those_of_the_interop_vectors() {
    let Some(cases) = fixture::json("mst/common_prefix.json") else {
        return;
    };
    for case in cases.as_array().unwrap() {
        let (left, right) = (case["left"].as_str(), case["right"].as_str());
        let length = common_prefix(left.unwrap().as_bytes(), right.unwrap().as_bytes());
        assert_eq!(length as u64, case["len"].as_u64().unwrap(), "{case}");
    }
}

#[test]
fn example_keys_have_the_height_their_name_says() {
    let Some(keys) = fixture::text("mst/example_keys.txt") else {
        return;
    };
    for key in keys.lines().filter(|key| !key.is_empty()) {
        let expected = key.as_bytes()[1] - b'0';
        assert_eq!(height(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn commit_proofs_hold_the_expected_blocks_and_invert() {
    let Some(cases) = fixture::json("firehose/commit-proof-fixtures.json") else {
        return;
    };
    for case in cases.as_array().unwrap() {
        let comment = case["comment"].as_str().unwrap();
        let leaf = Cid::parse(case["leafValue"].as_str().unwrap()).unwrap();
        let (adds, dels) = (strings(&case["adds"]), strings(&case["dels"]));
        let mut tree = Tree::new();
        for key in strings(&case["keys"]) {
            tree.insert(key, leaf).unwrap();
        }
        let before = tree.root();
        assert_eq!(before.to_string(), case["rootBeforeCommit"], "{comment}");
        for key in &adds {
            tree.insert(key, leaf).unwrap();
        }
        for key in &dels {
            assert_eq!(tree.remove(key).unwrap(), Some(leaf));
        }
        let after = tree.root();
        assert_eq!(after.to_string(), case["rootAfterCommit"], "{comment}");

        let proof = tree.proof(adds.iter().chain(&dels).copied());
        for expected in strings(&case["blocksInProof"]) {
            let expected = Cid::parse(expected).unwrap();
            let carried = proof.iter().any(|(cid, _)| *cid == expected);
            assert!(carried, "{comment}: {expected} is not in the proof");
        }
        let ops: Vec<Op<'_>> = adds
            .iter()
            .map(|path| (path, Some(leaf), None))
            .chain(dels.iter().map(|path| (path, None, Some(leaf))))
            .map(|(path, cid, prev)| Op { path, cid, prev })
            .collect();
        let bytes = archive(after, &proof);
        let car = Car::read(&bytes, CarLimits::COMMIT, true).unwrap();
        assert_eq!(invert(&car, after, &ops), Ok(before), "{comment}");
    }
}

#[test]
fn a_walk_returns_every_record_in_order() {
    let Some(keys) = fixture::text("mst/example_keys.txt") else {
        return;
    };
    let mut tree = Tree::new();
    for key in keys.lines().filter(|key| !key.is_empty()) {
        tree.insert(key, Cid::of_cbor(key.as_bytes())).unwrap();
    }
    let bytes = archive(tree.root(), &tree.blocks());
    let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
    let walked: Vec<(String, Cid)> = walk(&car, tree.root(), 1000)
        .collect::<Result<_, _>>()
        .unwrap();
    let held: Vec<(String, Cid)> = tree
        .records()
        .into_iter()
        .map(|(path, cid)| (path.to_owned(), cid))
        .collect();
    assert_eq!(walked, held);
    assert_eq!(walked.len(), 156);
}
