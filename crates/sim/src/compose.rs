//! Composing records: what the inhabitants of the world write.
//!
//! In:    the time, a generator, and what the record refers to.
//! Out:   a [`Draft`]: the record's value and what is true of it.
//! Never: a draft whose label is a guess. A record is made sound, or one
//!        named thing is broken in it, and the label says which.
//!
//! "Sound" means: satisfies the public lexicon of its collection. The odd
//! collection has no lexicon, so nothing in it can be unsound; there the
//! missing and malformed times stay visible and the time rule decides.

use std::borrow::Cow;

use record::value::{Value, key_order};

use crate::clock::{self, DAY_US, HOUR_US, MALFORMED};
use crate::model::Fields;
use crate::rng::Rng;

/// Collections of the world.
pub const POST: &str = "app.bsky.feed.post";
pub const FOLLOW: &str = "app.bsky.graph.follow";
pub const LIKE: &str = "app.bsky.feed.like";
pub const REPOST: &str = "app.bsky.feed.repost";
pub const PROFILE: &str = "app.bsky.actor.profile";
/// A collection nobody has a lexicon for.
pub const ODD: &str = "com.example.garden.note";

/// A record about to be written.
#[derive(Debug, Clone)]
pub struct Draft {
    pub collection: &'static str,
    pub value: Value<'static>,
    /// Instant of its `createdAt`; `None` if missing or malformed.
    pub created_us: Option<i64>,
    /// Whether it satisfies its lexicon.
    pub sound: bool,
    /// What it says in fields that feeds look at.
    pub fields: Fields,
}

/// What one field says.
fn says(path: &'static str, text: impl Into<String>) -> Fields {
    Fields::from([(path, vec![text.into()])])
}

/// A record that others refer to: URI and CID.
#[derive(Debug, Clone)]
pub struct Reference {
    pub uri: String,
    pub cid: String,
}

/// How often times are strange.
#[derive(Debug, Clone)]
pub struct Times {
    /// Share of records dated days or weeks back.
    pub backdated: f64,
    /// Share of records dated into the future.
    pub future: f64,
    /// Share of records dated exactly like the one before, anywhere.
    pub equal: f64,
    /// Share of odd records whose time is missing or malformed.
    pub faulty: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            backdated: 0.04,
            future: 0.02,
            equal: 0.05,
            faulty: 0.3,
        }
    }
}

/// What sentences are made of.
pub const WORDS: [&str; 48] = [
    "river",
    "mill",
    "stone",
    "morning",
    "bread",
    "quiet",
    "window",
    "garden",
    "letter",
    "winter",
    "train",
    "kitchen",
    "paper",
    "signal",
    "ocean",
    "music",
    "bicycle",
    "coffee",
    "market",
    "cloud",
    "harbour",
    "lantern",
    "forest",
    "evening",
    "ladder",
    "copper",
    "island",
    "weather",
    "story",
    "village",
    "bridge",
    "summer",
    "question",
    "answer",
    "mountain",
    "friend",
    "today",
    "again",
    "slowly",
    "über",
    "naïve",
    "東京",
    "здесь",
    "🌊",
    "🦋",
    "the",
    "and",
    "with",
];

/// Languages that posts are in.
pub const LANGUAGES: [&str; 4] = ["en", "de", "ja", "pt-BR"];

// Cards, collections of them, and who watches and mutes what.
pub mod library;

/// A map value in canonical key order.
fn map(fields: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    let mut fields: Vec<(Cow<'static, str>, Value<'static>)> = fields
        .into_iter()
        .map(|(key, value)| (Cow::Borrowed(key), value))
        .collect();
    fields.sort_by(|(a, _), (b, _)| key_order(a, b));
    Value::Map(fields)
}

fn text(text: impl Into<String>) -> Value<'static> {
    Value::Text(Cow::Owned(text.into()))
}

fn strong_reference(to: &Reference) -> Value<'static> {
    map(vec![("uri", text(&*to.uri)), ("cid", text(&*to.cid))])
}

