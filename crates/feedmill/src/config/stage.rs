//! Sections that are one stage's settings each.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::fault::Found;

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
    /// The environment variable that holds the token which that log asks for.
    #[serde(default)]
    pub token_env: Option<String>,
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
#[serde(untagged, expecting = "takes an address, or a list of addresses")]
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

    /// The token that its log asks for, from the environment.
    pub fn token(&self) -> Option<String> {
        let name = self.token_env.as_deref()?;
        let found = std::env::var(name).ok().filter(|token| !token.is_empty());
        if found.is_none() {
            tracing::warn!(
                name,
                "source.token_env names an environment variable that is not set"
            );
        }
        found
    }

    fn log_faults(&self, index: usize, found: &mut Found) {
        found.unless(self.log_space().is_some(), format!("source.{index}.log"), || {
            let url = self.log.as_deref().unwrap_or_default();
            format!(
                "{url:?} is not the address of a log's space such as \"https://feedmill.example/log/river\""
            )
        });
    }

    pub(super) fn faults(&self, index: usize, found: &mut Found) {
        let tap = self.tap.clone().map(Urls::One);
        let (key, urls) = match (&self.firehose, &self.jetstream, &tap, &self.log) {
            (Some(urls), None, None, None) => ("firehose", urls),
            (None, Some(urls), None, None) => ("jetstream", urls),
            (None, None, Some(urls), None) => ("tap", urls),
            (None, None, None, Some(_)) => return self.log_faults(index, found),
            _ => {
                let problem = "needs exactly one of firehose, jetstream, tap, log";
                return found.add(format!("source.{index}"), problem);
            }
        };
        let key = format!("source.{index}.{key}");
        found.unless(!urls.all().is_empty(), &key, || "names no address".into());
        for url in urls.all() {
            let rest = url.strip_prefix("ws://").or(url.strip_prefix("wss://"));
            let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
            found.unless(has_host, &key, || {
                format!("{url:?} is not a WebSocket address such as \"wss://relay.example\"")
            });
        }
        self.packing_faults(index, urls, found);
    }

    fn packing_faults(&self, index: usize, urls: &Urls, found: &mut Found) {
        let packed = self.compress || self.dictionary.is_some();
        let key = format!("source.{index}.compress");
        found.unless(!packed || self.jetstream.is_some(), &key, || {
            "only a Jetstream packs its messages".into()
        });
        let first = |url: &str| !url.contains("subscribeEvents");
        let needs = self.compress
            && self.jetstream.is_some()
            && self.dictionary.is_none()
            && urls.all().into_iter().any(first);
        found.unless(!needs, &key, || {
            "a Jetstream of version 1 needs `dictionary` too".into()
        });
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
    /// Bytes of them.
    pub outbox_bytes_max: u64,
    /// How large the write-ahead log may grow before it is cut back, in MiB.
    pub wal_mib_max: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: "sqlite://feedmill.db".into(),
            readers: NonZeroUsize::MIN.saturating_add(3),
            cache_mib: 64,
            outbox_max: 1_000_000,
            outbox_bytes_max: 512 << 20,
            wal_mib_max: 512,
        }
    }
}

impl Store {
    /// Where the store is; `None` if it is in memory.
    pub fn file(&self) -> Option<PathBuf> {
        self.url.strip_prefix("sqlite://").map(PathBuf::from)
    }

    /// Where the search index is.
    pub fn search_file(&self) -> Option<PathBuf> {
        Some(self.file()?.with_extension("search.db"))
    }

    /// Where labels are.
    pub fn labels_file(&self) -> Option<PathBuf> {
        Some(self.file()?.with_extension("labels.db"))
    }

