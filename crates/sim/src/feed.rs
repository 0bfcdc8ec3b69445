//! What a reader should see: one naive model of every kind of feed.
//!
//! In:    a [`Feed`], a reader, and the [`Model`] of what is live.
//! Out:   the whole feed of that reader, newest first.
//! Never: anything kept from one question to the next; an index; a line shared
//!        with any engine; an expression that is parsed.
//!
//! A condition of a configuration (`where`, `when`) is a Rust function here,
//! written beside it by whoever writes the configuration. Every question looks
//! at every live record and sorts what it finds: slow, and meant to be
//! obviously right.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Fact, Model};

/// Keys of one record that count.
const RECORD_KEYS_MAX: usize = 100;

/// Records that name somebody or something: follows, mutes, blocks.
#[derive(Debug, Clone, Copy)]
pub struct Naming {
    pub collection: &'static str,
    /// The field that names the key.
    pub subject: &'static str,
}

/// A key under which a record is published.
#[derive(Debug, Clone, Copy)]
pub enum Key {
    /// The DID of its author.
    Author,
    /// What a field says; of a list each item.
    Field(&'static str),
}

/// What belongs together in a merged feed.
#[derive(Debug, Clone, Copy)]
pub enum Merge {
    /// Records about this one, and itself.
    OwnUri,
    /// Records in which this field says the same.
    Field(&'static str),
}

/// Records that a feed shows.
#[derive(Debug, Clone)]
pub struct Target {
    pub collection: &'static str,
    pub keys: Vec<Key>,
    /// The condition `where`.
    pub holds: fn(&Fact) -> bool,
    /// Of a merged feed; `None`: the record is about itself.
    pub merge: Option<Merge>,
    /// Fields that name what the entry adds up.
    pub union: Vec<&'static str>,
    /// Entries after which a feed that ends has ended.
    pub max_items: usize,
}

impl Target {
    /// Records of a collection, published under their authors.
    pub fn of(collection: &'static str) -> Self {
        Self {
            collection,
            keys: vec![Key::Author],
            holds: |_| true,
            merge: None,
            union: Vec::new(),
            max_items: 200,
        }
    }
}

/// A rule that publishes some records under other keys.
#[derive(Debug, Clone)]
pub struct Rule {
    pub when: fn(&Fact) -> bool,
    pub keys: Vec<Key>,
}

/// How records are merged.
#[derive(Debug, Clone, Copy)]
pub struct Merging {
    /// How long after a group's first record its last may be.
    pub window_us: i64,
    /// Records of one author and thing that are merged, the oldest; each
    /// further one is an entry by itself.
    pub thing_max: usize,
}

/// A feed, as its configuration has it.
#[derive(Debug, Clone)]
pub struct Feed {
    pub follows: Vec<Naming>,
    pub targets: Vec<Target>,
    /// The first that holds replaces a record's keys.
    pub rules: Vec<Rule>,
    /// Mutes and blocks.
    pub hides: Vec<Naming>,
    /// Set if entries are groups of records.
    pub merging: Option<Merging>,
    /// Whether all targets share one order.
    pub mixed: bool,
    /// Whether readers see their own records.
    pub include_self: bool,
    /// Whether each target ends after its `max_items`.
    pub ends: bool,
}

impl Feed {
    /// A feed that follows by `collection` and shows `targets`.
    pub fn of(collection: &'static str, targets: Vec<Target>) -> Self {
        let subject = "subject";
        Self {
            follows: vec![Naming {
                collection,
                subject,
            }],
            targets,
            rules: Vec::new(),
            hides: Vec::new(),
            merging: None,
            mixed: false,
            include_self: false,
            ends: false,
        }
    }
}

/// One entry of a feed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The time of its first record.
    pub time_us: i64,
    /// Its records' URIs, the first one first.
    pub members: Vec<String>,
    /// What its records name together, in the order first named.
    pub union: Vec<String>,
}

/// A record that may be an entry or part of one.
struct Candidate<'a> {
    time_us: i64,
    uri: String,
    fact: &'a Fact,
    target: &'a Target,
}

/// A reader's question.
struct Reading<'a> {
    feed: &'a Feed,
    model: &'a Model,
    first_seen: &'a dyn Fn(&str) -> i64,
    /// The keys whose records are seen.
    followed: BTreeSet<String>,
    /// The keys that the reader does not want to see.
    hidden: BTreeSet<String>,
}

impl Feed {
    /// The keys that a reader names in some collections. What a hidden account
    /// says is hidden with the rest of it.
    fn named(&self, model: &Model, reader: &str, namings: &[Naming]) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for naming in namings {
            for (_, fact) in model.records() {
                if fact.did == reader
                    && fact.collection == naming.collection
                    && model.visible(fact, true)
                {
                    keys.extend(fact.text(naming.subject).map(str::to_owned));
                }
            }
        }
        keys
    }

    /// The keys `reader` follows; two records that name one key give it once.
    pub fn followed(&self, model: &Model, reader: &str) -> BTreeSet<String> {
        self.named(model, reader, &self.follows)
    }

    /// The whole feed of `reader`, newest first: of the targets at these
    /// places, in one order.
    ///
    /// `first_seen` says when the system under test first saw a record; it
    /// decides the time of records whose own time is missing, malformed, or
    /// later than that.
    pub fn whole(
        &self,
        model: &Model,
        reader: &str,
        places: &[usize],
        first_seen: &dyn Fn(&str) -> i64,
    ) -> Vec<Entry> {
        let mut followed = self.followed(model, reader);
        if self.include_self {
            followed.insert(reader.to_owned());
        }
        let reading = Reading {
            feed: self,
            model,
            first_seen,
            followed,
            hidden: self.named(model, reader, &self.hides),
        };
        let targets: Vec<&Target> = places
            .iter()
            .filter_map(|place| self.targets.get(*place))
            .collect();
        let mut entries = match self.merging {
            Some(merging) => reading.merged(&targets, merging),
            None => reading.plain(&targets),
        };
        newest_first(&mut entries);
        entries
    }

    /// The same of all targets.
    pub fn all(&self, model: &Model, reader: &str, first_seen: &dyn Fn(&str) -> i64) -> Vec<Entry> {
        let places: Vec<usize> = (0..self.targets.len()).collect();
        self.whole(model, reader, &places, first_seen)
    }
}

