//! `[direct]`: records written over HTTP by an app without AT Protocol.
//!
//! A collection with `direct = true` is written here and nowhere else: what
//! the network says about its NSID is not of interest.

use replicate::origin::is_origin;
use serde::{Deserialize, Serialize};

use super::Config;
use super::fault::Found;
use super::feed::{Feed, Follow};

/// The direct API. It is served if at least one collection is direct.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Direct {
    /// `?user=` names the reader without a token, and without `FEEDMILL_APP_TOKEN` anybody writes.
    pub open: bool,
    /// Origins whose pages may use an open API without a token.
    pub origins: Vec<String>,
    /// The feed at `GET /feed`; the first whose follows and records are direct, unless named.
    pub feed: Option<String>,
    /// The field of a record that names who wrote it.
    pub actor: String,
    /// The field of a record that holds its id.
    pub id: String,
    /// Which ids people and records have.
    pub ids: Ids,
    /// Fewest accounts that one `POST /follow-many` names.
    pub follow_many_min: usize,
    /// Most accounts that one `POST /follow-many` names.
    pub follow_many_max: usize,
    /// Hours that a reader's token is good for.
    pub token_hours: u32,
    /// Longest wait, in milliseconds, for a write to reach the timelines before it is answered.
    pub wait_ms_max: u64,
}

/// Which ids people and records have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// Numbers and texts.
    Any,
    /// Numbers only; anything else is an error.
    Number,
}

impl Default for Direct {
    fn default() -> Self {
        Self {
            open: false,
            origins: Vec::new(),
            feed: None,
            actor: "user_id".into(),
            id: "id".into(),
            ids: Ids::Any,
            follow_many_min: 1,
            follow_many_max: 1000,
            token_hours: 720,
            wait_ms_max: 2000,
        }
    }
}

impl Direct {
    pub(super) fn faults(&self, config: &Config, found: &mut Found) {
        let ordered = self.follow_many_min <= self.follow_many_max;
        found.unless(ordered, "direct.follow_many_min", || {
            "is greater than follow_many_max".into()
        });
        for (key, field) in [("actor", &self.actor), ("id", &self.id)] {
            let is_name = !field.is_empty() && !field.contains('.');
            found.unless(is_name, format!("direct.{key}"), || {
                "must be the name of a field at the top of the record".into()
            });
        }
        for wrong in self.origins.iter().filter(|one| !is_origin(one)) {
            let problem = format!("{wrong:?} is not an origin such as \"http://localhost:5173\"");
            found.add("direct.origins", problem);
        }
        two_subjects(config, found);
        if let Some(name) = self.feed.as_deref() {
            let problem = match config.feeds.get(name) {
                None => Some("is not the name of a feed"),
                Some(feed) => config.unread_directly(feed),
            };
            if let Some(problem) = problem {
                found.add("direct.feed", problem);
            }
        }
    }
}

/// A follow is written at one path, so all feeds must look for it there.
fn two_subjects(config: &Config, found: &mut Found) {
    let follows = config.direct_follows();
    for (index, one) in follows.iter().enumerate() {
        let mut before = follows.iter().take(index);
        if let Some(other) = before.find(|other| other.collection == one.collection) {
            let problem = format!(
                "feeds read its follows at {:?} and at {:?}; written directly, they have one place",
                other.subject, one.subject
            );
            found.add(format!("collections.{}.direct", one.collection), problem);
        }
    }
}

impl Config {
    /// The same without the collections that are written directly: what the network may say.
    pub fn network(&self) -> Self {
        let mut config = self.clone();
        config
            .collections
            .retain(|_, collection| !collection.direct);
        config
    }

    /// Whether records are written directly.
    pub fn has_direct(&self) -> bool {
        self.collections
            .values()
            .any(|collection| collection.direct)
    }

    /// Where feeds find follows, mutes and blocks that are written directly.
    pub fn direct_follows(&self) -> Vec<Follow> {
        let feeds = self.feeds.values();
        let follows = feeds.flat_map(|feed| feed.follows().into_iter().chain(feed.hides()));
        let mut found: Vec<Follow> = Vec::new();
        for follow in follows.filter(|follow| self.is_direct(&follow.collection)) {
            if !found.contains(&follow) {
                found.push(follow);
            }
        }
        found
    }

    /// Whether a feed follows, hides or shows what is written directly.
    pub fn touches_direct(&self, feed: &Feed) -> bool {
        let follows = feed.follows().into_iter().chain(feed.hides());
        let mut shorts = follows
            .map(|follow| follow.collection)
            .chain(feed.targets().into_iter().map(|target| target.collection));
        shorts.any(|short| self.is_direct(&short))
    }

    fn is_direct(&self, short: &str) -> bool {
        let collection = self.collections.get(short);
        collection.is_some_and(|collection| collection.direct)
    }

    /// Why `GET /feed` cannot show a feed; `None` if it can.
    fn unread_directly(&self, feed: &Feed) -> Option<&'static str> {
        let first = feed.follows().into_iter().next();
        if !first.is_some_and(|follow| self.is_direct(&follow.collection)) {
            return Some("its first follow collection is not direct");
        }
        if feed.window_us().is_some() {
            return Some(
                "it is merged, and GET /feed shows records; read it by getFollowingFeed and name another feed",
            );
        }
        let shown = if feed.mixed { usize::MAX } else { 1 };
        let targets = feed.targets();
        let mut shown = targets.iter().take(shown);
        (!shown.all(|target| self.is_direct(&target.collection)))
            .then_some("it shows a collection that is not direct")
    }

    /// The name of the feed at `GET /feed`.
    pub fn direct_feed(&self) -> Option<&str> {
        let wanted = self.direct.feed.as_ref();
        self.feeds
            .iter()
            .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
            .find(|(_, feed)| self.unread_directly(feed).is_none())
            .map(|(name, _)| name.as_str())
    }
}
