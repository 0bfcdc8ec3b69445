//! A small fixed world, posted into: what `instructions/run` counts.
//!
//! In:    nothing.
//! Out:   how many records were written into rings; always the same.
//! Never: anything drawn, measured or timed.

#![allow(clippy::print_stdout)]

use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, RecordId, Settings, TargetSpec, Timelines,
};

const READERS: u32 = 4_000;
const AUTHORS: u32 = 500;
const FOLLOWS: u32 = 30;
/// Enough to fill every ring, so that most pushes drop an entry.
const FILLING: u64 = 4_000;
const POSTS: u64 = 2_000;
const START_US: i64 = 1_700_000_000_000_000;

/// Numbers that look drawn.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

fn main() {
    let mut engine = Timelines::new(
        Settings {
            feeds: vec![FeedSpec {
                targets: vec![TargetSpec { items_max: 100 }],
                include_self: false,
            }],
            ..Settings::default()
        },
        0,
    );
    engine.loaded(0, 0, None);
    for reader in 0..READERS {
        let followed = |at| mixed(u64::from(reader * FOLLOWS + at)) % u64::from(AUTHORS);
        let follows = KeyList::new((0..FOLLOWS).map(|at| KeyId(followed(at) as u32)));
        let cold = Cold {
            follows: &follows,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        engine.register(0, KeyId(AUTHORS + reader), &cold, START_US);
    }
    while engine.step(START_US, 100_000) {}
    fill(&mut engine, 0..FILLING);
    let before = engine.stats().pushes;
    post(&mut engine, FILLING..FILLING + POSTS);
    println!("{} pushes", engine.stats().pushes - before);
}

/// Posts that are not counted.
#[inline(never)]
fn fill(engine: &mut Timelines, ids: std::ops::Range<u64>) {
    publish(engine, ids);
}

/// Posts that are counted.
#[inline(never)]
fn post(engine: &mut Timelines, ids: std::ops::Range<u64>) {
    publish(engine, ids);
}

fn publish(engine: &mut Timelines, ids: std::ops::Range<u64>) {
    let texts: Vec<(u64, u32, i64, String)> = ids
        .map(|id| {
            let author = (mixed(id) % u64::from(AUTHORS)) as u32;
            // Every tenth is late by up to two seconds.
            let late_us = if id % 10 == 0 {
                mixed(id + 7) % 2_000_000
            } else {
                0
            };
            let time_us = START_US + id as i64 * 20_000 - late_us as i64;
            (
                id,
                author,
                time_us,
                format!("at://did:plc:{author:024}/app.bsky.feed.post/{id:013}"),
            )
        })
        .collect();
    for some in texts.chunks(32) {
        let keys: Vec<[KeyId; 1]> = some
            .iter()
            .map(|&(_, author, ..)| [KeyId(author)])
            .collect();
        let records: Vec<NewRecord<'_>> = some
            .iter()
            .zip(&keys)
            .map(|((id, author, time_us, uri), keys)| NewRecord {
                id: RecordId(*id),
                time_us: *time_us,
                uri,
                author: KeyId(*author),
                keys,
            })
            .collect();
        engine.insert_all(0, 0, &records);
        engine.end();
    }
}
