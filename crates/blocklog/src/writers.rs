//! Writers: who may append to which feed.
//!
//! In:    a feed and an actor.
//! Out:   yes or no.
//! Never: a rule that trusts who carried the block; only who wrote it counts,
//!        because any replica may have to push any block again.

use std::collections::{BTreeMap, BTreeSet};

/// Who may append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Writers {
    /// Everybody, under any name.
    #[default]
    Anyone,
    /// Actors that are keys, each of which signs.
    Keys,
    /// Actors that are keys, each to the feed that bears its name.
    OwnFeed,
    /// The actors listed for a feed; a feed that is not listed has none.
    Listed(BTreeMap<String, BTreeSet<String>>),
    /// Nobody from outside.
    Nobody,
}

impl Writers {
    /// Whether `actor` may append to `feed`.
    #[must_use]
    pub fn allow(&self, feed: &str, actor: &str) -> bool {
        let is_key = actor.starts_with("ed25519:");
        match self {
            Self::Anyone => true,
            Self::Keys => is_key,
            Self::OwnFeed => is_key && feed == actor,
            Self::Listed(feeds) => feeds.get(feed).is_some_and(|actors| actors.contains(actor)),
            Self::Nobody => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_lets_in_whom_it_names() {
        let listed = Writers::Listed(BTreeMap::from([(
            "f".into(),
            BTreeSet::from(["ada".into()]),
        )]));
        let cases = [
            (Writers::Anyone, "f", "ada", true),
            (Writers::Keys, "f", "ada", false),
            (Writers::Keys, "f", "ed25519:00", true),
            (Writers::OwnFeed, "f", "ed25519:00", false),
            (Writers::OwnFeed, "ed25519:00", "ed25519:00", true),
            (listed.clone(), "f", "ada", true),
            (listed.clone(), "f", "bob", false),
            (listed, "g", "ada", false),
            (Writers::Nobody, "f", "ada", false),
        ];
        for (rule, feed, actor, expected) in cases {
            assert_eq!(rule.allow(feed, actor), expected, "{rule:?} {feed} {actor}");
        }
    }
}
