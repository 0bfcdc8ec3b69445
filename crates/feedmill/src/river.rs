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

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle as ThreadHandle;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::info;

use crate::backfill::Backfill;
use crate::branch::{self, Branch, BranchError};
use crate::check::{CheckError, Checker};
use crate::clock::Clock;
use crate::config::{Config, Source};
use crate::decode::jetstream::JetstreamDecoder;
use crate::decode::log::LogDecoder;
use crate::decode::tap::TapDecoder;
use crate::decode::{Decoder, Opener};
use crate::fanout::Fanout;
use crate::host::Hosts;
use crate::identity::{IdentityError, Resolver};
use crate::intake::{self, Gathering, Intake};
use crate::labels::{Labels, Listener};
use crate::live::Live;
use crate::notary::Notary;
use crate::publish::Publisher;
use crate::replicate;
use crate::replicate::keeper;
use crate::replicate::log::Log;
use crate::replicate::sqlite::SqliteLog;
use crate::resync::Resync;
use crate::search::{SearchBranch, SearchIndex};
use crate::serve::Server;
use crate::serve::admin::{Admin, TOKEN};
use crate::serve::direct::door::Secrets;
use crate::serve::direct::{Direct, DirectError};
use crate::serve::front::Front;
use crate::serve::generator::Generator;
use crate::serve::line;
use crate::serve::notify::{self, Notifier};
use crate::source::jetstream::Jetstream;
use crate::source::log::LogStream;
use crate::source::stream::{Dialect, Stream};
use crate::source::tap::Acks;
use crate::source::{Arrival, Rewind};
use crate::status::{Status, StreamKind};
use crate::store::{self, Plan, SharedStore, StoreError};
use crate::tend::{self, Tend};

