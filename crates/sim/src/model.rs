//! The naive model: what is true.
//!
//! In:    records and account states, told by whoever made them.
//! Out:   lists by brute force over everything that is live.
//! Never: an index, a cache, a parser; a line shared with any engine.
//!
//! An oracle that calls the engine has the engine's faults. So times and
//! fields are not read from the records here: the writer of a record says
//! what it wrote. All of it is slow and meant to be obviously right.

use std::collections::BTreeMap;

/// What a record says in fields that feeds look at, by dotted path.
pub type Fields = BTreeMap<&'static str, Vec<String>>;

/// The record at one AT-URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub did: String,
    pub collection: String,
    pub rkey: String,
    /// CID of the record's block, as text.
    pub cid: String,
    /// The record's own time in microseconds; `None` if missing or malformed.
    pub created_us: Option<i64>,
    /// Whether it satisfies its collection's lexicon, if there is one.
    pub sound: bool,
    /// What it says; `None` where its writer did not tell.
    pub fields: Option<Fields>,
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

    /// All that a field says; nothing where there is no such field.
    pub fn all(&self, path: &str) -> &[String] {
        let told = self.fields.as_ref().and_then(|fields| fields.get(path));
        told.map_or(&[], Vec::as_slice)
    }

    /// What a field of one text says.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.all(path).first().map(String::as_str)
    }

    /// The rule of times: the record's own, unless it has none or claims to
    /// come from after the moment it was first seen.
    pub fn time(&self, first_seen_us: i64) -> i64 {
        match self.created_us {
            Some(created) if created <= first_seen_us => created,
            _ => first_seen_us,
        }
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

/// One record of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
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
    pub fn visible(&self, fact: &Fact, lexicons: bool) -> bool {
        !self.standing(&fact.did).hides() && (fact.sound || !lexicons)
    }

    /// Those of a list of posts that a question asks for, in its order.
    pub fn ask(&self, posts: &[Listed], question: &Question<'_>) -> Vec<Listed> {
        let mut asked: Vec<(String, Listed)> = Vec::new();
        for post in posts {
            let Some(fact) = self.records.get(&post.uri) else {
                continue;
            };
            let Some(text) = fact.text("text") else {
                continue;
            };
            let words: Vec<&str> = text.split(' ').collect();
            let dated = |since: i64| fact.created_us.is_some_and(|created| created >= since);
            if question.words.iter().all(|word| words.contains(word))
                && question
                    .lang
                    .is_none_or(|lang| fact.text("langs") == Some(lang))
                && question.since_us.is_none_or(dated)
            {
                asked.push((text.to_owned(), post.clone()));
            }
        }
        // Posts come newest first, and a stable sort leaves them so within one text.
        match question.by_text {
            None => {}
            Some(Direction::Up) => asked.sort_by(|a, b| a.0.cmp(&b.0)),
            Some(Direction::Down) => asked.sort_by(|a, b| b.0.cmp(&a.0)),
        }
        asked.into_iter().map(|(_, post)| post).collect()
    }

    /// The visible records of a collection, newest first; of one account if
    /// `did` is given.
    pub fn list(
        &self,
        collection: &str,
        did: Option<&str>,
        lexicons: bool,
        first_seen: &dyn Fn(&str) -> i64,
    ) -> Vec<Listed> {
        let mut entries: Vec<Listed> = self
            .records
            .iter()
            .filter(|(_, fact)| fact.collection == collection)
            .filter(|(_, fact)| did.is_none_or(|did| fact.did == did))
            .filter(|(_, fact)| self.visible(fact, lexicons))
            .map(|(uri, fact)| Listed {
                time_us: fact.time(first_seen(uri)),
                uri: uri.clone(),
            })
            .collect();
        entries.sort();
        entries.reverse();
        entries
    }
}
