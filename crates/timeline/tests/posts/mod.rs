//! An engine with one feed, and posts for it.

#![allow(dead_code)] // Not every test that includes it uses all of it.

use timeline::{FeedSpec, KeyId, NewRecord, RecordId, Settings, TargetSpec, Timelines};

pub(crate) fn world(settings: Settings) -> Timelines {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 200 }],
            include_self: false,
        }],
        ..settings
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    engine
}

/// Posts of so many authors, as the public network names them.
pub(crate) fn post(engine: &mut Timelines, ids: std::ops::Range<u64>, authors: u64) {
    for id in ids {
        let author = id * 7_919 % authors;
        let key = KeyId(author as u32);
        let record = NewRecord {
            id: RecordId(id),
            time_us: 1_700_000_000_000_000 + id.cast_signed() * 1_000,
            uri: &format!("at://did:plc:{author:024}/app.bsky.feed.post/{}", tid(id)),
            author: key,
            keys: &[key],
        };
        engine.insert(0, 0, record);
        engine.end();
    }
}

fn tid(id: u64) -> String {
    let letters = b"234567abcdefghijklmnopqrstuvwxyz";
    let digit = |place: u32| letters[(id >> (5 * place) & 31) as usize] as char;
    let digits = (0..12).rev().map(digit);
    std::iter::once('3').chain(digits).collect()
}