/// Puts `value` at `key` of a map, or takes the key away.
fn set(record: &mut Value<'static>, key: &'static str, value: Option<Value<'static>>) {
    let Value::Map(fields) = record else { return };
    fields.retain(|(name, _)| name != key);
    if let Some(value) = value {
        fields.push((Cow::Borrowed(key), value));
        fields.sort_by(|(a, _), (b, _)| key_order(a, b));
    }
}

/// The one who writes: a generator and the last time anybody wrote.
#[derive(Debug, Clone)]
pub struct Composer {
    rng: Rng,
    times: Times,
    last_us: i64,
}

impl Composer {
    /// A composer with its own randomness.
    pub fn new(rng: Rng, times: Times) -> Self {
        Self {
            rng,
            times,
            last_us: 0,
        }
    }

    /// The text and instant a client writes at `now_us`.
    fn created(&mut self, now_us: i64) -> (String, i64) {
        let rng = &mut self.rng;
        let lot = rng.unit();
        let times = &self.times;
        let us = if lot < times.backdated {
            now_us - HOUR_US - rng.below(40 * DAY_US as u64) as i64
        } else if lot < times.backdated + times.future {
            now_us + HOUR_US + rng.below(400 * DAY_US as u64) as i64
        } else if lot < times.backdated + times.future + times.equal && self.last_us != 0 {
            self.last_us
        } else {
            now_us
        };
        let (text, instant) = clock::any_form(us, rng);
        self.last_us = instant;
        (text, instant)
    }

    fn sentence(&mut self, words_max: u64) -> String {
        let words = 2 + self.rng.below(words_max.saturating_sub(1));
        let mut sentence = String::new();
        for _ in 0..words {
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(self.rng.pick(&WORDS).copied().unwrap_or("word"));
        }
        sentence
    }

    /// A post; an answer if `parent` is given.
    pub fn post(&mut self, now_us: i64, parent: Option<&Reference>) -> Draft {
        let (created, created_us) = self.created(now_us);
        let words = self.sentence(22);
        let mut fields = vec![
            ("$type", text(POST)),
            ("text", text(&*words)),
            ("createdAt", text(created)),
        ];
        let mut told = says("text", &*words);
        if self.rng.chance(0.8) {
            let language = self.rng.pick(&LANGUAGES).copied().unwrap_or("en");
            fields.push(("langs", Value::List(vec![text(language)])));
            told.insert("langs", vec![language.to_owned()]);
        }
        if let Some(parent) = parent {
            let both = vec![
                ("root", strong_reference(parent)),
                ("parent", strong_reference(parent)),
            ];
            fields.push(("reply", map(both)));
        }
        if self.rng.chance(0.2) {
            fields.push(("facets", Value::List(vec![tag_facet(&words)])));
        }
        if self.rng.chance(0.1) {
            fields.push(("embed", self.external()));
        }
        Draft {
            collection: POST,
            value: map(fields),
            created_us: Some(created_us),
            sound: true,
            fields: told,
        }
    }