/// How often samples of metrics are put together; until then each is kept.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

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
    #[error("identity")]
    Identity(#[from] IdentityError),
    #[error("cannot listen on {address}; is another process there? set serve.bind")]
    Listen {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("log")]
    Log(#[source] blocklog::store::StoreError),
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
    /// Where the server listens.
    pub address: Option<SocketAddr>,
    stop_sources: watch::Sender<bool>,
    stop_server: watch::Sender<bool>,
    sources: Vec<JoinHandle<()>>,
    intakes: Vec<ThreadHandle<()>>,
    server: Option<JoinHandle<()>>,
    live: Option<Arc<Live>>,
    stop_drawing: Arc<AtomicBool>,
    drawers: Vec<ThreadHandle<()>>,
}

impl River {
    /// Starts all stages of a role.
    pub async fn start(config: &Config, start: Start<'_>) -> Result<Self, StartError> {
        crate::metrics::recorder();
        crate::identity::provide_tls();
        let store = store::open(config)?;
        let plan = Arc::clone(store.plan());
        let checker = Checker::new(&config.network(), Arc::clone(&plan), start.lexicons)?;
        let mut river = Self {
            store,
            plan,
            status: Arc::new(Status::default()),
            checker: Arc::new(checker),
            address: None,
            stop_sources: watch::Sender::new(false),
            stop_server: watch::Sender::new(false),
            sources: Vec::new(),
            intakes: Vec::new(),
            server: None,
            live: None,
            stop_drawing: Arc::new(AtomicBool::new(false)),
            drawers: Vec::new(),
        };
        if start.role != Role::Serve {
            river.ingest(config, &start)?;
        }
        if start.role != Role::Ingest {
            let search = SearchIndex::open(config)?;
            if let Some(index) = &search {
                river.branch(Box::new(SearchBranch::new(Arc::clone(index))))?;
            }
            let fanout = river.fan_out(config, &start)?;
            river.tell(config, fanout.clone())?;
            river.serve(config, &start, fanout, search).await?;
        }
        Ok(river)
    }

    fn ingest(&mut self, config: &Config, start: &Start<'_>) -> Result<(), StartError> {
        let decoder = Decoder::new(Arc::clone(&self.checker), &config.intake);
        let tend = Tend::new(Arc::clone(&self.store), config.settle.clone());
        self.sources.push(tokio::spawn(tend::run(
            tend,
            start.clock.clone(),
            self.stop_sources.subscribe(),
        )));
        let resolver = Arc::new(Resolver::new(config)?);
        let hosts = Arc::new(Hosts::new(config.intake.host_max));
        for source in &config.sources {
            let frames = self.stream(config, source, &decoder, &resolver);
            let mut stage = Intake::new(
                source.name(),
                opener(source, &decoder),
                Arc::clone(&self.store),
                frames.rewind,
                Arc::clone(&self.status),
            )
            .spill_max(config.intake.spill_max);
            if let Some(acks) = frames.acks {
                stage = stage.acknowledging(acks);
            }
            let gathering = Gathering {
                batch_max: config.intake.batch_max,
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
                hosts: Arc::clone(&hosts),
                clock: start.clock.clone(),
                status: Arc::clone(&self.status),
            };
            let stop = self.stop_sources.subscribe();
            let task = resync.run(config.intake.resync_max, stop);
            self.sources.push(tokio::spawn(task));
        }
        self.backfill(config, start, (resolver, hosts));
        Ok(())
    }

    /// Starts reading lists of accounts, where that is asked.
    fn backfill(
        &mut self,
        config: &Config,
        start: &Start<'_>,
        (resolver, hosts): (Arc<Resolver>, Arc<Hosts>),
    ) {
        let Some(url) = &config.intake.backfill else {
            return;
        };
        let backfill = Backfill {
            url: url.clone(),
            collections: nsids(config),
            every_s: (config.intake.backfill_h * 3600).cast_signed(),
            store: Arc::clone(&self.store),
            resolver,
            hosts,
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
        let rewind = Arc::new(Rewind::default());
        if let Some((url, space)) = source.log_space() {
            let (name, intake) = (source.name(), config.intake.clone());
            let log = LogStream {
                name,
                url,
                space,
                store: Arc::clone(&self.store),
                intake,
                status: Arc::clone(&self.status),
                frames: sender,
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
                };
                (Dialect::Jetstream(jetstream), StreamKind::Jetstream)
            }
            (None, Some(_)) => (Dialect::Tap, StreamKind::Tap),
            (None, None) => (Dialect::Firehose, StreamKind::Firehose),
        };
        self.status.streams.lock().push((source.name(), kind));
        let stream = Stream {
            name: source.name(),
            dialect,
            urls: source.urls(),
            store: Arc::clone(&self.store),
            intake: config.intake.clone(),
            status: Arc::clone(&self.status),
            frames: sender,
            rewind: Arc::clone(&rewind),
            acks: Arc::clone(&acks),
        };
        self.sources
            .push(tokio::spawn(stream.run(self.stop_sources.subscribe())));
        if kind == StreamKind::Firehose && decoder.asks_for_signatures() {
            let (signed, checked) = mpsc::channel(pending_max);
            let notary = Notary::new(decoder.clone(), Arc::clone(resolver), signed, pending_max);
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
        let named = (stream.name.clone(), StreamKind::Log);
        self.status.streams.lock().push(named);
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
        self.draw(name, move || branch::run(branch, &store, &stop))
    }

    /// Starts a thread that draws the outbox; it stops after the server.
    fn draw(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        self.drawers.push(thread(name, work)?);
        Ok(())
    }

    /// Loads timelines and starts the thread that draws them.
    fn fan_out(
        &mut self,
        config: &Config,
        start: &Start<'_>,
    ) -> Result<Option<Arc<Fanout>>, StartError> {
        let Some((fanout, drawer)) =
            Fanout::open(&config.timelines, config.serve.cache_mib, &self.store)?
        else {
            return Ok(None);
        };
        let (clock, stop) = (start.clock.clone(), Arc::clone(&self.stop_drawing));
        self.draw("fanout", move || drawer.run(&clock, &stop))?;
        Ok(Some(fanout))
    }

    /// Starts the thread that tells changes to readers who listen.
    fn tell(&mut self, config: &Config, fanout: Option<Arc<Fanout>>) -> Result<(), StartError> {
        let live = Live::open(&self.store, fanout, &config.serve)?;
        self.live = Some(Arc::clone(&live));
        self.draw("live", move || live.run())
    }

    async fn serve(
        &mut self,
        config: &Config,
        start: &Start<'_>,
        fanout: Option<Arc<Fanout>>,
        search: Option<Arc<SearchIndex>>,
    ) -> Result<(), StartError> {
        let listen = |source| StartError::Listen {
            address: config.serve.bind.clone(),
            source,
        };
        let listener = tokio::net::TcpListener::bind(&config.serve.bind)
            .await
            .map_err(listen)?;
        self.address = Some(listener.local_addr().map_err(listen)?);
        let direct = Direct::new(
            config,
            &self.plan,
            &self.store,
            start.lexicons,
            Secrets::from_environment(),
        )?;
        let mut server = Server::new(
            config,
            Arc::clone(&self.plan),
            Arc::clone(&self.store),
            fanout,
            Arc::clone(&self.status),
            start.clock.clone(),
        );
        server.admin = Some(Admin {
            token: std::env::var(TOKEN).ok(),
            checker: Arc::clone(&self.checker),
        });
        server.live = self.live.clone();
        server.search = search;
        server.labels = Labels::open(config)?;
        server.direct = direct;
        let resolver = Arc::new(Resolver::new(config)?);
        server.generator = Generator::new(config, Arc::clone(&resolver));
        server.notifier = Notifier::new(
            config,
            Arc::clone(&resolver),
            Arc::clone(&self.checker),
            std::env::var(notify::TOKEN).ok(),
        )?;
        self.listen(config, server.labels.as_ref(), &resolver);
        server.handles = config.identity.handles.then_some(resolver);
        let mut front = Front::new(Arc::new(server), config.serve.body_bytes_max);
        if let Some(file) = &config.log.file {
            front = front.beside(self.log(file, config, start)?);
        }
        let mut stop = self.stop_sources.subscribe();
        self.sources.push(tokio::spawn(async move {
            while tokio::time::timeout(UPKEEP_EVERY, stop.changed())
                .await
                .is_err()
            {
                crate::metrics::recorder().run_upkeep();
            }
        }));
        let (settings, stop) = (config.serve.clone(), self.stop_server.subscribe());
        self.server = Some(tokio::spawn(async move {
            line::run(listener, front, &settings, stop).await;
        }));
        info!(address = ?self.address, "serving");
        Ok(())
    }

    /// Listens to labelers.
    fn listen(&mut self, config: &Config, labels: Option<&Arc<Labels>>, resolver: &Arc<Resolver>) {
        for source in &config.labels.sources {
            let Some(labels) = labels else {
                return;
            };
            let listener = Listener {
                source: source.clone(),
                labels: Arc::clone(labels),
                resolver: Arc::clone(resolver),
                intake: config.intake.clone(),
            };
            let listening = listener.run(self.stop_sources.subscribe());
            self.sources.push(tokio::spawn(listening));
        }
    }

    /// Opens the log, publishes in it, and looks after it; its paths join the server's.
    fn log(
        &mut self,
        file: &Path,
        config: &Config,
        start: &Start<'_>,
    ) -> Result<axum::Router, StartError> {
        let store = Arc::new(SqliteLog::open(file).map_err(StartError::Log)?);
        let log = Log::new(store, config.log.clone(), start.clock.clone());
        if let Some(space) = &config.log.publish {
            let publisher = Publisher::new(log.clone(), space, start.clock.clone());
            self.branch(Box::new(publisher.map_err(StartError::Log)?))?;
        }
        let keeper = keeper::run(log.clone(), self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(keeper));
        Ok(replicate::router(log))
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