    pub(super) fn faults(&self, found: &mut Found) {
        let engine = self.url.split(':').next().unwrap_or_default();
        match engine {
            "sqlite" if self.wal_mib_max == 0 => {
                found.add("store.wal_mib_max", "must be at least 1");
            }
            "sqlite" if self.outbox_bytes_max == 0 => {
                found.add("store.outbox_bytes_max", "must be at least 1");
            }
            "sqlite" => {}
            "postgres" | "postgresql" => found.add(
                "store.url",
                "this build has no PostgreSQL store; build with --features postgres once it exists, or use sqlite://",
            ),
            _ => found.add(
                "store.url",
                format!("{:?} is not a store; use \"sqlite://file.db\" or \"sqlite::memory:\"", self.url),
            ),
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
    /// Where `feedmill ingest` answers `/health`, `/ready`, `/status` and `/metrics`.
    pub bind: String,
    /// How much of a commit is proved.
    pub verify: Verify,
    /// Events waiting between socket and store; above it the socket is not read.
    pub pending_max: usize,
    /// Bytes of frames waiting there, of each source; above it the socket is not read.
    pub pending_bytes_max: usize,
    /// Records applied in one transaction at most; beyond it queues decide, and the rest waits in the store.
    pub turn_max: usize,
    /// Records that wait in the store at most; above it the socket is not read.
    pub spill_max: usize,
    /// Bytes of them; above it the socket is not read.
    pub spill_bytes_max: u64,
    /// Bytes of frames kept for one account until its repository is fetched; what is beyond it the repository brings.
    pub held_account_bytes_max: u64,
    /// Bytes of frames kept for all such accounts.
    pub held_bytes_max: u64,
    /// Events in one transaction at most.
    pub batch_max: usize,
    /// Bytes of events in one transaction at most, unless one alone is larger.
    pub batch_bytes_max: usize,
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
    /// Repositories fetched at once because somebody reads as their accounts.
    pub reader_fetch_max: usize,
    /// Requests made to one host at a time when fetching repositories and lists.
    pub host_max: usize,
    /// Requests made to one host in a second, for each cause: repairs, readers, lists, documents, tokens, handles.
    pub host_rate_max: u32,
    /// Documents that the plc directory is asked for in a second to repair accounts and verify signatures.
    pub plc_rate_max: u32,
    /// Largest repository fetched, in bytes; it is kept on disk until it is applied.
    pub repo_bytes_max: usize,
    /// Bytes of all fetched repositories on disk.
    pub repo_disk_bytes_max: u64,
    /// Bytes of all fetched repositories in memory, and of what is made of them; one that needs more is not applied.
    pub repo_memory_bytes_max: usize,
    /// Seconds that a repository may take.
    pub repo_s_max: u64,
    /// Bytes in a second that a host must send, averaged over `speed_s` seconds.
    pub speed_bytes_min: u64,
    /// Seconds over which that is averaged, and after which a silent host is given up.
    pub speed_s: u64,
    /// A relay or host whose list of accounts is read at first, so that those it no longer streams are found.
    pub backfill: Option<String>,
    /// Hours until that list is read again; 0 reads it at every start.
    pub backfill_h: u64,
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:8081".into(),
            verify: Verify::Cid,
            pending_max: 10_000,
            pending_bytes_max: 64_000_000,
            turn_max: 10_000,
            spill_max: 1_000_000,
            spill_bytes_max: 1 << 30,
            held_account_bytes_max: 16 << 20,
            held_bytes_max: 256 << 20,
            batch_max: 10_000,
            batch_bytes_max: 16_000_000,
            flush_ms: 20,
            frame_bytes_max: 5_000_000,
            record_bytes_max: 1_000_000,
            reconnect_ms: 500,
            reconnect_ms_max: 30_000,
            silence_s_max: 120,
            plc_url: "https://plc.directory".into(),
            did_web_url: None,
            resync_max: 8,
            reader_fetch_max: 8,
            host_max: 2,
            host_rate_max: 50,
            plc_rate_max: 200,
            repo_bytes_max: 256 << 20,
            repo_disk_bytes_max: 2 << 30,
            repo_memory_bytes_max: 512 << 20,
            repo_s_max: 600,
            speed_bytes_min: 4096,
            speed_s: 10,
            backfill: None,
            backfill_h: 24,
        }
    }
}

impl Intake {
    pub(super) fn faults(&self, found: &mut Found) {
        let zero = [
            ("pending_max", self.pending_max),
            ("pending_bytes_max", self.pending_bytes_max),
            ("batch_bytes_max", self.batch_bytes_max),
            ("turn_max", self.turn_max),
            ("spill_max", self.spill_max),
            (
                "spill_bytes_max",
                usize::try_from(self.spill_bytes_max).unwrap_or(usize::MAX),
            ),
            ("batch_max", self.batch_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("record_bytes_max", self.record_bytes_max),
            ("resync_max", self.resync_max),
            ("reader_fetch_max", self.reader_fetch_max),
            ("host_max", self.host_max),
            ("host_rate_max", self.host_rate_max as usize),
            ("plc_rate_max", self.plc_rate_max as usize),
            ("repo_bytes_max", self.repo_bytes_max),
            ("repo_memory_bytes_max", self.repo_memory_bytes_max),
            ("repo_s_max", self.repo_s_max as usize),
            ("speed_s", self.speed_s as usize),
        ];
        for (key, value) in zero {
            found.unless(value > 0, format!("intake.{key}"), || {
                "must be at least 1".into()
            });
        }
        let large = [
            ("repo_disk_bytes_max", self.repo_disk_bytes_max),
            ("repo_memory_bytes_max", self.repo_memory_bytes_max as u64),
        ];
        for (key, value) in large {
            let holds_one = value >= self.repo_bytes_max as u64;
            found.unless(holds_one, format!("intake.{key}"), || {
                "must be at least intake.repo_bytes_max, or lower that".into()
            });
        }
        let is_address = self.bind.parse::<std::net::SocketAddr>().is_ok();
        found.unless(is_address, "intake.bind", || {
            let example = "is not an address and port such as \"127.0.0.1:8081\"";
            format!("{:?} {example}", self.bind)
        });
        let http = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        let urls = [
            ("plc_url", Some(&self.plc_url)),
            ("backfill", self.backfill.as_ref()),
        ];
        for (key, url) in urls.into_iter().filter_map(|(key, url)| Some((key, url?))) {
            found.unless(http(url), format!("intake.{key}"), || {
                format!("{url:?} is not an http or https address")
            });
        }
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
    pub(super) fn faults(&self, found: &mut Found) {
        let engine = self.url.split(':').next().unwrap_or_default();
        match engine {
            "memory" => {}
            "redis" | "rediss" => found.add(
                "timelines.url",
                "this build has no timelines in Redis; build with --features redis once it exists, or use memory:",
            ),
            _ => found.add(
                "timelines.url",
                format!("{:?} keeps no timelines; use \"memory:\"", self.url),
            ),
        }
        found.unless(self.page_scan_max >= 200, "timelines.page_scan_max", || {
            "must be at least 200, the largest page".into()
        });
    }
}
