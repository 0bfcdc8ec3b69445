//! Sections that are one stage's settings each.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// `[[source]]`: one stream to read. Exactly one of the addresses is given.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Name under which its cursor is kept; the address where absent.
    pub name: Option<String>,
    /// A relay or PDS: `wss://host` or `ws://host:port`; several make a pool.
    #[serde(default)]
    pub firehose: Option<Urls>,
    /// A Jetstream: `wss://host/subscribe`, or of version 2 `wss://host/xrpc/network.bsky.jetstream.subscribeEvents`.
    #[serde(default)]
    pub jetstream: Option<Urls>,
    /// The log of another Feedmill: `http://host:port/log/space`, as its `log.publish` names the space.
    #[serde(default)]
    pub log: Option<String>,
    /// A Tap: `ws://host:2480`. It keeps the cursor, and is told what is durable.
    #[serde(default)]
    pub tap: Option<String>,
    /// A Jetstream's messages come packed with zstd.
    #[serde(default)]
    pub compress: bool,
    /// The dictionary of a packed Jetstream of version 1: a file, or an http address.
    #[serde(default)]
    pub dictionary: Option<std::path::PathBuf>,
}

/// One address, or a pool of equals.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Urls {
    One(String),
    Pool(Vec<String>),
}

impl Urls {
    /// Addresses set apart by commas.
    pub fn parse(urls: &str) -> Self {
        match urls.contains(',') {
            true => Self::Pool(urls.split(',').map(|url| url.trim().to_owned()).collect()),
            false => Self::One(urls.to_owned()),
        }
    }

    /// All addresses in the order given.
    pub fn all(&self) -> Vec<&str> {
        match self {
            Self::One(url) => vec![url],
            Self::Pool(urls) => urls.iter().map(String::as_str).collect(),
        }
    }
}

impl Source {
    /// The relay, or the pool of relays, at these addresses, set apart by commas.
    pub fn firehose_at(urls: &str) -> Self {
        Self {
            firehose: Some(Urls::parse(urls)),
            ..Self::default()
        }
    }

    /// The Jetstream, or the pool of them, at these addresses, set apart by commas.
    pub fn jetstream_at(urls: &str) -> Self {
        Self {
            jetstream: Some(Urls::parse(urls)),
            ..Self::default()
        }
    }

    /// The name under which the cursor is kept.
    pub fn name(&self) -> String {
        match (&self.name, self.urls().first()) {
            (Some(name), _) => name.clone(),
            (None, Some(url)) => url.clone(),
            (None, None) => "source".into(),
        }
    }

    /// All its addresses.
    pub fn urls(&self) -> Vec<String> {
        let urls = self.firehose.as_ref().or(self.jetstream.as_ref());
        let all = urls.map(Urls::all).unwrap_or_default();
        all.into_iter()
            .chain(self.tap.as_deref())
            .chain(self.log.as_deref())
            .map(str::to_owned)
            .collect()
    }

    /// The WebSocket address of a log's space, and the space; `None` where it is not one.
    pub fn log_space(&self) -> Option<(String, String)> {
        let url = self.log.as_deref()?;
        let rest = match url.strip_prefix("http") {
            Some(rest) => rest,
            None => url.strip_prefix("ws")?,
        };
        let address = rest
            .strip_prefix("s://")
            .or_else(|| rest.strip_prefix("://"))?;
        let (host, space) = address.split_once("/log/")?;
        let whole = !host.is_empty() && !space.is_empty() && !space.contains(['/', '?', '#', '%']);
        whole.then(|| (format!("ws{rest}"), space.to_owned()))
    }

    fn log_fault(&self, index: usize) -> Option<(String, String)> {
        self.log_space().is_none().then(|| {
            let url = self.log.as_deref().unwrap_or_default();
            let problem = format!(
                "{url:?} is not the address of a log's space such as \"https://feedmill.example/log/river\""
            );
            (format!("source.{index}.log"), problem)
        })
    }

