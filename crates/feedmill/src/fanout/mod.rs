//! Fan-out: timelines in memory, drawn from the outbox.
//!
//! In:    a snapshot of the store, then every change after it, in order.
//! Out:   pages of record ids, exact; or a word that the store must answer.
//! Never: an answer that the store would not give at the same position.
//!
//! The engine is crate `timeline`. One thread draws and writes, holding the
//! lock for a few changes at a time; readers share it. Everything here can be
//! dropped at any moment and is rebuilt from the store.

// The thread that draws.
mod draw;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::RwLock;
use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, Read, RecordId, Request, Settings, Target,
    TargetSpec, Timelines,
};

use crate::clock::Micros;
use crate::config;
use crate::store::sqlite::SqliteStore;
use crate::store::{Loaded, Plan, Position, SharedStore, Store, StoreError};

pub use draw::Drawer;

/// Readers waiting to be registered; beyond it they stay cold, and exact.
const REGISTRATIONS_MAX: usize = 1024;
/// Largest number a key can have: the engine holds 32 bits.
const KEY_MAX: i64 = u32::MAX as i64;

/// Marks the ids of groups: a group and its first record are two things.
const GROUP: i64 = 1 << 62;

/// Timelines in memory.
#[derive(Debug)]
pub struct Fanout {
    state: RwLock<State>,
    routes: Routes,
    plan: Arc<Plan>,
    store: SharedStore,
    registrations: SyncSender<Registration>,
}

#[derive(Debug)]
struct State {
    timelines: Timelines,
    hidden: HashSet<i64>,
}

/// Where the store's lanes and sources lead in the engine.
#[derive(Debug, Default)]
struct Routes {
    /// Lane number to (feed, target).
    lanes: HashMap<i64, Vec<(usize, usize)>>,
    /// Lanes whose entries are groups of records.
    merged: HashSet<i64>,
    /// Source number to feeds that follow by it.
    follows: HashMap<i64, Vec<usize>>,
    /// Source number to feeds that hide by it.
    hides: HashMap<i64, Vec<usize>>,
}

/// A reader to be made active.
#[derive(Debug)]
struct Registration {
    feed: usize,
    reader: i64,
    follows: KeyList,
    hidden: KeyList,
    as_of: u64,
}

/// What a page asks of memory.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub feed: &'a str,
    /// One target by its number in the feed, or all of them.
    pub target: Option<usize>,
    pub reader: i64,
    pub before: Option<&'a Position>,
    pub limit: usize,
    pub now_us: Micros,
}

/// A page of ids, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// Each record with the time by which it stands in the order.
    pub records: Vec<(i64, Micros)>,
    pub next: Option<Position>,
}

impl Fanout {
    /// Loads timelines from the store; `None` if the configuration gives them no memory.
    pub fn open(
        settings: &config::Timelines,
        store: &Arc<SqliteStore>,
    ) -> Result<Option<(Arc<Self>, Drawer)>, StoreError> {
        let plan = Arc::clone(store.plan());
        if settings.memory_mib == 0 || plan.feeds.is_empty() {
            return Ok(None);
        }
        let routes = Routes::new(&plan, store);
        let (registrations, waiting) = sync_channel(REGISTRATIONS_MAX);
        let engine = engine_settings(settings, &plan);
        let shared: SharedStore = Arc::clone(store) as SharedStore;
        let state = load(&engine, &routes, &*shared)?;
        let fanout = Arc::new(Self {
            state: RwLock::new(state),
            routes,
            plan,
            store: shared,
            registrations,
        });
        Ok(Some((
            Arc::clone(&fanout),
            Drawer::new(fanout, engine, waiting),
        )))
    }

