//! What people save: cards, links that put a card into a collection, and who
//! watches and mutes whom or what.
//!
//! In:    the time, and what the record refers to.
//! Out:   a [`Draft`], as of any other record.
//! Never: a lexicon: none of these collections has one.
//!
//! Most cards and links are dated in steps of ten seconds within the last
//! quarter of an hour, in any order: so they arrive late, have equal times, lie
//! within two minutes of each other, at the very edge of it and beyond.

use record::value::Value;

use super::{Composer, Draft, map, says, set, text};
use crate::clock::{self, SECOND_US};
use crate::model::Fields;

/// Collections of the library.
pub const CARD: &str = "com.example.garden.card";
pub const LINK: &str = "com.example.garden.link";
/// What links put cards into. Nobody writes one: a URI is enough to be named and followed.
pub const SET: &str = "com.example.garden.set";
/// A follow of a person, a collection, a topic, or a post.
pub const WATCH: &str = "com.example.garden.watch";
pub const MUTE: &str = "com.example.garden.mute";
pub const BLOCK: &str = "com.example.garden.block";

/// What cards are about.
pub const TOPICS: [&str; 5] = [
    "topic:river",
    "topic:mill",
    "topic:bread",
    "topic:music",
    "topic:snow",
];

/// Between two times of cards and links.
const STEP_US: i64 = 10 * SECOND_US;
/// How many such steps lie in the past.
const STEPS: u64 = 90;
/// Share of cards and links dated like any other record, at times strangely.
const FREE_SHARE: f64 = 0.15;
/// Share of cards and links that another app wrote.
const ELSEWHERE_SHARE: f64 = 0.2;

impl Composer {
    /// When a card or link says that it was saved, in words and as an instant.
    fn saved(&mut self, now_us: i64) -> (Option<Value<'static>>, Option<i64>) {
        if self.rng.chance(FREE_SHARE * self.times.faulty) {
            return (self.malformed_time(), None);
        }
        let (created, created_us) = match self.rng.chance(FREE_SHARE) {
            true => self.created(now_us),
            false => {
                let now_us = now_us.div_euclid(STEP_US) * STEP_US;
                let us = now_us - STEP_US * self.rng.below(STEPS) as i64;
                clock::any_form(us, &mut self.rng)
            }
        };
        (Some(text(created)), Some(created_us))
    }

    /// A card: something saved.
    pub fn card(&mut self, now_us: i64) -> Draft {
        let (created, created_us) = self.saved(now_us);
        let number = self.rng.below(1_000_000);
        let mut fields = vec![
            ("$type", text(CARD)),
            ("url", text(format!("https://example.com/{number}"))),
        ];
        let mut told = Fields::new();
        let topics: Vec<String> = TOPICS
            .iter()
            .filter(|_| self.rng.chance(0.3))
            .map(|topic| (*topic).to_owned())
            .collect();
        if !topics.is_empty() {
            fields.push(("topics", Value::List(topics.iter().map(text).collect())));
            told.insert("topics", topics);
        }
        if self.rng.chance(ELSEWHERE_SHARE) {
            fields.push(("source", text("margin")));
            told.insert("source", vec!["margin".to_owned()]);
        }
        if self.rng.chance(0.15) {
            fields.push(("note", text("of a card")));
            told.insert("note", vec!["of a card".to_owned()]);
        }
        let mut value = map(fields);
        set(&mut value, "createdAt", created);
        Draft {
            collection: CARD,
            value,
            created_us,
            sound: true,
            fields: told,
        }
    }

    /// A link: a card put into a collection. Its time is in `addedAt`.
    pub fn link(&mut self, now_us: i64, card: &str, collection: &str) -> Draft {
        let (added, created_us) = self.saved(now_us);
        let mut fields = vec![
            ("$type", text(LINK)),
            ("card", map(vec![("uri", text(card))])),
            ("collection", map(vec![("uri", text(collection))])),
        ];
        let mut told = says("card.uri", card);
        told.insert("collection.uri", vec![collection.to_owned()]);
        if self.rng.chance(ELSEWHERE_SHARE) {
            fields.push(("source", text("margin")));
            told.insert("source", vec!["margin".to_owned()]);
        }
        let mut value = map(fields);
        set(&mut value, "addedAt", added);
        Draft {
            collection: LINK,
            value,
            created_us,
            sound: true,
            fields: told,
        }
    }

    /// A record that names a key: a watch, a mute, a block.
    pub fn naming(&mut self, now_us: i64, collection: &'static str, key: &str) -> Draft {
        let (created, created_us) = self.created(now_us);
        Draft {
            collection,
            value: map(vec![
                ("$type", text(collection)),
                ("subject", text(key)),
                ("createdAt", text(created)),
            ]),
            created_us: Some(created_us),
            sound: true,
            fields: says("subject", key),
        }
    }
}
