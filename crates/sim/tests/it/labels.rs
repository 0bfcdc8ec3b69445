//! What the world calls sound is sound, by its own lexicons and by the public ones.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use record::lexicon::Catalog;
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};

/// Checks the label of every record of a world against `catalog`.
fn check(catalog: &Catalog, seed: u64) {
    let mut world = World::new(WorldOptions {
        seed,
        accounts: 30,
        traffic: Traffic::wild().with(Act::Spoiled, 20.0),
        ..WorldOptions::default()
    });
    for _ in 0..2500 {
        world.step();
    }
    let (mut sound, mut unsound) = (0, 0);
    for (uri, fact) in world.model().records() {
        if fact.collection.starts_with("com.example.garden.") {
            let nsid = &fact.collection;
            assert!(fact.sound && !catalog.describes(nsid), "{uri}");
            continue;
        }
        let account = world.account(&fact.did).unwrap();
        let path = format!("{}/{}", fact.collection, fact.rkey);
        let (_, block) = account.repo.record(&path).unwrap();
        let value = record::cbor::decode(block).unwrap();
        let verdict = catalog.validate(&fact.collection, &value);
        assert_eq!(verdict.is_ok(), fact.sound, "{uri}: {verdict:?}\n{value:?}");
        catalog.validate_key(&fact.collection, &fact.rkey).unwrap();
        sound += usize::from(fact.sound);
        unsound += usize::from(!fact.sound);
    }
    assert!(sound > 1000 && unsound > 100, "{sound} and {unsound}");
}

#[test]
fn labels_agree_with_the_lexicons_that_ship() {
    let catalog = Catalog::parse(sim::lexicons::ALL.iter().copied()).unwrap();
    check(&catalog, 61);
}

fn json_files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|it| it == "json") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn labels_agree_with_the_public_lexicons() {
    let folder: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/lexicons/atproto");
    if !folder.is_dir() {
        // The macros would be captured with the output of a test that passes.
        let line = "sim: no published lexicons in ../shared/fixtures; testing our own only\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    }
    let mut texts = Vec::new();
    json_files(&folder, &mut texts);
    let catalog = Catalog::parse(texts.iter().map(String::as_str)).unwrap();
    check(&catalog, 62);
}
