//! The wiring: which stage hands what to which.
//!
//! ```text
//! source ─▶ notary ─▶ intake (decode, check) ─▶ store ═▶ fanout ─▶ serve ─▶ reader
//!                               ▲                ▲│ └───────────────▲
//!                               └──── resync ◀───┼┘
//!                                     backfill ──┘
//! ```
//!
//! One place starts everything and stops it in order: sources first, then the
//! intake drains what it was given, then the server finishes open requests.

// Where the process answers.
mod answering;
mod log;
// The address and the lease, before anything else.
mod opening;
// The server and what it is made of.
mod serving;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle as ThreadHandle;
use std::time::Duration;

use replicate::peer::PeerError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use opening::{Door, lease};

use crate::backfill::Backfill;
use crate::branch::{self, Branch, BranchError};
use crate::check::{CheckError, Checker};
use crate::clock::Clock;
use crate::condition::Condition;
use crate::config::{Config, Source};
use crate::decode::jetstream::JetstreamDecoder;
use crate::decode::log::LogDecoder;
use crate::decode::tap::TapDecoder;
use crate::decode::{Decoder, Opener};
use crate::fanout::Fanout;
use crate::identity::Resolver;
use crate::intake::{self, Gathering, Intake};
use crate::lease::Lease;
use crate::live::Live;
use crate::monitor::Monitor;
use crate::notary::Notary;
use crate::reach::fetch::{FetchError, Fetcher};
use crate::resync::{AtOnce, Resync};
use crate::search::{SearchBranch, SearchIndex};
use crate::secret::SecretError;
use crate::serve::Server;
use crate::serve::descriptors;
use crate::serve::direct::DirectError;
use crate::serve::starting::Doing;
use crate::source::jetstream::Jetstream;
use crate::source::log::LogStream;
use crate::source::pending::Pending;
use crate::source::stream::{Dialect, Stream};
use crate::source::tap::Acks;
use crate::source::{Arrival, Rewind};
use crate::status::health::Health;
use crate::status::{Status, StreamKind};
use crate::store::attempt::Attempt;
use crate::store::{self, Plan, SharedStore, StoreError};
use crate::tend::{self, Tend};

/// Which parts of the river run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sources to store.
    Ingest,
    /// Store to readers.
    Serve,
    /// Both.
    All,
}