/// Time, then URI of the first record, both descending.
fn newest_first(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (b.time_us, b.members.first()).cmp(&(a.time_us, a.members.first())));
}

impl<'a> Reading<'a> {
    /// The records of a target that anybody may see.
    fn candidates(&self, target: &'a Target) -> Vec<Candidate<'a>> {
        let mut found = Vec::new();
        for (uri, fact) in self.model.records() {
            if fact.collection == target.collection
                && self.model.visible(fact, true)
                && (target.holds)(fact)
            {
                found.push(Candidate {
                    time_us: fact.time((self.first_seen)(uri)),
                    uri: uri.to_owned(),
                    fact,
                    target,
                });
            }
        }
        found
    }

    /// Whether the record reaches the reader by one of its keys.
    fn reaches(&self, candidate: &Candidate<'_>) -> bool {
        let mut rules = self.feed.rules.iter();
        let keys = match rules.find(|rule| (rule.when)(candidate.fact)) {
            Some(rule) => &rule.keys,
            None => &candidate.target.keys,
        };
        let mut published: Vec<String> = Vec::new();
        for key in keys {
            match key {
                Key::Author => published.push(candidate.fact.did.clone()),
                Key::Field(path) => published.extend(candidate.fact.all(path).iter().cloned()),
            }
        }
        published.truncate(RECORD_KEYS_MAX);
        published
            .iter()
            .any(|key| self.followed.contains(key) && !self.hidden.contains(key))
    }

    /// Each record is an entry.
    fn plain(&self, targets: &[&'a Target]) -> Vec<Entry> {
        let mut all = Vec::new();
        for target in targets {
            let mut entries = Vec::new();
            for candidate in self.candidates(target) {
                if self.reaches(&candidate) && !self.hidden.contains(&candidate.fact.did) {
                    entries.push(Entry {
                        time_us: candidate.time_us,
                        members: vec![candidate.uri],
                        union: Vec::new(),
                    });
                }
            }
            newest_first(&mut entries);
            if self.feed.ends {
                entries.truncate(target.max_items);
            }
            all.extend(entries);
        }
        all
    }

    /// Each group of records is an entry.
    fn merged(&self, targets: &[&'a Target], merging: Merging) -> Vec<Entry> {
        let mut entries = Vec::new();
        for group in self.groups(targets, merging) {
            let Some(first) = group.first() else { continue };
            let is_reached = group.iter().any(|member| self.reaches(member));
            if !is_reached || self.hidden.contains(&first.fact.did) {
                continue;
            }
            let mut union: Vec<String> = Vec::new();
            for member in &group {
                for path in &member.target.union {
                    for named in member.fact.all(path) {
                        if !union.contains(named) {
                            union.push(named.clone());
                        }
                    }
                }
            }
            entries.push(Entry {
                time_us: first.time_us,
                members: group.iter().map(|member| member.uri.clone()).collect(),
                union,
            });
        }
        newest_first(&mut entries);
        if self.feed.ends {
            let max = targets.iter().map(|target| target.max_items).max();
            entries.truncate(max.unwrap_or(0));
        }
        entries
    }

    /// Every group, whoever follows its members.
    fn groups(&self, targets: &[&'a Target], merging: Merging) -> Vec<Vec<Candidate<'a>>> {
        let mut things: BTreeMap<(String, String), Vec<Candidate<'a>>> = BTreeMap::new();
        let mut groups = Vec::new();
        for target in targets {
            for candidate in self.candidates(target) {
                let about = match target.merge {
                    None | Some(Merge::OwnUri) => candidate.uri.clone(),
                    // A record that says nothing of it is about itself.
                    Some(Merge::Field(path)) => match candidate.fact.text(path) {
                        Some(text) => text.to_owned(),
                        None => candidate.uri.clone(),
                    },
                };
                let thing = (candidate.fact.did.clone(), about);
                things.entry(thing).or_default().push(candidate);
            }
        }
        for (_, mut members) in things {
            members.sort_by(|a, b| (a.time_us, &a.uri).cmp(&(b.time_us, &b.uri)));
            let mut group: Vec<Candidate<'a>> = Vec::new();
            for (place, member) in members.into_iter().enumerate() {
                let begun_us = group.first().map(|first| first.time_us);
                let is_near =
                    begun_us.is_some_and(|begun_us| member.time_us - begun_us <= merging.window_us);
                if is_near && place < merging.thing_max {
                    group.push(member);
                } else {
                    groups.push(std::mem::replace(&mut group, vec![member]));
                }
            }
            groups.push(group);
        }
        groups
    }
}
