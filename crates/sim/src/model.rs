//! The naive model: what is true, and what every reader should see.
//!
//! In:    records and account states, told by whoever made them.
//! Out:   feeds and lists by brute force over everything that is live.
//! Never: an index, a cache, a parser; a line shared with any engine.
//!
//! An oracle that calls the engine has the engine's faults. So times and
//! subjects are not read from the records here: the writer of a record says
//! what it wrote. All of it is slow and meant to be obviously right.

use std::collections::{BTreeMap, BTreeSet};

/// What stands at one AT-URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub did: String,
    pub collection: String,
    pub rkey: String,
    /// CID of the record's block, as text.
    pub cid: String,
    /// The record's own time in microseconds; `None` if missing or malformed.
    pub created_us: Option<i64>,
    /// Whom it names as its subject, if it follows somebody.
    pub subject: Option<String>,
    /// Whether it satisfies its collection's lexicon, if there is one.
    pub sound: bool,
    /// What it says, where its writer told.
    pub said: Option<Said>,
}

/// What a post says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Words with one space between them.
    pub text: String,
    pub lang: Option<String>,
}

/// Which of a feed's entries are asked for, and in what order.
#[derive(Debug, Clone, Default)]
pub struct Question<'a> {
    /// Words that must all be there.
    pub words: Vec<&'a str>,
    pub lang: Option<&'a str>,
    /// Not dated before this.
    pub since_us: Option<i64>,
    /// By what is said, up or down, instead of by time.
    pub by_text: Option<Direction>,
}

/// Which way values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

impl Fact {
    /// The record's AT-URI.
    pub fn uri(&self) -> String {
        format!("at://{}/{}/{}", self.did, self.collection, self.rkey)
    }
}

/// What the network says of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    Active,
    Takendown,
    Suspended,
    Deactivated,
    /// Everything of theirs is gone for good.
    Deleted,
    Desynchronized,
    Throttled,
}

impl Standing {
    /// Whether everything of the account is out of sight.
    pub fn hides(self) -> bool {
        match self {
            Standing::Takendown
            | Standing::Suspended
            | Standing::Deactivated
            | Standing::Deleted => true,
            Standing::Active | Standing::Desynchronized | Standing::Throttled => false,
        }
    }

    /// The word in `#account.status`; `None` for an active account.
    pub fn status(self) -> Option<&'static str> {
        match self {
            Standing::Active => None,
            Standing::Takendown => Some("takendown"),
            Standing::Suspended => Some("suspended"),
            Standing::Deactivated => Some("deactivated"),
            Standing::Deleted => Some("deleted"),
            Standing::Desynchronized => Some("desynchronized"),
            Standing::Throttled => Some("throttled"),
        }
    }
}

/// Which feed is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Collection whose records are follows.
    pub follow: &'a str,
    /// Collections whose records are shown, in one order.
    pub targets: &'a [&'a str],
    /// Whether the reader sees his own records.
    pub include_self: bool,
    /// Whether records that break their lexicon are refused.
    pub lexicons: bool,
}

/// One entry of a feed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub time_us: i64,
    pub uri: String,
}

/// Everything that is live.
#[derive(Debug, Clone, Default)]
pub struct Model {
    records: BTreeMap<String, Fact>,
    standings: BTreeMap<String, Standing>,
}

impl Model {
    /// The record now stands at its URI, in place of any older one.
    pub fn put(&mut self, fact: Fact) {
        self.records.insert(fact.uri(), fact);
    }

    /// The record is gone.
    pub fn remove(&mut self, uri: &str) {
        self.records.remove(uri);
    }

    /// The account now stands so. Deletion takes its records with it.
    pub fn stand(&mut self, did: &str, standing: Standing) {
        if standing == Standing::Deleted {
            self.records.retain(|_, fact| fact.did != did);
        }
        self.standings.insert(did.to_owned(), standing);
    }

    /// How the account stands; an unknown one is active.
    pub fn standing(&self, did: &str) -> Standing {
        *self.standings.get(did).unwrap_or(&Standing::Active)
    }

    /// Every live record, hidden or not, by URI.
    pub fn records(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.records.iter().map(|(uri, fact)| (uri.as_str(), fact))
    }

