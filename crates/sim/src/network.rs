//! The network: a world behind the servers a real one has, on loopback.
//!
//! In:    a [`World`] and [`NetworkOptions`]; then [`Network::emit`] or a pace.
//! Out:   a relay, a personal data server, a PLC directory, did:web hosts and a
//!        Jetstream, each on a port of its own.
//! Never: an event before its owner asked for it; a listener beyond loopback
//!        unless the owner binds it there; a task that outlives [`Network::stop`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backlog::Backlog;
use crate::event::SeqEvent;
use crate::faults::{Fault, Faults, Meddler, Tally, Tongue};
use crate::traffic::Act;
use crate::utter::Utterance;
use crate::wire::{CableListener, Knife};
use crate::world::World;

mod dictionary;
mod directory;
mod guard;
mod jetstream;
mod line;
mod pds;
mod relay;
mod sync;
mod tap;
mod telling;
mod xrpc;

pub use guard::{Limit, Manners};

/// Faults waiting to be done.
const ORDERS_MAX: usize = 10_000;
/// How often a paced network emits.
const TICK: Duration = Duration::from_millis(20);

/// Whose time the world lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Its own: the same on every run.
    Virtual,
    /// The machine's: for demonstrations, where lag should mean something.
    Wall,
}

/// How the servers behave.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Where to listen; port 0 lets the system choose.
    pub address: IpAddr,
    pub relay_port: u16,
    pub pds_port: u16,
    pub plc_port: u16,
    pub web_port: u16,
    pub jetstream_port: u16,
    /// Events the relay can send again.
    pub backlog_events_max: usize,
    /// Whether `cursor` names the first event wanted (the specification) or
    /// the last one had (the reference implementation).
    pub cursor_inclusive: bool,
    /// Whether the relay says when a cursor is outdated or from the future.
    /// The production relay says neither.
    pub cursor_notices: bool,
    pub clock: Clock,
    /// What goes wrong on connections to the relay.
    pub faults: Faults,
    /// What goes wrong on connections to Jetstream.
    pub jetstream_faults: Faults,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            relay_port: 0,
            pds_port: 0,
            plc_port: 0,
            web_port: 0,
            jetstream_port: 0,
            backlog_events_max: 100_000,
            cursor_inclusive: false,
            cursor_notices: true,
            clock: Clock::Virtual,
            faults: Faults::none(),
            jetstream_faults: Faults::none(),
        }
    }
}

/// The world and the events it has sent.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) backlog: Backlog,
}

/// When in a connection's life a fault can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Connecting,
    Streaming,
}

/// What goes wrong on one server's connections.
#[derive(Debug)]
pub(crate) struct Mischief {
    faults: Mutex<Faults>,
    orders: Mutex<Vec<Fault>>,
    tally: Arc<Tally>,
    tongue: Tongue,
    connections: AtomicU64,
    open: AtomicU64,
}

/// Counts one stream as open while it lives.
#[derive(Debug)]
pub(crate) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Mischief {
    fn new(faults: Faults, tongue: Tongue) -> Self {
        Self {
            tongue,
            faults: Mutex::new(faults),
            orders: Mutex::new(Vec::new()),
            tally: Arc::new(Tally::default()),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }

    /// Counts a stream as open until the guard is dropped.
    pub(crate) fn open(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Open(&self.open)
    }

    /// The meddler of a new connection.
    pub(crate) fn meddler(&self) -> Meddler {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let faults = lock(&self.faults).clone();
        Meddler::new(faults, self.tally.clone(), self.tongue, connection)
    }

    /// Hands over the faults ordered for this moment of a connection.
    pub(crate) fn take_orders(&self, meddler: &mut Meddler, moment: Moment) {
        lock(&self.orders).retain(|&fault| {
            let due = matches!(fault, Fault::Outdated | Fault::Future);
            let mine = due == (moment == Moment::Connecting);
            if mine {
                meddler.order(fault);
            }
            !mine
        });
    }
}

/// What all servers share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    tip: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    pub(crate) options: NetworkOptions,
    pub(crate) pds_url: String,
    pub(crate) relay: Mischief,
    pub(crate) jetstream: Mischief,
    guard: Mutex<guard::Guard>,
    tap: Mutex<tap::Outbox>,
    /// What Tap tells of events after this one is live.
    tap_live_after: u64,
    /// Counts how often Tap's connections were cut.
    tap_cuts: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tells when events were added.
    pub(crate) fn tip(&self) -> watch::Receiver<u64> {
        self.tip.subscribe()
    }

    /// Tells when to stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn publish(&self, state: &mut State, events: Vec<SeqEvent>) -> usize {
        let count = events.len();
        for event in events {
            state.backlog.push(event);
        }
        self.tip.send_replace(state.backlog.last_seq());
        count
    }

    fn set_clock(&self, world: &mut World) {
        if self.options.clock == Clock::Wall {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            world.set_clock(now.map_or(0, |now| now.as_micros() as i64));
        }
    }

    fn emit(&self, count: usize) -> usize {
        let mut emitted = 0;
        while emitted < count {
            // One act per lock, so that requests come through in between.
            let mut state = self.state();
            self.set_clock(&mut state.world);
            let events = state.world.step();
            emitted += self.publish(&mut state, events);
        }
        emitted
    }
}