    /// The page, if memory can answer it wholly and exactly.
    pub fn page(&self, wish: &Wish<'_>) -> Result<Option<Ids>, StoreError> {
        let Some(feed) = self
            .plan
            .feeds
            .iter()
            .position(|feed| feed.name == wish.feed)
        else {
            return Ok(None);
        };
        let before = wish.before.map(|position| timeline::Position {
            time_us: position.time_us,
            uri: position.uri.clone(),
        });
        let request = Request {
            feed,
            target: wish.target.map_or(Target::Mixed, Target::One),
            reader: key(wish.reader)?,
            before: before.as_ref(),
            limit: wish.limit,
            now_us: wish.now_us,
        };
        let state = self.state.read();
        if state.hidden.contains(&wish.reader) {
            return Ok(Some(Ids {
                records: Vec::new(),
                next: None,
            }));
        }
        let read = state.timelines.read(&request);
        drop(state);
        match read {
            Read::Page { entries, next } => Ok(Some(ids(&entries, next))),
            Read::Below => Ok(None),
            Read::Cold => self.cold(&request, wish.reader),
        }
    }

    /// The first page of a reader that is not active; it is registered afterwards.
    fn cold(&self, request: &Request<'_>, reader: i64) -> Result<Option<Ids>, StoreError> {
        let Some(plan) = self.plan.feeds.get(request.feed) else {
            return Ok(None);
        };
        let loaded = self.store.follows(reader, &plan.follows, &plan.hides)?;
        let (follows, hidden) = (key_list(&loaded.keys)?, key_list(&loaded.hidden)?);
        let as_of = loaded.as_of.max(0).cast_unsigned();
        let cold = Cold {
            follows: &follows,
            hidden: &hidden,
            as_of,
        };
        let read = self.state.read().timelines.read_cold(request, &cold);
        let registration = Registration {
            feed: request.feed,
            reader,
            follows,
            hidden,
            as_of,
        };
        // A full queue means that the reader stays cold for now.
        drop(self.registrations.try_send(registration));
        match read {
            Read::Page { entries, next } => Ok(Some(ids(&entries, next))),
            Read::Below | Read::Cold => Ok(None),
        }
    }

    /// The floor of an active reader's timeline, highest over the feed's targets: pages are
    /// complete in memory for times after it. `None` if the reader is not active.
    pub fn standing(&self, feed: &str, reader: i64) -> Option<Micros> {
        let number = self.plan.feeds.iter().position(|plan| plan.name == feed)?;
        let targets = self.plan.feeds.get(number)?.targets.len();
        let reader = key(reader).ok()?;
        let state = self.state.read();
        let floors =
            (0..targets).filter_map(|target| state.timelines.inspect(number, target, reader));
        floors.map(|inspection| inspection.complete_after_us).max()
    }

    /// The outbox position drawn so far.
    pub fn position(&self) -> i64 {
        self.state.read().timelines.position().cast_signed()
    }

    /// What the engine holds and has done.
    pub fn stats(&self) -> timeline::Stats {
        self.state.read().timelines.stats()
    }
}

impl Routes {
    fn new(plan: &Plan, store: &SqliteStore) -> Self {
        let mut routes = Self::default();
        for (feed, spec) in plan.feeds.iter().enumerate() {
            let merged = spec.merged.is_some();
            for (target, spec) in spec.targets.iter().enumerate() {
                if let Some(lane) = store.lane_number(spec.lane) {
                    routes.lanes.entry(lane).or_default().push((feed, target));
                    if merged {
                        routes.merged.insert(lane);
                    }
                }
            }
            for source in spec
                .follows
                .iter()
                .filter_map(|source| store.source_number(*source))
            {
                routes.follows.entry(source).or_default().push(feed);
            }
            for source in spec
                .hides
                .iter()
                .filter_map(|source| store.source_number(*source))
            {
                routes.hides.entry(source).or_default().push(feed);
            }
        }
        routes
    }
}