    /// How many records are live.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no record is live.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The record at `uri`, hidden or not.
    pub fn record(&self, uri: &str) -> Option<&Fact> {
        self.records.get(uri)
    }

    /// Whether readers may see the record at all.
    fn visible(&self, fact: &Fact, lexicons: bool) -> bool {
        !self.standing(&fact.did).hides() && (fact.sound || !lexicons)
    }

    /// The live records of one account in one collection.
    fn of<'a>(&'a self, did: &str, collection: &str) -> impl Iterator<Item = (&'a str, &'a Fact)> {
        let prefix = format!("at://{did}/{collection}/");
        self.records
            .range(prefix.clone()..)
            .take_while(move |(uri, _)| uri.starts_with(&prefix))
            .map(|(uri, fact)| (uri.as_str(), fact))
    }

    /// The keys `reader` follows; two records that name one key give it once.
    ///
    /// A hidden account's follows are hidden with the rest of it.
    pub fn follows(&self, reader: &str, rules: &Rules<'_>) -> BTreeSet<String> {
        self.of(reader, rules.follow)
            .filter(|(_, fact)| self.visible(fact, rules.lexicons))
            .filter_map(|(_, fact)| fact.subject.clone())
            .collect()
    }

    /// The whole feed of `reader`, newest first.
    ///
    /// `first_seen` says when the system under test first saw a record; it
    /// decides the time of records whose own time is missing, malformed, or
    /// later than that.
    pub fn feed(
        &self,
        reader: &str,
        rules: &Rules<'_>,
        first_seen: &dyn Fn(&str) -> i64,
    ) -> Vec<Entry> {
        let mut authors = self.follows(reader, rules);
        if rules.include_self {
            authors.insert(reader.to_owned());
        }
        let mut entries = Vec::new();
        for author in &authors {
            for target in rules.targets {
                for (uri, fact) in self.of(author, target) {
                    if self.visible(fact, rules.lexicons) {
                        entries.push(Entry {
                            time_us: time(fact, first_seen(uri)),
                            uri: uri.to_owned(),
                        });
                    }
                }
            }
        }
        entries.sort();
        entries.dedup();
        entries.reverse();
        entries
    }

    /// Those of a feed's entries that a question asks for, in its order.
    pub fn ask(&self, entries: &[Entry], question: &Question<'_>) -> Vec<Entry> {
        let mut asked: Vec<(String, Entry)> = Vec::new();
        for entry in entries {
            let Some(fact) = self.records.get(&entry.uri) else {
                continue;
            };
            let Some(said) = &fact.said else { continue };
            let words: Vec<&str> = said.text.split(' ').collect();
            let dated = |since: i64| fact.created_us.is_some_and(|created| created >= since);
            if question.words.iter().all(|word| words.contains(word))
                && question
                    .lang
                    .is_none_or(|lang| said.lang.as_deref() == Some(lang))
                && question.since_us.is_none_or(dated)
            {
                asked.push((said.text.clone(), entry.clone()));
            }
        }
        // Entries come newest first, and a stable sort leaves them so within one text.
        match question.by_text {
            None => {}
            Some(Direction::Up) => asked.sort_by(|a, b| a.0.cmp(&b.0)),
            Some(Direction::Down) => asked.sort_by(|a, b| b.0.cmp(&a.0)),
        }
        asked.into_iter().map(|(_, entry)| entry).collect()
    }

    /// The visible records of a collection, newest first; of one account if
    /// `did` is given.
    pub fn list(
        &self,
        collection: &str,
        did: Option<&str>,
        lexicons: bool,
        first_seen: &dyn Fn(&str) -> i64,
    ) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .records
            .iter()
            .filter(|(_, fact)| fact.collection == collection)
            .filter(|(_, fact)| did.is_none_or(|did| fact.did == did))
            .filter(|(_, fact)| self.visible(fact, lexicons))
            .map(|(uri, fact)| Entry {
                time_us: time(fact, first_seen(uri)),
                uri: uri.clone(),
            })
            .collect();
        entries.sort();
        entries.reverse();
        entries
    }
}

/// The rule of times: the record's own, unless it has none or claims to come
/// from after the moment it was first seen.
fn time(fact: &Fact, first_seen: i64) -> i64 {
    match fact.created_us {
        Some(created) if created <= first_seen => created,
        _ => first_seen,
    }
}
