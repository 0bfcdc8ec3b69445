//! An engine with readers and records in it, and the clock of the processor.
//!
//! In:    a shape.
//! Out:   an engine whose readers are all active, and ways to post into it.
//! Never: time of another process counted as ours.

use crate::shape::Random;
use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, RecordId, Registered, Settings, TargetSpec,
    Timelines,
};

pub(crate) const START_US: i64 = 1_700_000_000_000_000;

/// Seconds of processor time this thread has used.
pub(crate) fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text
        .split_whitespace()
        .next()
        .and_then(|text| text.parse::<u64>().ok());
    first.unwrap_or(0) as f64 / 1e9
}

/// Resident memory of this process in bytes.
pub(crate) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Settings of one feed with one target.
pub(crate) fn settings(items_max: usize) -> Settings {
    Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max }],
            include_self: false,
        }],
        window_bytes_max: 4 << 30,
        reader_bytes_max: 20 << 30,
        ..Settings::default()
    }
}

/// An engine, and what it needs to make up records.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) engine: Timelines,
    pub(crate) posted: u64,
    pub(crate) random: Random,
    pub(crate) now_us: i64,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut engine = Timelines::new(settings, 0);
        engine.loaded(0, 0, None);
        Self {
            engine,
            posted: 0,
            random: Random(4711),
            now_us: START_US,
        }
    }

    /// Readers are keys above all accounts, so that both are dense.
    pub(crate) fn register(&mut self, reader: u32, follows: &[u32]) {
        let list = KeyList::new(follows.iter().copied().map(KeyId));
        let cold = Cold {
            follows: &list,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        let outcome = self.engine.register(0, KeyId(reader), &cold, self.now_us);
        assert_eq!(outcome, Registered::Active);
    }

    pub(crate) fn settle(&mut self) {
        while self.engine.step(self.now_us, 1 << 20) {}
    }

    /// Records by these authors, fifty a second as on the public network, and
    /// now and then a few seconds late as records from a network are.
    pub(crate) fn draft(&mut self, authors: &[u32]) -> Vec<Draft> {
        authors
            .iter()
            .map(|&author| {
                self.now_us += 20_000;
                self.posted += 1;
                let late_us = match self.random.below(100) {
                    0..70 => i64::from(self.random.below(300_000)),
                    70..99 => i64::from(self.random.below(3_000_000)),
                    _ => i64::from(self.random.below(60_000_000)),
                };
                Draft {
                    id: self.posted,
                    author,
                    time_us: self.now_us - late_us,
                    uri: uri(author, self.posted),
                }
            })
            .collect()
    }

    pub(crate) fn publish(&mut self, draft: &Draft) {
        self.engine.insert(
            0,
            0,
            NewRecord {
                id: RecordId(draft.id),
                time_us: draft.time_us,
                uri: &draft.uri,
                author: KeyId(draft.author),
                keys: &[KeyId(draft.author)],
            },
        );
    }

    pub(crate) fn publish_all(&mut self, drafts: &[Draft]) {
        let keys: Vec<[KeyId; 1]> = drafts.iter().map(|draft| [KeyId(draft.author)]).collect();
        let records: Vec<NewRecord<'_>> = drafts
            .iter()
            .zip(&keys)
            .map(|(draft, keys)| NewRecord {
                id: RecordId(draft.id),
                time_us: draft.time_us,
                uri: &draft.uri,
                author: KeyId(draft.author),
                keys,
            })
            .collect();
        self.engine.insert_all(0, 0, &records);
    }

    pub(crate) fn post(&mut self, author: u32) {
        for draft in self.draft(&[author]) {
            self.publish(&draft);
        }
    }

    pub(crate) fn post_at(&mut self, author: u32, time_us: i64) {
        self.posted += 1;
        let draft = Draft {
            id: self.posted,
            author,
            time_us,
            uri: uri(author, self.posted),
        };
        self.publish(&draft);
    }
}

/// A record made up, not yet published.
#[derive(Debug)]
pub(crate) struct Draft {
    id: u64,
    author: u32,
    time_us: i64,
    uri: String,
}

fn uri(author: u32, number: u64) -> String {
    format!(
        "at://did:plc:{author:024}/app.bsky.feed.post/{}",
        tid(number)
    )
}

fn tid(number: u64) -> String {
    let letters = b"234567abcdefghijklmnopqrstuvwxyz";
    (0..13)
        .rev()
        .map(|place| {
            let digit = (number >> (5 * place) & 31) as usize;
            char::from(letters.get(digit).copied().unwrap_or(b'2'))
        })
        .collect()
}