    fn external(&mut self) -> Value<'static> {
        let number = self.rng.below(1_000_000);
        map(vec![
            ("$type", text("app.bsky.embed.external")),
            (
                "external",
                map(vec![
                    ("uri", text(format!("https://example.com/story/{number}"))),
                    ("title", text(self.sentence(8))),
                    ("description", text(self.sentence(15))),
                ]),
            ),
        ])
    }

    /// A follow of `subject`.
    pub fn follow(&mut self, now_us: i64, subject: &str) -> Draft {
        let (created, created_us) = self.created(now_us);
        Draft {
            collection: FOLLOW,
            value: map(vec![
                ("$type", text(FOLLOW)),
                ("subject", text(subject)),
                ("createdAt", text(created)),
            ]),
            created_us: Some(created_us),
            sound: true,
            fields: says("subject", subject),
        }
    }

    /// A like or repost of `to`.
    pub fn reaction(&mut self, now_us: i64, collection: &'static str, to: &Reference) -> Draft {
        let (created, created_us) = self.created(now_us);
        Draft {
            collection,
            value: map(vec![
                ("$type", text(collection)),
                ("subject", strong_reference(to)),
                ("createdAt", text(created)),
            ]),
            created_us: Some(created_us),
            sound: true,
            fields: says("subject.uri", &*to.uri),
        }
    }

    /// A profile.
    pub fn profile(&mut self, now_us: i64, name: &str) -> Draft {
        let (created, created_us) = self.created(now_us);
        let description = self.sentence(12);
        Draft {
            collection: PROFILE,
            value: map(vec![
                ("$type", text(PROFILE)),
                ("displayName", text(name)),
                ("description", text(description)),
                ("createdAt", text(created)),
            ]),
            created_us: Some(created_us),
            sound: true,
            fields: Fields::new(),
        }
    }

    /// A record of the collection without a lexicon, holding every kind of value.
    pub fn odd(&mut self, now_us: i64) -> Draft {
        let (created, created_us) = self.created(now_us);
        let words = self.sentence(10);
        let blob = self.rng.bytes();
        let mut value = map(vec![
            ("$type", text(ODD)),
            ("text", text(words)),
            ("createdAt", text(created)),
            ("count", Value::Int(self.rng.bits() as i64 >> 12)),
            ("shade", Value::Bool(self.rng.chance(0.5))),
            ("seed", Value::Bytes(Cow::Owned(blob.to_vec()))),
            ("stone", Value::Link(record::cid::Cid::of_raw(&blob))),
            ("nothing", Value::Null),
        ]);
        let mut created_us = Some(created_us);
        if self.rng.chance(self.times.faulty) {
            created_us = None;
            let malformed = self.malformed_time();
            set(&mut value, "createdAt", malformed);
        }
        Draft {
            collection: ODD,
            value,
            created_us,
            sound: true,
            fields: Fields::new(),
        }
    }

    /// A time that is none: malformed, a number, or missing.
    fn malformed_time(&mut self) -> Option<Value<'static>> {
        match self.rng.below(4) {
            0 => None,
            1 => Some(Value::Int(1_700_000_000)),
            _ => Some(text(self.rng.pick(&MALFORMED).copied().unwrap_or(""))),
        }
    }

    /// The same post or follow with one thing in it broken.
    pub fn spoil(&mut self, mut draft: Draft) -> Draft {
        draft.sound = false;
        let lot = self.rng.below(8);
        let value = &mut draft.value;
        match (draft.collection, lot) {
            (_, 0 | 1) => {
                draft.created_us = None;
                let malformed = self.malformed_time();
                set(&mut draft.value, "createdAt", malformed);
            }
            (_, 2) => set(value, "$type", Some(text("com.example.not.this"))),
            (FOLLOW, 3 | 4) => {
                draft.fields = Fields::new();
                set(value, "subject", None);
            }
            (FOLLOW, _) => {
                draft.fields = says("subject", "nobody");
                set(value, "subject", Some(text("nobody")));
            }
            (POST, 3) => set(value, "text", None),
            (POST, 4) => set(value, "text", Some(Value::Int(4))),
            (POST, 5) => set(value, "text", Some(text("å".repeat(301)))),
            (POST, 6) => set(value, "langs", Some(text("en"))),
            (POST, _) => {
                let half = map(vec![("uri", text("at://did:web:a.test/x.y.z/1"))]);
                set(value, "reply", Some(map(vec![("root", half)])));
            }
            _ => set(value, "subject", Some(Value::Int(0))),
        }
        draft
    }

    /// The same post, longer than a record block may be.
    pub fn bloat(&mut self, mut draft: Draft, bytes: usize) -> Draft {
        draft.sound = false;
        set(&mut draft.value, "text", Some(text("x".repeat(bytes))));
        draft
    }
}

/// A hashtag over the first word.
fn tag_facet(words: &str) -> Value<'static> {
    let first = words.split(' ').next().unwrap_or_default();
    map(vec![
        (
            "index",
            map(vec![
                ("byteStart", Value::Int(0)),
                ("byteEnd", Value::Int(first.len() as i64)),
            ]),
        ),
        (
            "features",
            Value::List(vec![map(vec![
                ("$type", text("app.bsky.richtext.facet#tag")),
                ("tag", text(first)),
            ])]),
        ),
    ])
}
