//! `[log]` in the configuration file.
//!
//! In:    what the operator wrote.
//! Out:   the limits and rules of the log, complete.
//! Never: an unknown key taken for a default.

use blocklog::limits::Limits;
use blocklog::store::Keep;
use blocklog::writers::Writers;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who may append, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritersSetting {
    /// Everybody, under any name.
    #[default]
    Anyone,
    /// Actors that are keys and sign.
    Keys,
    /// Actors that are keys, each to the feed of its own name.
    OwnFeed,
    /// Nobody from outside.
    Nobody,
    /// The actors listed for each feed.
    Listed(BTreeMap<String, BTreeSet<String>>),
}

/// How much of a feed is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepSetting {
    /// Everything.
    #[default]
    All,
    /// The newest so many blocks.
    Newest(u64),
    /// Blocks of the last so many hours.
    Hours(u64),
}

impl KeepSetting {
    /// What to keep at this time.
    #[must_use]
    pub fn at(self, now_ms: u64) -> Keep {
        match self {
            Self::All => Keep::All,
            Self::Newest(count) => Keep::Newest(count),
            Self::Hours(hours) => {
                Keep::Since(now_ms.saturating_sub(hours.saturating_mul(3_600_000)))
            }
        }
    }
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// The file that holds the log; without it there is none.
    pub file: Option<std::path::PathBuf>,
    /// The space in which the changes of every collection are published; without it none are.
    pub publish: Option<String>,
    /// Whether a space that is not known is made by its first append or
    /// subscription.
    pub make_spaces: bool,
    /// Spaces that may be made in this way.
    pub spaces_max: usize,
    /// Who may append. Streams are open to everybody or to nobody.
    pub writers: WritersSetting,
    /// How much of each feed is kept.
    pub keep: KeepSetting,
    /// Exceptions to `keep`, by feed id.
    pub keep_feeds: BTreeMap<String, KeepSetting>,
    /// Bytes of one block.
    pub block_bytes_max: usize,
    /// Blocks of one append.
    pub batch_blocks_max: usize,
    /// Bytes of one append.
    pub batch_bytes_max: usize,
    /// Blocks of one page.
    pub page_blocks_max: usize,
    /// Feeds of one space.
    pub space_feeds_max: u64,
    /// Live subscriptions of one space.
    pub space_subscriptions_max: u64,
    /// How long a subscription lives unless renewed.
    pub subscription_seconds_max: u64,
    /// Blocks that may be appended to one space in a second, on average; twice
    /// as many at once.
    pub append_blocks_per_second_max: u64,
    /// WebSocket connections at once.
    pub connections_max: usize,
    /// How long a reader of a stream may wait for news.
    pub long_poll_seconds_max: u64,
    /// How long a stream of events stays open.
    pub event_stream_seconds_max: u64,
    /// Bytes of one answer to a reader of a stream.
    pub stream_page_bytes_max: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            file: None,
            publish: None,
            make_spaces: true,
            spaces_max: 10_000,
            writers: WritersSetting::default(),
            keep: KeepSetting::default(),
            keep_feeds: BTreeMap::new(),
            block_bytes_max: limits.block_bytes_max,
            batch_blocks_max: limits.batch_blocks_max,
            batch_bytes_max: limits.batch_bytes_max,
            page_blocks_max: limits.page_blocks_max,
            space_feeds_max: limits.space_feeds_max,
            space_subscriptions_max: limits.space_subscriptions_max,
            subscription_seconds_max: limits.subscription_ms_max / 1000,
            append_blocks_per_second_max: 100_000,
            connections_max: 10_000,
            long_poll_seconds_max: 20,
            event_stream_seconds_max: 60,
            stream_page_bytes_max: 4 << 20,
        }
    }
}

impl LogSettings {
    /// The first thing that makes no sense: its key and why.
    #[must_use]
    pub fn fault(&self) -> Option<(String, String)> {
        let space = self.publish.as_deref()?;
        let problem = match self.file {
            None => "needs log.file too",
            Some(_) if self.limits().allows_id(space) && !space.contains(['/', '?', '#', '%']) => {
                return None;
            }
            Some(_) => "is not the name of a space: one to 512 bytes without / ? # %",
        };
        Some(("log.publish".into(), problem.into()))
    }

    /// The limits of the log.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            block_bytes_max: self.block_bytes_max,
            batch_blocks_max: self.batch_blocks_max,
            batch_bytes_max: self.batch_bytes_max,
            page_blocks_max: self.page_blocks_max,
            space_feeds_max: self.space_feeds_max,
            space_subscriptions_max: self.space_subscriptions_max,
            subscription_ms_max: self.subscription_seconds_max.saturating_mul(1000),
            ..Limits::default()
        }
    }

    /// The rule of who may append.
    #[must_use]
    pub fn writers(&self) -> Writers {
        match &self.writers {
            WritersSetting::Anyone => Writers::Anyone,
            WritersSetting::Keys => Writers::Keys,
            WritersSetting::OwnFeed => Writers::OwnFeed,
            WritersSetting::Nobody => Writers::Nobody,
            WritersSetting::Listed(feeds) => Writers::Listed(feeds.clone()),
        }
    }

    /// Whether nothing is ever let go.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        let mut settings = self.keep_feeds.values().chain([&self.keep]);
        settings.all(|keep| *keep == KeepSetting::All)
    }

    /// How much of `feed` is kept.
    #[must_use]
    pub fn keep(&self, feed: &str) -> KeepSetting {
        self.keep_feeds.get(feed).copied().unwrap_or(self.keep)
    }
}