    pub(super) fn fault(&self, index: usize) -> Option<(String, String)> {
        let tap = self.tap.clone().map(Urls::One);
        let (key, urls) = match (&self.firehose, &self.jetstream, &tap, &self.log) {
            (Some(urls), None, None, None) => ("firehose", urls),
            (None, Some(urls), None, None) => ("jetstream", urls),
            (None, None, Some(urls), None) => ("tap", urls),
            (None, None, None, Some(_)) => return self.log_fault(index),
            _ => {
                return Some((
                    format!("source.{index}"),
                    "needs exactly one of firehose, jetstream, tap, log".into(),
                ));
            }
        };
        let bad = urls.all().into_iter().find(|url| {
            let rest = url.strip_prefix("ws://").or(url.strip_prefix("wss://"));
            rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match bad {
            Some(url) => Some((
                format!("source.{index}.{key}"),
                format!("{url:?} is not a WebSocket address such as \"wss://relay.example\""),
            )),
            None if urls.all().is_empty() => {
                Some((format!("source.{index}.{key}"), "names no address".into()))
            }
            None => self.packing_fault(index, urls),
        }
    }
}

impl Source {
    fn packing_fault(&self, index: usize, urls: &Urls) -> Option<(String, String)> {
        let packed = self.compress || self.dictionary.is_some();
        if packed && self.jetstream.is_none() {
            return Some((
                format!("source.{index}.compress"),
                "only a Jetstream packs its messages".into(),
            ));
        }
        let first = |url: &str| !url.contains("subscribeEvents");
        let needs = self.compress && urls.all().into_iter().any(first);
        (needs && self.dictionary.is_none()).then(|| {
            (
                format!("source.{index}.compress"),
                "a Jetstream of version 1 needs `dictionary` too".into(),
            )
        })
    }
}

/// `[store]`: where records come to rest.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `sqlite://path` or `sqlite::memory:`.
    pub url: String,
    /// Connections that answer reads.
    pub readers: NonZeroUsize,
    /// Page cache of each connection that reads, in MiB; the writer has four times as much, and remembers
    /// a thousand accounts and keys for each of them.
    pub cache_mib: u32,
    /// Changes kept for branches that draw from the outbox.
    pub outbox_max: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: "sqlite://feedmill.db".into(),
            readers: NonZeroUsize::MIN.saturating_add(3),
            cache_mib: 64,
            outbox_max: 1_000_000,
        }
    }
}

impl Store {
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let engine = self.url.split(':').next().unwrap_or_default();
        match engine {
            "sqlite" => None,
            "postgres" | "postgresql" => Some((
                "store.url".into(),
                "this build has no PostgreSQL store; build with --features postgres once it exists, or use sqlite://".into(),
            )),
            _ => Some((
                "store.url".into(),
                format!("{:?} is not a store; use \"sqlite://file.db\" or \"sqlite::memory:\"", self.url),
            )),
        }
    }
}

/// How much of a commit is proved before it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Hashes, commit signature, and the inductive proof of Sync 1.1.
    Full,
    /// Hashes of every block.
    Cid,
    /// Nothing; only for a source you run yourself.
    Off,
}

