//! What one listening reader is told of a change.
//!
//! In:    a change and its position, in order.
//! Out:   entries that appear, entries that go, or a word that follows changed.
//! Never: news of a record that no key of the reader reaches; a piece of news
//!        after whose cursor the rest of its change is lost.
//!
//! Whether an entry's author is visible to everybody is not decided here: its
//! body is read when it is sent, and a hidden one has none.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::Micros;
use crate::store::change::{Change, Follows, Grouped};
use crate::store::routes::Routes;

use super::reach::Reach;

/// An entry, one for all who are told of it.
#[derive(Debug)]
pub struct Entry {
    pub feed: usize,
    /// The record, or a group's first.
    pub record: i64,
    pub time_us: Micros,
    pub uri: String,
    /// The change that brought it, if its text is shared with others who are told of it now.
    pub shared_at: Option<i64>,
}

/// One piece of news.
#[derive(Debug, Clone)]
pub struct Told {
    /// The change it is of.
    pub position: i64,
    /// Whether all that its change has to tell is told with it.
    pub is_last: bool,
    pub news: News,
}

impl Told {
    /// The position after this piece: who comes back with it is told all of the change
    /// again unless it had all of it. Being told twice does no harm.
    pub fn after(&self) -> i64 {
        match self.is_last {
            true => self.position,
            false => self.position - 1,
        }
    }
}

/// What a reader is told.
#[derive(Debug, Clone)]
pub enum News {
    /// It begins here.
    Start,
    /// It begins anew here: what happened before is not known any more.
    Outdated,
    /// An entry is in the feed, new or with other members.
    Entry(Arc<Entry>),
    /// An entry left it.
    Removal {
        feed: usize,
        uri: String,
        time_us: Micros,
    },
    /// What the reader follows changed, or an account came or went: older entries came or went with it.
    Changed,
}

/// What one reader sees in one feed.
#[derive(Debug)]
pub(super) struct View {
    pub(super) feed: usize,
    pub(super) reader: i64,
    follows: HashMap<i64, u32>,
    hidden: HashMap<i64, u32>,
    /// Changes of follows up to this position are in it already.
    as_of: i64,
    /// Whether the reader's own account is shown: with it, its follows are hidden.
    shown: bool,
}

impl View {
    pub(super) fn new(
        feed: usize,
        reader: i64,
        include_self: bool,
        shown: bool,
        loaded: &Follows,
    ) -> Self {
        let count = |keys: &[i64]| {
            let mut counts: HashMap<i64, u32> = HashMap::new();
            for key in keys {
                *counts.entry(*key).or_default() += 1;
            }
            counts
        };
        let mut follows = count(&loaded.keys);
        if include_self {
            *follows.entry(reader).or_default() += 1;
        }
        Self {
            feed,
            reader,
            follows,
            hidden: count(&loaded.hidden),
            as_of: loaded.as_of,
            shown,
        }
    }

    /// Every key it listens to.
    pub(super) fn keys(&self) -> impl Iterator<Item = i64> {
        self.follows.keys().copied()
    }

    /// How many keys it holds.
    pub(super) fn len(&self) -> usize {
        self.follows.len() + self.hidden.len()
    }

    /// Whether it follows a key.
    pub(super) fn listens_to(&self, key: i64) -> bool {
        self.follows.contains_key(&key)
    }

    fn sees(&self, author: i64, keys: &[i64]) -> bool {
        let followed = |key: &i64| self.follows.contains_key(key) && !self.hidden.contains_key(key);
        self.shown && !self.hidden.contains_key(&author) && keys.iter().any(followed)
    }

    /// Takes a change in and says what the reader is told of it.
    pub(super) fn take(
        &mut self,
        routes: &Routes,
        position: i64,
        change: &Change,
        reach: &Reach,
        entries: &mut Entries,
    ) -> Vec<Told> {
        let news = self.news(routes, position, change, reach, entries);
        let count = news.len();
        let told = news.into_iter().enumerate().map(|(index, news)| Told {
            position,
            is_last: index + 1 == count,
            news,
        });
        told.collect()
    }

