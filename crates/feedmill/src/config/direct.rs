//! `[direct]`: records written over HTTP by an app without AT Protocol.
//!
//! A collection with `direct = true` is written here and nowhere else: what
//! the network says about its NSID is not of interest.

use serde::{Deserialize, Serialize};

use super::Config;

/// The direct API. It is served if at least one collection is direct.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Direct {
    /// `?user=` names the reader without a token, and without `FEEDMILL_APP_TOKEN` anybody writes.
    pub open: bool,
    /// The feed at `GET /feed`; the first whose follows are direct, unless named.
    pub feed: Option<String>,
    /// The field of a record that names who wrote it.
    pub actor: String,
    /// The field of a record that holds its id.
    pub id: String,
    /// Which ids records have.
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

/// Which ids records have.
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
    pub(super) fn fault(&self, config: &Config) -> Option<(String, String)> {
        let at = |key: &str, problem: &str| Some((format!("direct.{key}"), problem.to_owned()));
        for (short, collection) in &config.collections {
            let both = config.collections.values().any(|other| {
                other.collection == collection.collection && other.direct != collection.direct
            });
            if both {
                return Some((
                    format!("collections.{short}.direct"),
                    format!(
                        "{} is direct under one name and from the network under another",
                        collection.collection
                    ),
                ));
            }
        }
        if self.follow_many_min > self.follow_many_max {
            return at("follow_many_min", "is greater than follow_many_max");
        }
        for (key, field) in [("actor", &self.actor), ("id", &self.id)] {
            if field.is_empty() || field.contains('.') {
                return at(key, "must be the name of a field at the top of the record");
            }
        }
        let name = self.feed.as_deref()?;
        match config.feeds.get(name) {
            None => at("feed", "is not the name of a feed"),
            Some(_) if config.direct_feed().is_none() => {
                at("feed", "its first follow collection is not direct")
            }
            Some(_) => None,
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

    /// The name of the feed at `GET /feed`.
    pub fn direct_feed(&self) -> Option<&str> {
        let follows_directly = |feed: &super::Feed| {
            let first = feed.follows().into_iter().next();
            first.is_some_and(|follow| {
                self.collections
                    .get(&follow.collection)
                    .is_some_and(|collection| collection.direct)
            })
        };
        self.feeds
            .iter()
            .filter(|(name, _)| {
                self.direct
                    .feed
                    .as_ref()
                    .is_none_or(|wanted| wanted == *name)
            })
            .find(|(_, feed)| follows_directly(feed))
            .map(|(name, _)| name.as_str())
    }
}