fn engine_settings(settings: &config::Timelines, plan: &Plan) -> Settings {
    let bytes = settings.memory_mib << 20;
    Settings {
        feeds: plan
            .feeds
            .iter()
            .map(|feed| FeedSpec {
                targets: feed
                    .targets
                    .iter()
                    .map(|target| TargetSpec {
                        items_max: (target.max_items as usize).min(timeline::RING_ITEMS_MAX),
                    })
                    .collect(),
                include_self: feed.include_self,
            })
            .collect(),
        sync_threshold: settings.sync_threshold,
        pull_above: settings.pull_above,
        scan_above: settings.scan_above,
        ttl_us: i64::from(settings.ttl_days) * 86_400_000_000,
        window_bytes_max: bytes / 4,
        reader_bytes_max: bytes / 4 * 3,
        ..Settings::default()
    }
}

/// A fresh engine, loaded from one snapshot of the store.
fn load(settings: &Settings, routes: &Routes, store: &dyn Store) -> Result<State, StoreError> {
    let lanes: usize = settings.feeds.iter().map(|feed| feed.targets.len()).sum();
    let lane_max = (settings.window_bytes_max / timeline::RECORD_BYTES / lanes.max(1)).max(1);
    // The position is known only after the visit; nothing reads the engine before that.
    let head = store.head()?;
    let mut timelines = Timelines::new(settings.clone(), head.max(0).cast_unsigned());
    let mut hidden = HashSet::new();
    let mut wrong = None;
    let position = store.load(lane_max, &mut |loaded| match loaded {
        Loaded::Hidden { key: account } => {
            hidden.insert(account);
            match key(account) {
                Ok(account) => timelines.account(account, true),
                Err(error) => wrong = Some(error),
            }
        }
        Loaded::Record {
            lane,
            record,
            time_us,
            uri,
            author,
            keys,
        } => {
            let record = match routes.merged.contains(&lane) {
                true => group(record),
                false => record,
            };
            for (feed, target) in routes.lanes.get(&lane).into_iter().flatten() {
                if let Err(error) = insert(
                    &mut timelines,
                    *feed,
                    *target,
                    record,
                    time_us,
                    uri,
                    author,
                    keys,
                ) {
                    wrong = Some(error);
                }
            }
        }
        Loaded::LaneEnd { lane, floor_us } => {
            for (feed, target) in routes.lanes.get(&lane).into_iter().flatten() {
                timelines.loaded(*feed, *target, floor_us);
            }
        }
    })?;
    timelines.begin(position.max(0).cast_unsigned());
    match wrong {
        Some(error) => Err(error),
        None => Ok(State { timelines, hidden }),
    }
}

#[allow(clippy::too_many_arguments)] // one record, spelled out
fn insert(
    timelines: &mut Timelines,
    feed: usize,
    target: usize,
    record: i64,
    time_us: Micros,
    uri: &str,
    author: i64,
    keys: &[i64],
) -> Result<(), StoreError> {
    let keys: Vec<KeyId> = keys
        .iter()
        .map(|number| key(*number))
        .collect::<Result<_, _>>()?;
    timelines.insert(
        feed,
        target,
        NewRecord {
            id: RecordId(record.cast_unsigned()),
            time_us,
            uri,
            author: key(author)?,
            keys: &keys,
        },
    );
    Ok(())
}

/// The id of the group that begins with a record.
fn group(record: i64) -> i64 {
    record | GROUP
}

fn key(number: i64) -> Result<KeyId, StoreError> {
    if !(0..=KEY_MAX).contains(&number) {
        return Err(StoreError::Broken(format!(
            "key number {number} is beyond what timelines can hold"
        )));
    }
    Ok(KeyId(number as u32))
}

fn key_list(numbers: &[i64]) -> Result<KeyList, StoreError> {
    let keys: Vec<KeyId> = numbers
        .iter()
        .map(|number| key(*number))
        .collect::<Result<_, _>>()?;
    Ok(KeyList::new(keys))
}

fn ids(entries: &[timeline::Entry], next: Option<timeline::Position>) -> Ids {
    Ids {
        records: entries
            .iter()
            .map(|entry| (entry.id.0.cast_signed() & !GROUP, entry.time_us))
            .collect(),
        next: next.map(|position| Position {
            time_us: position.time_us,
            uri: position.uri,
        }),
    }
}

type Waiting = Receiver<Registration>;