    fn news(
        &mut self,
        routes: &Routes,
        position: i64,
        change: &Change,
        reach: &Reach,
        entries: &mut Entries,
    ) -> Vec<News> {
        match change {
            Change::Put {
                record,
                uri,
                live,
                moved,
                lanes,
            } if *live || *moved => {
                let mut places = lanes
                    .iter()
                    .filter(|place| routes.leads(place.lane, self.feed));
                let seen = places.find(|place| self.sees(place.author, &place.keys));
                seen.map(|place| entries.entry(self.feed, *record, uri, place.time_us))
                    .into_iter()
                    .collect()
            }
            Change::Delete { uri, lanes, .. } => {
                let mut places = lanes
                    .iter()
                    .filter(|place| routes.leads(place.lane, self.feed));
                let seen = places.find(|place| self.sees(place.author, &place.keys));
                let removal = seen.map(|place| News::Removal {
                    feed: self.feed,
                    uri: uri.clone(),
                    time_us: place.time_us,
                });
                removal.into_iter().collect()
            }
            Change::Regroup {
                lane,
                was,
                now,
                live,
                ..
            } if routes.leads(*lane, self.feed) => self.regrouped(was, now, *live, entries),
            Change::Follow {
                source,
                reader,
                key,
            } => self.follow(routes, position, *source, *reader, *key, true),
            Change::Unfollow {
                source,
                reader,
                key,
            } => self.follow(routes, position, *source, *reader, *key, false),
            Change::Account { key, visible, .. } => {
                let own = *key == self.reader;
                if own {
                    self.shown = *visible;
                }
                let by_key =
                    |(feed, key): &(usize, i64)| *feed == self.feed && self.listens_to(*key);
                let reached = reach.feeds.contains(&self.feed) || reach.places.iter().any(by_key);
                Vec::from_iter((own || reached).then_some(News::Changed))
            }
            _ => Vec::new(),
        }
    }

    fn regrouped(
        &self,
        was: &[Grouped],
        now: &[Grouped],
        live: bool,
        entries: &mut Entries,
    ) -> Vec<News> {
        let is_there =
            |old: &Grouped, new: &Grouped| (&new.uri, new.time_us) == (&old.uri, old.time_us);
        let seen = |group: &&Grouped| self.sees(group.author, &group.keys);
        let now: Vec<&Grouped> = now.iter().filter(seen).collect();
        let was: Vec<&Grouped> = was.iter().filter(seen).collect();
        let gone = was
            .iter()
            .filter(|old| !now.iter().any(|new| is_there(old, new)));
        let mut news: Vec<News> = gone
            .map(|old| News::Removal {
                feed: self.feed,
                uri: old.uri.clone(),
                time_us: old.time_us,
            })
            .collect();
        // What is fetched from the past is no news by itself; what it did to a known entry is.
        if live || !was.is_empty() {
            news.extend(
                now.iter()
                    .map(|new| entries.entry(self.feed, new.record, &new.uri, new.time_us)),
            );
        }
        news
    }

    fn follow(
        &mut self,
        routes: &Routes,
        position: i64,
        source: i64,
        reader: i64,
        key: i64,
        more: bool,
    ) -> Vec<News> {
        if reader != self.reader {
            return Vec::new();
        }
        let mut told = false;
        let feed = self.feed;
        let leads = [
            routes.follows(source).any(|one| one == feed),
            routes.hides(source).any(|one| one == feed),
        ];
        for (leads, keys) in leads.into_iter().zip([&mut self.follows, &mut self.hidden]) {
            if !leads {
                continue;
            }
            told = true;
            // What it was loaded with is counted; that it changed is told all the same.
            if position <= self.as_of {
                continue;
            }
            let count = keys.entry(key).or_default();
            *count = if more {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                keys.remove(&key);
            }
        }
        if told {
            vec![News::Changed]
        } else {
            Vec::new()
        }
    }
}

/// The entries of one change, shared by all who are told of them.
#[derive(Debug, Default)]
pub(super) struct Entries {
    shared_at: Option<i64>,
    made: HashMap<(usize, i64), Arc<Entry>>,
}

impl Entries {
    /// Those of a change that many are told of at once. By default the entries are those of one
    /// reader who comes back: its texts are made when it is told, so that they show what is so by then.
    pub(super) fn shared(position: i64) -> Self {
        Self {
            shared_at: Some(position),
            made: HashMap::new(),
        }
    }

    fn entry(&mut self, feed: usize, record: i64, uri: &str, time_us: Micros) -> News {
        let shared_at = self.shared_at;
        let entry = self.made.entry((feed, record)).or_insert_with(|| {
            Arc::new(Entry {
                feed,
                record,
                time_us,
                uri: uri.to_owned(),
                shared_at,
            })
        });
        News::Entry(Arc::clone(entry))
    }
}