/// A panic elsewhere must not silence the servers: the world is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns when the flag is set, or its owner is gone.
async fn set(flag: &mut watch::Receiver<bool>) {
    flag.wait_for(|set| *set).await.ok();
}

/// A running network. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Network {
    /// `http://…` of the relay; `ws://…` for its stream is [`Network::relay_ws_url`].
    pub relay_url: String,
    pub pds_url: String,
    pub plc_url: String,
    /// Where did:web documents and `/.well-known/atproto-did` are served for
    /// any host of the world, told apart by the `Host` header.
    pub web_url: String,
    pub jetstream_url: String,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Network {
    /// Starts the servers. The world's history is in the relay's backlog.
    pub async fn start(mut world: World, options: NetworkOptions) -> io::Result<Self> {
        let bind = async |port: u16| TcpListener::bind((options.address, port)).await;
        let relay = bind(options.relay_port).await?;
        let pds = bind(options.pds_port).await?;
        let plc = bind(options.plc_port).await?;
        let web = bind(options.web_port).await?;
        let jetstream = bind(options.jetstream_port).await?;
        let mut backlog = Backlog::new(options.backlog_events_max);
        for event in world.take_genesis() {
            backlog.push(event);
        }
        let shared = Arc::new(Shared {
            tip: watch::Sender::new(backlog.last_seq()),
            stop: watch::Sender::new(false),
            pds_url: url(pds.local_addr()?),
            relay: Mischief::new(options.faults.clone(), Tongue::Frames),
            jetstream: Mischief::new(options.jetstream_faults.clone(), Tongue::Json),
            guard: Mutex::default(),
            tap: Mutex::default(),
            tap_live_after: backlog.last_seq(),
            tap_cuts: watch::Sender::new(0),
            state: Mutex::new(State { world, backlog }),
            options,
        });
        let mut network = Self {
            relay_url: url(relay.local_addr()?),
            pds_url: shared.pds_url.clone(),
            plc_url: url(plc.local_addr()?),
            web_url: url(web.local_addr()?),
            jetstream_url: url(jetstream.local_addr()?),
            shared,
            tasks: Vec::new(),
        };
        network.serve(relay, relay::router().merge(sync::router()));
        let all = relay::router().merge(sync::router()).merge(pds::router());
        let guard = axum::middleware::from_fn_with_state(network.shared.clone(), guard::guard);
        network.serve(pds, all.layer(guard));
        network.serve(plc, directory::plc_router());
        network.serve(web, directory::web_router());
        network.serve(jetstream, jetstream::router().merge(tap::router()));
        Ok(network)
    }

    fn serve(&mut self, listener: TcpListener, router: Router<Arc<Shared>>) {
        let service = router
            .with_state(self.shared.clone())
            .into_make_service_with_connect_info::<Knife>();
        let mut stopping = self.shared.stopping();
        let task = tokio::spawn(async move {
            let server = axum::serve(CableListener(listener), service);
            tokio::select! {
                // Serving fails never: a listener's errors are retried within.
                _ = server => {}
                () = set(&mut stopping) => {}
            }
        });
        self.tasks.push(task);
    }

    /// The relay's address for WebSocket clients.
    pub fn relay_ws_url(&self) -> String {
        self.relay_url.replacen("http", "ws", 1)
    }

    /// Jetstream's address for WebSocket clients.
    pub fn jetstream_ws_url(&self) -> String {
        self.jetstream_url.replacen("http", "ws", 1)
    }

    /// Tap's address for WebSocket clients; its channel is at `/channel`.
    pub fn tap_ws_url(&self) -> String {
        self.jetstream_ws_url()
    }

    /// Has the personal data server refuse what goes beyond a limit.
    pub fn limit_pds(&self, limit: Limit) {
        *lock(&self.shared.guard) = guard::Guard::new(limit);
    }

    /// How the personal data server was asked since it has a limit.
    pub fn manners(&self) -> Manners {
        lock(&self.shared.guard).manners
    }

    /// Cuts every connection to Tap.
    pub fn cut_tap(&self) {
        self.shared.tap_cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Messages of Tap: acknowledged, sent more than once, and acknowledgements of what was never sent.
    pub fn tap_told(&self) -> (usize, usize, u64) {
        let outbox = lock(&self.shared.tap);
        (outbox.acked(), outbox.repeated(), outbox.strange())
    }

    /// Lets acts happen until at least `count` events were sent; returns how many.
    pub fn emit(&self, count: usize) -> usize {
        self.shared.emit(count)
    }

    /// Lets one chosen act happen; returns how many events tell it.
    pub fn act(&self, act: Act) -> usize {
        let mut state = self.shared.state();
        self.shared.set_clock(&mut state.world);
        let events = state.world.act(act);
        self.shared.publish(&mut state, events)
    }

    /// Lets an account write records of the caller's making; returns how many events tell it.
    pub fn utter(&self, number: usize, records: Vec<Utterance>) -> usize {
        let mut state = self.shared.state();
        self.shared.set_clock(&mut state.world);
        let events = state.world.utter(number, records);
        self.shared.publish(&mut state, events)
    }

    /// One empty commit of every visible account, so that every loss shows.
    pub fn settle(&self) -> usize {
        let mut state = self.shared.state();
        self.shared.set_clock(&mut state.world);
        let events = state.world.settle();
        self.shared.publish(&mut state, events)
    }

    /// Emits `events_per_s` from now on, until the network stops.
    pub fn pace(&mut self, events_per_s: f64) {
        let shared = self.shared.clone();
        let mut stopping = shared.stopping();
        let task = tokio::spawn(async move {
            let mut due = 0.0;
            let mut ticks = tokio::time::interval(TICK);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = set(&mut stopping) => return,
                }
                due += events_per_s * TICK.as_secs_f64();
                if due < 1.0 {
                    continue;
                }
                let shared = shared.clone();
                let count = due as usize;
                let emitted = tokio::task::spawn_blocking(move || shared.emit(count)).await;
                due -= emitted.unwrap_or(count) as f64;
            }
        });
        self.tasks.push(task);
    }

    /// Looks at the world, its model included. Everything waits meanwhile.
    pub fn world<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        look(&self.shared.state().world)
    }

    /// The newest sequence number sent.
    pub fn last_seq(&self) -> u64 {
        self.shared.state().backlog.last_seq()
    }

    /// Forgets all but the newest `keep` events of the relay's backlog.
    pub fn trim_backlog(&self, keep: usize) {
        self.shared.state().backlog.trim(keep);
    }

    /// Sets what goes wrong on relay connections opened from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.shared.relay.faults) = faults;
    }

    /// Sets what goes wrong on Jetstream connections opened from now on.
    pub fn set_jetstream_faults(&self, faults: Faults) {
        *lock(&self.shared.jetstream.faults) = faults;
    }

    /// Does `fault` once: on the next relay connection that sends an event,
    /// or, for cursor faults, on the next that connects. With several streams
    /// open it is whichever comes first; see [`Network::streams_open`].
    pub fn order(&self, fault: Fault) {
        let mut orders = lock(&self.shared.relay.orders);
        if orders.len() < ORDERS_MAX {
            orders.push(fault);
        }
    }

    /// Does `fault` once on Jetstream, as [`Network::order`] does on the relay.
    pub fn order_on_jetstream(&self, fault: Fault) {
        let mut orders = lock(&self.shared.jetstream.orders);
        if orders.len() < ORDERS_MAX {
            orders.push(fault);
        }
    }

    /// The zstd dictionary of the Jetstream, for clients that are given it.
    pub fn dictionary(&self) -> &'static [u8] {
        dictionary::dictionary().bytes()
    }

    /// How often `fault` was done on the relay.
    pub fn faults_done(&self, fault: Fault) -> u64 {
        self.shared.relay.tally.count(fault)
    }

    /// How often `fault` was done on Jetstream.
    pub fn jetstream_faults_done(&self, fault: Fault) -> u64 {
        self.shared.jetstream.tally.count(fault)
    }

    /// Connections the relay's stream has had.
    pub fn connections(&self) -> u64 {
        self.shared.relay.connections.load(Ordering::Relaxed)
    }

    /// Streams of the relay and of Jetstream that are open now.
    pub fn streams_open(&self) -> u64 {
        let relay = self.shared.relay.open.load(Ordering::SeqCst);
        relay + self.shared.jetstream.open.load(Ordering::SeqCst)
    }

    /// Stops all servers and connections and waits for the servers. The world
    /// goes with them: look at it before.
    pub async fn stop(mut self) {
        self.shared.stop.send_replace(true);
        for task in std::mem::take(&mut self.tasks) {
            // A server that panicked has said so already.
            task.await.ok();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}