/// `[intake]`: from the socket to the store.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Intake {
    /// How much of a commit is proved.
    pub verify: Verify,
    /// Events waiting between socket and store; above it the socket is not read.
    pub pending_max: usize,
    /// Records applied in one transaction at most; beyond it queues decide, and the rest waits in the store.
    pub turn_max: usize,
    /// Records that wait in the store at most; above it the socket is not read.
    pub spill_max: usize,
    /// Events in one transaction at most.
    pub batch_max: usize,
    /// Milliseconds after which a smaller batch is committed.
    pub flush_ms: u64,
    /// Largest frame accepted, in bytes.
    pub frame_bytes_max: usize,
    /// Largest record accepted, in bytes.
    pub record_bytes_max: usize,
    /// First pause before reconnecting, in milliseconds; it doubles up to `reconnect_ms_max`.
    pub reconnect_ms: u64,
    /// Longest pause before reconnecting, in milliseconds.
    pub reconnect_ms_max: u64,
    /// Seconds without a single frame after which the connection is given up.
    pub silence_s_max: u64,
    /// The plc directory, for keys and hosts of accounts.
    pub plc_url: String,
    /// Where did:web documents are asked instead of at the host itself; for networks in a box.
    pub did_web_url: Option<String>,
    /// Repositories fetched at once when repairing a gap.
    pub resync_max: usize,
    /// Requests made to one host at a time when fetching repositories and lists.
    pub host_max: usize,
    /// A relay or host whose list of accounts is read at first, so that those it no longer streams are found.
    pub backfill: Option<String>,
    /// Hours until that list is read again; 0 reads it at every start.
    pub backfill_h: u64,
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            verify: Verify::Cid,
            pending_max: 10_000,
            turn_max: 10_000,
            spill_max: 1_000_000,
            batch_max: 10_000,
            flush_ms: 20,
            frame_bytes_max: 5_000_000,
            record_bytes_max: 1_000_000,
            reconnect_ms: 500,
            reconnect_ms_max: 30_000,
            silence_s_max: 120,
            plc_url: "https://plc.directory".into(),
            did_web_url: None,
            resync_max: 8,
            host_max: 2,
            backfill: None,
            backfill_h: 24,
        }
    }
}

impl Intake {
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let zero = [
            ("pending_max", self.pending_max),
            ("turn_max", self.turn_max),
            ("spill_max", self.spill_max),
            ("batch_max", self.batch_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("record_bytes_max", self.record_bytes_max),
            ("resync_max", self.resync_max),
            ("host_max", self.host_max),
        ]
        .into_iter()
        .find(|(_, value)| *value == 0);
        if let Some((key, _)) = zero {
            return Some((format!("intake.{key}"), "must be at least 1".into()));
        }
        let http = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        [
            ("plc_url", Some(&self.plc_url)),
            ("backfill", self.backfill.as_ref()),
        ]
        .into_iter()
        .find_map(|(key, url)| Some((key, url.filter(|url| !http(url))?)))
        .map(|(key, url)| {
            (
                format!("intake.{key}"),
                format!("{url:?} is not an http or https address"),
            )
        })
    }
}

/// `[timelines]`: what is held in memory to answer quickly.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timelines {
    /// Where timelines are kept: `memory:`.
    pub url: String,
    /// Memory for timelines, in MiB; 0 answers every page from the store.
    pub memory_mib: usize,
    /// Days after its last read that a timeline is kept.
    pub ttl_days: u32,
    /// Readers above which a post is fanned out in the background.
    pub sync_threshold: usize,
    /// Active readers of a key above which it is read from its outbox instead of being pushed.
    pub pull_above: usize,
    /// Keys of a reader above which recent records are walked instead of its keys' outboxes.
    pub scan_above: usize,
    /// Entries looked at for one page before it is returned short.
    pub page_scan_max: usize,
}

impl Default for Timelines {
    fn default() -> Self {
        Self {
            url: "memory:".into(),
            memory_mib: 1024,
            ttl_days: 7,
            sync_threshold: 5_000,
            pull_above: 100_000,
            scan_above: 10_000,
            page_scan_max: 100_000,
        }
    }
}

impl Timelines {
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let engine = self.url.split(':').next().unwrap_or_default();
        let wrong = match engine {
            "memory" => None,
            "redis" | "rediss" => Some(
                "this build has no timelines in Redis; build with --features redis once it exists, or use memory:"
                    .to_owned(),
            ),
            _ => Some(format!("{:?} keeps no timelines; use \"memory:\"", self.url)),
        };
        if let Some(problem) = wrong {
            return Some(("timelines.url".into(), problem));
        }
        (self.page_scan_max < 200).then(|| {
            (
                "timelines.page_scan_max".into(),
                "must be at least 200, the largest page".into(),
            )
        })
    }
}
