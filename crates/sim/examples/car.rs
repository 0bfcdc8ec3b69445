//! Writes a repository and its events for an unrelated implementation to read.
//!
//! `cargo run -p sim --example car -- OUTFILE [SEED]` writes three files:
//! `OUTFILE`, one whole repository as a CAR; `OUTFILE.frames`, the frames of the
//! stream, each after its length as a big-endian u32; `OUTFILE.json`, what a
//! reader must find in them.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs;

use serde_json::{Map, Value, json};
use sim::event::{Body, SeqEvent};
use sim::traffic::Traffic;
use sim::world::{World, WorldOptions};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let outfile = arguments.next().expect("usage: car OUTFILE [SEED]");
    let seed = arguments.next().map_or(1, |text| text.parse().unwrap());
    let mut world = World::new(WorldOptions {
        seed,
        accounts: 50,
        traffic: Traffic::wild(),
        ..WorldOptions::default()
    });
    let mut events = world.take_genesis();
    for _ in 0..1000 {
        events.extend(world.step());
    }
    let account = world
        .accounts()
        .iter()
        .max_by_key(|account| account.repo.len())
        .unwrap();
    let head = account.repo.head().unwrap();
    let records: Map<String, Value> = world
        .model()
        .records()
        .filter(|(_, fact)| fact.did == *account.did)
        .map(|(_, fact)| {
            (
                format!("{}/{}", fact.collection, fact.rkey),
                json!(fact.cid),
            )
        })
        .collect();
    let expected = json!({
        "seed": seed,
        "did": &*account.did,
        "root": head.cid.to_string(),
        "rev": head.rev.to_string(),
        "data": head.data.to_string(),
        "records": records,
        "frames": events.len(),
        "commits": events.iter().filter(|event| is_commit(event)).count(),
        "first_seq": events.first().unwrap().seq,
        "last_seq": events.last().unwrap().seq,
    });
    let mut frames = Vec::new();
    for event in &events {
        frames.extend((event.frame.len() as u32).to_be_bytes());
        frames.extend(&event.frame);
    }
    fs::write(&outfile, account.repo.export()).unwrap();
    fs::write(format!("{outfile}.frames"), frames).unwrap();
    fs::write(format!("{outfile}.json"), expected.to_string()).unwrap();
    println!(
        "{outfile}: {} records of {}; {} frames",
        records_in(&expected),
        account.did,
        events.len()
    );
}

fn is_commit(event: &SeqEvent) -> bool {
    matches!(event.body, Body::Commit { .. })
}

fn records_in(expected: &Value) -> usize {
    let records = expected.get("records").and_then(Value::as_object);
    records.map_or(0, Map::len)
}
