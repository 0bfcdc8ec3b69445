//! Why a record is, or is not, in a reader's feed.
//!
//! In:    a feed, a reader, a record's URI.
//! Out:   the first thing that keeps it out, or the follows that bring it in.
//! Never: an answer that the feed itself contradicts.

use serde::Serialize;

use super::account::FirstRead;
use super::plan::{FeedPlan, Plan};
use super::{SharedStore, StoreError};
use crate::clock::Micros;
use crate::local::{self, LocalId};

/// The answer for one feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    pub feed: String,
    /// Whether the reader sees it.
    pub shown: bool,
    #[serde(flatten)]
    pub reason: Reason,
    /// Its place in time, where it has one.
    pub time_us: Option<Micros>,
    /// Above it the feed shows everything, and below it nothing (`beyond = "end"`); `None`: it
    /// shows everything there is.
    pub floor_us: Option<Micros>,
    /// The keys it is published under; in a merged feed those of its whole group.
    pub keys: Vec<String>,
    /// The rule that replaced its keys, if one did.
    pub rule: Option<String>,
    /// The first record of its group, in a merged feed.
    pub begins: Option<String>,
    /// Which of its keys the reader follows, and by which record.
    pub follows: Vec<Via>,
}

/// One follow that reaches a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Via {
    pub key: String,
    /// The follow's URI; `None` where readers see their own without a follow.
    pub record: Option<String>,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "reason",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Reason {
    Shown,
    /// The feed does not show records of this collection.
    NotATarget {
        targets: Vec<String>,
    },
    /// Nothing was ever heard of it.
    NeverSeen,
    /// It waits in a queue.
    Pending,
    /// It waits for a record that it requires.
    Parked {
        missing: String,
    },
    /// It was refused.
    Dead {
        letter: Option<i64>,
        stage: String,
        message: String,
    },
    Deleted,
    /// Everything of its author is hidden.
    AuthorHidden {
        status: String,
    },
    /// Everything of the reader is hidden, its follows too.
    ReaderHidden {
        status: String,
    },
    /// The target's `where` does not hold for it.
    Filtered {
        condition: String,
    },
    /// The reader follows none of its keys.
    NotFollowed,
    /// The same, but the reader's repository is not here: its fetch `failed`, is `running`, or
    /// was made `never`.
    Unread {
        backfill: &'static str,
    },
    /// The reader hides its author, or every key that reaches it.
    Muted {
        key: String,
        record: String,
    },
    /// The feed ends before it (`beyond = "end"`).
    BeyondEnd {
        max_items: u32,
    },
}

impl Explained {
    /// The same, knowing whether the reader's repository is here. Of those who write directly
    /// there is none, and where accounts come whole with the stream (`Config::has_whole_accounts`)
    /// none is fetched: what they follow is known.
    pub fn given(mut self, reader: &str, first_read: FirstRead, has_whole_accounts: bool) -> Self {
        let backfill = match first_read {
            _ if has_whole_accounts => return self,
            // That its account is hidden is a reason of its own.
            FirstRead::Known | FirstRead::Hidden => return self,
            FirstRead::Waiting => "running",
            FirstRead::Failed => "failed",
            FirstRead::Unknown => "never",
        };
        if self.reason == Reason::NotFollowed && !reader.starts_with(local::PEOPLE) {
            self.reason = Reason::Unread { backfill };
        }
        self
    }
}

impl Reason {
    /// The reason in words.
    pub fn sentence(&self) -> String {
        match self {
            Self::Shown => "the reader sees it".into(),
            Self::NotATarget { targets } => {
                format!("the feed shows only records of {}", targets.join(", "))
            }
            Self::NeverSeen => "nothing was ever heard of it".into(),
            Self::Pending => "it waits in a queue".into(),
            Self::Parked { missing } => format!("it is parked until {missing} is here"),
            Self::Dead {
                letter: Some(letter),
                stage,
                message,
            } => format!("it was refused at stage {stage}: {message} (dead letter {letter})"),
            Self::Dead { .. } => "it was refused, and its dead letter was discarded".into(),
            Self::Deleted => "it was deleted".into(),
            Self::AuthorHidden { status } => format!("its author is {status}"),
            Self::ReaderHidden { status } => format!("the reader is {status}"),
            Self::Filtered { condition } => {
                format!("the feed's condition does not hold: {condition}")
            }
            Self::NotFollowed => "the reader follows none of its keys".into(),
            Self::Unread { backfill } => {
                let repository = match *backfill {
                    "running" => "is being fetched",
                    "failed" => "could not be fetched, and is not asked for again for some minutes",
                    _ => "was never fetched",
                };
                format!(
                    "the reader follows none of its keys, as far as is known: its repository {repository}"
                )
            }
            Self::Muted { key, record } => format!("the reader hides {key} by {record}"),
            Self::BeyondEnd { max_items } => {
                format!("the feed ends after {max_items} entries, and it is older than those")
            }
        }
    }
}

/// The record of a feed to which an app gave this id; `None` if the feed shows nothing that an app
/// writes.
///
/// Of several collections with that id the first that knows it counts.
pub fn meant(
    store: &SharedStore,
    feed: &FeedPlan,
    id: &LocalId,
) -> Result<Option<String>, StoreError> {
    let plan: &Plan = store.plan();
    let lanes = feed.targets.iter().map(|target| target.lane);
    let shown = lanes.flat_map(|lane| plan.collections_of(lane));
    let uris: Vec<String> = shown
        .filter(|nsid| plan.is_direct(nsid))
        .map(|nsid| id.uri(nsid))
        .collect();
    for uri in &uris {
        if store.position(uri)?.is_some() {
            return Ok(Some(uri.clone()));
        }
    }
    Ok(uris.into_iter().next())
}