/// Why the river does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("store")]
    Store(#[from] StoreError),
    #[error("branch")]
    Branch(#[from] BranchError),
    #[error("checks")]
    Check(#[from] CheckError),
    #[error("direct API")]
    Direct(#[from] DirectError),
    #[error("requests to other hosts")]
    Fetch(#[from] FetchError),
    #[error("cannot listen on {address}; is another process there? set {setting}")]
    Listen {
        setting: &'static str,
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the lock file beside the store")]
    Lease(#[source] std::io::Error),
    #[error("secrets")]
    Secret(#[from] SecretError),
    #[error("log")]
    Log(#[source] blocklog::store::StoreError),
    #[error("[log] names the environment variable {0}, which is not set")]
    LogToken(String),
    #[error("log.replicate")]
    Replica(#[source] PeerError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// What a start needs beside the configuration.
#[derive(Debug)]
pub struct Start<'a> {
    pub role: Role,
    pub clock: Clock,
    /// Lexicons that need no file.
    pub lexicons: &'a [&'a str],
}

/// Frames of one source, and the way to ask for them again.
struct Frames {
    frames: mpsc::Receiver<Arrival>,
    rewind: Arc<Rewind>,
    /// Where the source is told what is durable.
    acks: Option<Arc<Acks>>,
}

/// The NSIDs of all collections that are kept.
fn nsids(config: &Config) -> Vec<String> {
    let all = config.collections.values();
    all.map(|collection| collection.collection.clone())
        .collect()
}

fn thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<ThreadHandle<()>, StartError> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(work).map_err(StartError::Thread)
}

/// Runs what blocks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|panic| StartError::Thread(std::io::Error::other(panic)))
}

fn opener(source: &Source, decoder: &Decoder) -> Opener {
    let decoder = decoder.clone();
    if let Some((_, space)) = source.log_space() {
        return Opener::Log(LogDecoder::new(JetstreamDecoder::new(decoder), &space));
    }
    match (&source.jetstream, &source.tap) {
        (Some(_), _) => Opener::Jetstream(JetstreamDecoder::new(decoder)),
        (None, Some(_)) => Opener::Tap(TapDecoder::new(decoder)),
        (None, None) => Opener::Firehose(decoder),
    }
}

/// A running river.
#[derive(Debug)]
pub struct River {
    pub store: SharedStore,
    pub plan: Arc<Plan>,
    pub status: Arc<Status>,
    checker: Arc<Checker>,
    /// Asks hosts that others named.
    pub fetcher: Arc<Fetcher>,
    /// Where the server listens.
    pub address: Option<SocketAddr>,
    stop_sources: watch::Sender<bool>,
    stop_server: watch::Sender<bool>,
    sources: Vec<JoinHandle<()>>,
    intakes: Vec<ThreadHandle<()>>,
    server: Option<JoinHandle<()>>,
    /// What answers requests, for reloads.
    answering: Option<Arc<Server>>,
    live: Option<Arc<Live>>,
    stop_drawing: Arc<AtomicBool>,
    drawers: Vec<ThreadHandle<()>>,
    /// Ends when everything has stopped.
    _lease: Option<Lease>,
}

impl River {
    /// Starts all stages of a role.
    pub async fn start(config: &Config, start: Start<'_>) -> Result<Self, StartError> {
        crate::status::gauges::begin(config);
        descriptors::raise();
        crate::identity::provide_tls();
        let stop_server = watch::Sender::new(false);
        let door = Door::open(config, start.role, stop_server.subscribe()).await?;
        let lease = match start.role {
            Role::Serve => None,
            Role::Ingest | Role::All => Some(lease(config, &door).await?),
        };
        door.starting.now(Doing::Starting(
            "opening the store; what a changed configuration orders differently is rebuilt first",
        ));
        let settings = config.clone();
        let store = blocking(move || store::open(&settings)).await??;
        let plan = Arc::clone(store.plan());
        let checker = Checker::new(&config.network(), Arc::clone(&plan), start.lexicons)?;
        let fetcher = Arc::new(Fetcher::new(config, start.clock.clone())?);
        let mut river = Self {
            store,
            fetcher,
            plan,
            status: Arc::new(Status::new(start.clock.clone())),
            checker: Arc::new(checker),
            address: None,
            stop_sources: watch::Sender::new(false),
            stop_server,
            sources: Vec::new(),
            intakes: Vec::new(),
            server: None,
            answering: None,
            live: None,
            stop_drawing: Arc::new(AtomicBool::new(false)),
            drawers: Vec::new(),
            _lease: lease,
        };
        let monitor = Monitor::new(
            config,
            Arc::clone(&river.store),
            Arc::clone(&river.status),
            start.clock.clone(),
        );
        let stop = Arc::clone(&river.stop_drawing);
        river.draw("monitor", move || monitor.run(&stop))?;
        match start.role {
            Role::Serve if !config.sources.is_empty() => river.status.expect_ingester(),
            Role::Serve => {}
            Role::Ingest | Role::All => river.ingest(config, &start)?,
        }
        river.address = Some(door.address);
        river.status.set_address(door.address);
        if start.role == Role::Ingest {
            river.answer_operator(&start, door);
            return Ok(river);
        }
        let search = SearchIndex::open(config)?;
        if let Some(index) = &search {
            river.branch(Box::new(SearchBranch::new(Arc::clone(index))))?;
        }
        let fanout = river.fan_out(config, &start)?;
        river.tell(config, fanout.clone())?;
        river.serve(config, &start, (fanout, search), door).await?;
        Ok(river)
    }

    fn ingest(&mut self, config: &Config, start: &Start<'_>) -> Result<(), StartError> {
        let decoder = Decoder::new(Arc::clone(&self.checker), &config.intake);
        let tend = Tend::new(Arc::clone(&self.store), config.settle.clone());
        self.sources.push(tokio::spawn(tend::run(
            tend,
            Arc::clone(&self.fetcher),
            start.clock.clone(),
            self.stop_sources.subscribe(),
        )));
        let resolver = Arc::new(Resolver::with(config, Arc::clone(&self.fetcher)));
        for source in &config.sources {
            let frames = self.stream(config, source, &decoder, &resolver);
            let mut stage = Intake::new(
                source.name(),
                opener(source, &decoder),
                Arc::clone(&self.store),
                frames.rewind,
                Arc::clone(&self.status),
            )
            .spill_max(config.intake.spill_max, config.intake.spill_bytes_max);
            if let Some(acks) = frames.acks {
                stage = stage.acknowledging(acks);
            }
            if let Some(attempt) = Attempt::beside(&config.store.url, &source.name()) {
                stage = stage.marking(attempt);
            }
            let gathering = Gathering {
                batch_max: config.intake.batch_max,
                batch_bytes_max: config.intake.batch_bytes_max,
                flush: Duration::from_millis(config.intake.flush_ms),
            };
            let clock = start.clock.clone();
            let work = move || intake::run(stage, frames.frames, gathering, &clock);
            self.intakes.push(thread("intake", work)?);
        }
        // One for all: an account is repaired once, whichever stream it came by.
        if let Some(first) = config.sources.first() {
            let resync = Resync {
                source: first.name(),
                store: Arc::clone(&self.store),
                decoder,
                resolver: Arc::clone(&resolver),
                clock: start.clock.clone(),
                status: Arc::clone(&self.status),
            };
            let stop = self.stop_sources.subscribe();
            let at_once = AtOnce {
                repairs_max: config.intake.resync_max,
                readers_max: config.intake.reader_fetch_max,
            };
            let task = resync.run(at_once, stop);
            self.sources.push(tokio::spawn(task));
        }
        self.backfill(config, start);
        self.report(start);
        Ok(())
    }

    /// Starts reading lists of accounts, where that is asked.
    fn backfill(&mut self, config: &Config, start: &Start<'_>) {
        let Some(url) = &config.intake.backfill else {
            return;
        };
        let backfill = Backfill {
            url: url.clone(),
            collections: nsids(config),
            every_s: (config.intake.backfill_h * 3600).cast_signed(),
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            clock: start.clock.clone(),
            status: Arc::clone(&self.status),
        };
        // Said at once, so that nobody takes the time before the first look for the end.
        self.status.listing.store(true, Ordering::Relaxed);
        let task = backfill.run(self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(task));
    }

    /// Starts reading one source; with signatures checked on the way where that is asked.
    fn stream(
        &mut self,
        config: &Config,
        source: &Source,
        decoder: &Decoder,
        resolver: &Arc<Resolver>,
    ) -> Frames {
        let pending_max = config.intake.pending_max;
        let (sender, mut frames) = mpsc::channel(pending_max);
        let pending = Pending::new(config.intake.pending_bytes_max);
        let rewind = Arc::new(Rewind::default());
        if let Some((url, space)) = source.log_space() {
            let (name, intake) = (source.name(), config.intake.clone());
            let log = LogStream {
                name,
                url,
                space,
                token: source.token(),
                store: Arc::clone(&self.store),
                intake,
                state: self.status.add_source(&source.name(), StreamKind::Log),
                frames: sender,
                pending,
                rewind: Arc::clone(&rewind),
            };
            return self.log_stream(log, frames, rewind);
        }
        let acks = Arc::new(Acks::default());
        let (dialect, kind) = match (&source.jetstream, &source.tap) {
            (Some(_), _) => {
                let jetstream = Jetstream {
                    collections: nsids(config),
                    compress: source.compress,
                    dictionary: source.dictionary.clone(),
                    fetcher: Arc::clone(&self.fetcher),
                };
                (Dialect::Jetstream(jetstream), StreamKind::Jetstream)
            }
            (None, Some(_)) => (Dialect::Tap, StreamKind::Tap),
            (None, None) => (Dialect::Firehose, StreamKind::Firehose),
        };
        let stream = Stream {
            name: source.name(),
            dialect,
            urls: source.urls(),
            store: Arc::clone(&self.store),
            intake: config.intake.clone(),
            state: self.status.add_source(&source.name(), kind),
            frames: sender,
            pending,
            rewind: Arc::clone(&rewind),
            acks: Arc::clone(&acks),
        };
        self.sources
            .push(tokio::spawn(stream.run(self.stop_sources.subscribe())));
        if kind == StreamKind::Firehose && decoder.asks_for_signatures() {
            let (signed, checked) = mpsc::channel(pending_max);
            let notary = Notary::new(decoder.clone(), Arc::clone(resolver), signed, pending_max)
                .within(config.intake.pending_bytes_max);
            self.sources.push(tokio::spawn(notary.run(frames)));
            frames = checked;
        }
        let acks = (kind == StreamKind::Tap).then_some(acks);
        Frames {
            frames,
            rewind,
            acks,
        }
    }

    /// Starts reading the log of a peer.
    fn log_stream(
        &mut self,
        stream: LogStream,
        frames: mpsc::Receiver<Arrival>,
        rewind: Arc<Rewind>,
    ) -> Frames {
        let task = stream.run(self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(task));
        Frames {
            frames,
            rewind,
            acks: None,
        }
    }

    /// Starts the thread of a branch; it stops when the server has.
    fn branch(&mut self, branch: Box<dyn Branch>) -> Result<(), StartError> {
        let (store, stop) = (Arc::clone(&self.store), Arc::clone(&self.stop_drawing));
        let name = branch.name();
        let health = self.health(Condition::ConsumerFailing, name);
        self.draw(name, move || branch::run(branch, &store, health, &stop))
    }

    /// Where a stage reports whether it goes on.
    fn health(&self, condition: Condition, stage: &str) -> Health {
        Health::new(&self.status, condition, stage)
    }

    /// Starts a thread that draws the outbox; it stops after the server.
    fn draw(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        self.drawers.push(thread(name, work)?);
        Ok(())
    }

    /// Starts the thread that loads timelines and keeps them.
    fn fan_out(
        &mut self,
        config: &Config,
        start: &Start<'_>,
    ) -> Result<Option<Arc<Fanout>>, StartError> {
        let Some((fanout, drawer)) =
            Fanout::start(&config.timelines, config.serve.cache_mib, &self.store)?
        else {
            return Ok(None);
        };
        let (clock, stop) = (start.clock.clone(), Arc::clone(&self.stop_drawing));
        let health = self.health(Condition::TimelinesStuck, "timelines");
        self.draw("fanout", move || drawer.run(&clock, health, &stop))?;
        Ok(Some(fanout))
    }

    /// Starts the thread that tells changes to readers who listen.
    fn tell(&mut self, config: &Config, fanout: Option<Arc<Fanout>>) -> Result<(), StartError> {
        let live = Live::open(&self.store, fanout, &config.serve)?;
        self.live = Some(Arc::clone(&live));
        let health = self.health(Condition::ConsumerFailing, "live news");
        self.draw("live", move || live.run(health))
    }

    /// Stops in order and waits: sources, intake with what it was given, server.
    pub async fn stop(mut self) {
        self.stop_sources.send_replace(true);
        for source in self.sources.drain(..) {
            // A source that panicked has nothing left to stop.
            drop(source.await);
        }
        for thread in self.intakes.drain(..) {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
        if let Some(live) = &self.live {
            live.stop(); // who listens would keep the server open
        }
        self.stop_server.send_replace(true);
        if let Some(server) = self.server.take() {
            drop(tokio::time::timeout(Duration::from_secs(30), server).await);
        }
        self.stop_drawing.store(true, Ordering::Relaxed);
        self.store.wake();
        for thread in self.drawers.drain(..) {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }

    /// Readers who listen to their feeds.
    pub fn listeners(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.listeners())
    }

    /// Whether everything received up to `seq` is durable and nothing waits for repair.
    pub fn settled(&self, source: &str, seq: i64) -> Result<bool, StoreError> {
        let reached = self
            .store
            .cursor(source)?
            .is_some_and(|cursor| cursor >= seq);
        Ok(reached && self.store.broken_accounts(1)?.is_empty())
    }
}
