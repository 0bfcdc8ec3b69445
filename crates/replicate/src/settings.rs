//! `[log]` in the configuration file.
//!
//! In:    what the operator wrote.
//! Out:   the limits and rules of the log, complete.
//! Never: an unknown key taken for a default.

use crate::origin::is_origin;
use blocklog::limits::Limits;
use blocklog::replica::{Mode, Target};
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

/// Who may do something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Whoever can reach the server.
    Anyone,
    /// Who shows a token that allows it.
    #[default]
    Token,
    /// Nobody from outside.
    Nobody,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Query, subscribe, list; read streams.
    Read,
    /// Append to spaces and streams that exist.
    Append,
    /// Create and delete spaces and streams, purge feeds.
    Create,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 3] = [Self::Read, Self::Append, Self::Create];
}

/// `[[log.tokens]]`: a token beside `FEEDMILL_LOG_TOKEN`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSetting {
    /// The environment variable that holds it.
    pub env: String,
    /// What its holder may do.
    pub may: Vec<Right>,
    /// To which spaces; all where absent.
    pub spaces: Option<BTreeSet<String>>,
}

/// `[log.spaces.<name>]`: exceptions for one space.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpaceSetting {
    /// Who may read it.
    pub read: Option<Who>,
    /// Who may append to it.
    pub append: Option<Who>,
    /// Bytes it may hold.
    pub bytes_max: Option<u64>,
}

/// The space all streams live in.
pub const STREAMS_SPACE: &str = "streams";

/// `[[log.replicate]]`: a space of another log, of which this log keeps a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplicateSetting {
    /// `http://host:port/log/space`.
    pub log: String,
    /// The environment variable that holds the token which that log asks for.
    pub token_env: Option<String>,
    /// Only these feeds; all where empty.
    pub feeds: Vec<String>,
    /// All but these feeds.
    pub without: Vec<String>,
    /// Only what has this position or a higher one.
    pub from: u64,
    /// Only what comes from the first start on.
    pub tail: bool,
    /// Only what came at or after this time, in Unix milliseconds.
    pub since: Option<u64>,
}

impl ReplicateSetting {
    /// The server, as a WebSocket address, and the space.
    #[must_use]
    pub fn place(&self) -> Option<(String, String)> {
        let rest = self.log.strip_prefix("http")?;
        let (server, space) = rest.split_once("/log/")?;
        let whole = server.contains("://") && !space.is_empty() && !space.contains(['/', '%', '?']);
        whole.then(|| (format!("ws{server}"), space.to_owned()))
    }

    /// What of the space is replicated.
    #[must_use]
    pub fn lanes(&self) -> Vec<(Target, Mode)> {
        let mode = match self.since {
            Some(time_ms) => Mode::Since(time_ms),
            None if self.tail => Mode::Tail,
            None => Mode::From(self.from),
        };
        let feeds = self.feeds.iter().cloned().map(Target::Feed);
        let space = self.feeds.is_empty().then_some(Target::Space);
        let apart = self.without.iter().cloned().map(Target::Feed);
        let wanted = space.into_iter().chain(feeds);
        let wanted = wanted.map(|target| (target, mode));
        wanted
            .chain(apart.map(|target| (target, Mode::None)))
            .collect()
    }

    fn problem(&self) -> Option<String> {
        if self.place().is_none() {
            return Some(format!("{:?} is not http://host:port/log/space", self.log));
        }
        let starts = [self.from > 0, self.tail, self.since.is_some()];
        if starts.into_iter().filter(|set| *set).count() > 1 {
            return Some("has more than one of from, tail and since".to_owned());
        }
        let both = !self.feeds.is_empty() && !self.without.is_empty();
        both.then(|| "has feeds and without; one of them is enough".to_owned())
    }
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
    /// Who may read.
    pub read: Who,
    /// Who may append to spaces that exist.
    pub append: Who,
    /// Who may create and delete spaces. An append to a space that is not there creates it.
    pub create: Who,
    /// Exceptions for single spaces, by name.
    pub spaces: BTreeMap<String, SpaceSetting>,
    /// Tokens beside `FEEDMILL_LOG_TOKEN`, which may do everything.
    pub tokens: Vec<TokenSetting>,
    /// Origins whose pages may use the log: `https://app.example`, or `*` for all.
    pub origins: Vec<String>,
    /// Spaces of other logs, of which this one keeps replicas.
    pub replicate: Vec<ReplicateSetting>,
    /// Spaces there may be.
    pub spaces_max: usize,
    /// Bytes of one space: payloads, and 128 for each block.
    pub space_bytes_max: u64,
    /// Bytes of the file that holds the log; from then on nothing is appended.
    pub bytes_max: u64,
    /// Under which names one may append. Streams are open to every name or to none.
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
            read: Who::Token,
            append: Who::Token,
            create: Who::Token,
            spaces: BTreeMap::new(),
            tokens: Vec::new(),
            origins: Vec::new(),
            replicate: Vec::new(),
            spaces_max: 10_000,
            space_bytes_max: limits.space_bytes_max,
            bytes_max: 100 << 30,
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
            stream_page_bytes_max: 1 << 20,
        }
    }
}

impl LogSettings {
    /// The defaults with every right for everybody.
    #[must_use]
    pub fn open() -> Self {
        Self {
            read: Who::Anyone,
            append: Who::Anyone,
            create: Who::Anyone,
            ..Self::default()
        }
    }

    /// Who may do this to `space`.
    #[must_use]
    pub fn who(&self, right: Right, space: &str) -> Who {
        let own = self.spaces.get(space);
        match right {
            Right::Read => own.and_then(|own| own.read).unwrap_or(self.read),
            Right::Append => own.and_then(|own| own.append).unwrap_or(self.append),
            Right::Create => self.create,
        }
    }

    /// Bytes that `space` may hold.
    #[must_use]
    pub fn bytes_max_of(&self, space: &str) -> u64 {
        let own = self.spaces.get(space).and_then(|own| own.bytes_max);
        own.unwrap_or(self.space_bytes_max)
    }

    /// Spaces that cannot be replicated, each with the reason.
    fn replicate_faults(&self, found: &mut Vec<(String, String)>) {
        let mut spaces = BTreeSet::from([STREAMS_SPACE.to_owned()]);
        spaces.extend(self.publish.clone());
        for (index, replica) in self.replicate.iter().enumerate() {
            let space = replica.place().map(|(_, space)| space).unwrap_or_default();
            let problem = match replica.problem() {
                Some(problem) => problem,
                None if self.file.is_none() => "needs log.file too".to_owned(),
                None if spaces.insert(space.clone()) => continue,
                None => format!("the space {space:?} is written here or replicated already"),
            };
            found.push((format!("log.replicate.{index}.log"), problem));
        }
    }

    /// Everything that makes no sense: keys, and why.
    #[must_use]
    pub fn faults(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for wrong in self.origins.iter().filter(|one| !is_origin(one)) {
            let problem = format!("{wrong:?} is not an origin such as \"https://app.example\"");
            found.push(("log.origins".into(), problem));
        }
        self.replicate_faults(&mut found);
        if let Some(problem) = self.publish_fault() {
            found.push(("log.publish".into(), problem.into()));
        }
        found
    }

    fn publish_fault(&self) -> Option<&'static str> {
        let space = self.publish.as_deref()?;
        match self.file {
            None => Some("needs log.file too"),
            Some(_) if self.limits().allows_id(space) && !space.contains(['/', '?', '#', '%']) => {
                None
            }
            Some(_) => Some("is not the name of a space: one to 512 bytes without / ? # %"),
        }
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
            space_bytes_max: self.space_bytes_max,
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
