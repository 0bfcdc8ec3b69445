//! Fan-out: timelines in memory, drawn from the outbox.
//!
//! In:    a snapshot of the store, then every change after it, in order.
//! Out:   pages of record ids, exact; or a word that the store must answer.
//! Never: an answer that the store would not give at the same position.
//!
//! The engine is crate `timeline`. One thread draws and writes; pages are made
//! beside it, of what lies in memory, and are believed if nothing they lean on
//! moved meanwhile. There is no lock that both take, so neither ever waits for
//! the other; a page that what is drawn concerns again and again is answered by
//! the store. Everything here can be dropped at any moment and is rebuilt from
//! the store.

// Records that are inserted together.
mod batch;
// Records as they are shown.
mod bodies;
// The thread that draws.
mod draw;
// What the timelines hold, told.
mod gauges;
// The store's records and settings as the engine takes them.
mod load;
#[cfg(test)]
mod load_tests;
// Whether the timelines answer yet.
mod loading;
#[cfg(test)]
mod tests;
// Whether what was remembered still holds.
mod turns;
// Pages as URIs.
mod uris;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use quick_cache::sync::Cache;
use timeline::{
    Cold, Entry, KeyId, KeyList, Moment, Page, Pages, Read, Request, Stats, Target, Timelines,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Micros;
use crate::config;
use crate::digest::Digest;
use crate::store::routes::Routes;
use crate::store::shown::{Shown, ShownPage};
use crate::store::{Change, Plan, Position, Row, SharedStore, StoreError, budget};

use bodies::Bodies;
pub use draw::Drawer;
pub(crate) use draw::{TOGETHER_MAX, WORK};
use gauges::Gauges;
use load::{GROUP, engine_settings, key, key_list};
use loading::Loading;
pub use loading::Progress;
use turns::Turns;
pub use uris::Uris;

/// Readers waiting to be registered; beyond it they stay cold, and exact.
const REGISTRATIONS_MAX: usize = 1024;
/// Readers whose numbers are remembered. A number never changes.
const READERS_MAX: usize = 200_000;
/// Numbers for accounts' standings. They change seldom, so many accounts may share one.
const STANDINGS_MAX: usize = 1 << 16;

/// Timelines in memory.
#[derive(Debug)]
pub struct Fanout {
    pages: Pages,
    routes: Routes,
    plan: Arc<Plan>,
    store: SharedStore,
    bodies: Bodies,
    readers: Cache<Digest, i64>,
    /// How far readers' own repositories are read, at the position drawn to, and the turn of each.
    revs: Cache<Digest, (u64, u32)>,
    rev_turns: Turns,
    standing_turns: Turns,
    registrations: SyncSender<Registration>,
    /// Somebody waits to be registered.
    registering: AtomicBool,
    loading: Loading,
    gauges: Gauges,
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
    /// The reader's DID.
    pub reader: &'a str,
    pub before: Option<&'a Position>,
    pub limit: usize,
    pub now_us: Micros,
    /// What the reader follows is not all here: it is answered, and does not become active.
    pub is_incomplete: bool,
}

/// What the engine says of a page, and those of its records that are in memory.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Entry>,
    shown: Vec<Option<Arc<Shown>>>,
    next: Option<Position>,
    /// The outbox position at which all of this is so, if that can be told.
    position: Option<i64>,
    /// Whether it ends before its last entry.
    is_cut: bool,
}

/// Makes something of a page of a feed, as the engine gives it.
type Take<'a, T> = dyn Fn(&Moment<'_>, Page) -> T + 'a;

/// A page of a merged feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// The first record of each, and its time.
    pub firsts: Vec<(i64, Micros)>,
    pub next: Option<Position>,
}

impl Found {
    fn page(self) -> ShownPage {
        let rows: Vec<Arc<Shown>> = self.shown.into_iter().flatten().collect();
        let next = match self.is_cut {
            true => rows.last().map(|row| row.position()),
            false => self.next,
        };
        ShownPage {
            rows,
            next,
            next_rung: None,
        }
    }

    /// Ends the page before a record that was not read because those before it are many bytes.
    fn end_before(&mut self, record: Option<i64>) {
        let at = self
            .entries
            .iter()
            .position(|entry| Some(id(entry)) == record);
        if let Some(at) = at.filter(|at| *at > 0) {
            self.entries.truncate(at);
            self.shown.truncate(at);
            self.is_cut = true;
        }
    }

    fn ids(&self) -> Vec<i64> {
        self.entries.iter().map(id).collect()
    }
}

impl Fanout {
    /// Loads timelines from the store; `None` if the configuration gives them no memory.
    pub fn open(
        settings: &config::Timelines,
        cache_mib: usize,
        store: &SharedStore,
    ) -> Result<Option<(Arc<Self>, Drawer)>, StoreError> {
        let Some((fanout, mut drawer)) = Self::start(settings, cache_mib, store)? else {
            return Ok(None);
        };
        while fanout.loading.is_loading() {
            drawer.load(&|| false)?;
        }
        Ok(Some((fanout, drawer)))
    }

    /// Timelines that their thread will load; the store answers until it has.
    pub fn start(
        settings: &config::Timelines,
        cache_mib: usize,
        store: &SharedStore,
    ) -> Result<Option<(Arc<Self>, Drawer)>, StoreError> {
        let plan = Arc::clone(store.plan());
        if settings.memory_mib == 0 || plan.feeds.is_empty() {
            return Ok(None);
        }
        let routes = Routes::new(&plan, &**store);
        let (registrations, waiting) = sync_channel(REGISTRATIONS_MAX);
        let engine = engine_settings(settings, &plan);
        // Empty and never said to be loaded, so it answers nothing.
        let timelines = Timelines::new(engine.clone(), 0);
        let fanout = Arc::new(Self {
            pages: timelines.pages(),
            routes,
            plan,
            store: Arc::clone(store),
            bodies: Bodies::new(cache_mib << 20),
            readers: Cache::new(READERS_MAX),
            revs: Cache::new(READERS_MAX),
            rev_turns: Turns::new(READERS_MAX),
            standing_turns: Turns::new(STANDINGS_MAX),
            registrations,
            registering: AtomicBool::new(false),
            loading: Loading::new(),
            gauges: Gauges::new(),
        });
        fanout.gauges.tell(timelines.stats());
        Ok(Some((
            Arc::clone(&fanout),
            Drawer::new(fanout, timelines, engine, waiting),
        )))
    }

    /// The page, if memory can answer it wholly and exactly; records it lacks are read from the store.
    pub fn page(&self, wish: &Wish<'_>) -> Result<Option<ShownPage>, StoreError> {
        match self.find(wish, &|moment, page| self.found(moment, page))? {
            Some(found) => self.complete(found),
            None => Ok(None),
        }
    }

    /// A page of a merged feed, if memory can answer it wholly: the groups by their first records.
    pub fn groups(&self, wish: &Wish<'_>) -> Result<Option<Groups>, StoreError> {
        self.find(wish, &|_, page| {
            let firsts = page.entries.iter();
            Groups {
                firsts: firsts
                    .map(|entry| (id(entry) & !GROUP, entry.time_us))
                    .collect(),
                next: page.next.map(place),
            }
        })
    }

    /// What `take` makes of the engine's page; `None` if the engine cannot say it wholly and
    /// exactly.
    fn find<T: Default>(
        &self,
        wish: &Wish<'_>,
        take: &Take<'_, T>,
    ) -> Result<Option<T>, StoreError> {
        let Some(feed) = self.feed(wish.feed).filter(|_| !self.loading.is_loading()) else {
            return Ok(None);
        };
        let Some(reader) = self.reader(wish.reader)? else {
            return Ok(Some(T::default())); // nobody ever named this reader
        };
        let before = wish.before.map(position);
        let request = request(wish, feed, reader, before.as_ref())?;
        let take = |moment: &Moment<'_>, page| of_visible(moment, request.reader, page, take);
        Ok(match self.pages.read(&request, take) {
            Read::Page(taken) => Some(taken),
            Read::Below | Read::Sparse | Read::Busy => None,
            Read::Cold => self.cold(&request, (reader, wish.is_incomplete), &take)?,
        })
    }

    /// The same, if everything it needs is in memory and nobody has to be waited for.
    fn find_at_once<T: Default>(&self, wish: &Wish<'_>, take: &Take<'_, T>) -> Option<T> {
        let feed = self.feed(wish.feed)?;
        if self.loading.is_loading() {
            return None; // an engine that is loaded anew shows an old position meanwhile
        }
        let reader = self.readers.get(&Digest::of(wish.reader))?;
        let before = wish.before.map(position);
        let request = request(wish, feed, reader, before.as_ref()).ok()?;
        let take = |moment: &Moment<'_>, page| of_visible(moment, request.reader, page, take);
        match self.pages.read(&request, take) {
            Read::Page(taken) => Some(taken),
            Read::Below | Read::Sparse | Read::Cold | Read::Busy => None,
        }
    }

    /// The page, if everything it needs is in memory and nobody has to be waited for.
    pub fn page_at_once(&self, wish: &Wish<'_>) -> Option<ShownPage> {
        let page = self.find_at_once(wish, &|_, page| {
            Some(ShownPage {
                rows: self.bodies.all(page.entries.iter().map(id))?,
                next: page.next.map(place),
                next_rung: None,
            })
        })??;
        self.bodies.count(page.rows.len(), 0);
        Some(page)
    }

    /// How far a reader's own repository is read: nothing of interest in it lies between
    /// this revision and what pages show.
    pub fn rev(&self, did: &str) -> Result<u64, StoreError> {
        if let Some(rev) = self.rev_at_once(did) {
            return Ok(rev);
        }
        let turn = self.rev_turns.of(xxh3_64(did.as_bytes()));
        let before = self.pages.settled();
        let rev = self.store.account(did)?.map_or(0, |account| account.rev);
        let moved = self.pages.settled() != before || self.loading.is_loading();
        if before.is_some() && !moved {
            self.revs.insert(Digest::of(did), (rev, turn));
        }
        Ok(rev)
    }

    /// The same, if it is in memory.
    pub fn rev_at_once(&self, did: &str) -> Option<u64> {
        let (rev, turn) = self.revs.get(&Digest::of(did))?;
        (turn == self.rev_turns.of(xxh3_64(did.as_bytes()))).then_some(rev)
    }

    /// A number that is another one after an account was hidden or seen again. Whoever remembers
    /// something of the store that this ends takes the number first, and remembers it too.
    pub fn standing_turn(&self, did: &str) -> u32 {
        self.standing_turns.of(xxh3_64(did.as_bytes()))
    }

    fn feed(&self, name: &str) -> Option<usize> {
        self.plan.feeds.iter().position(|feed| feed.name == name)
    }

    /// The number of a reader; `None` if nobody ever named it.
    fn reader(&self, did: &str) -> Result<Option<i64>, StoreError> {
        if let Some(reader) = self.readers.get(&Digest::of(did)) {
            return Ok(Some(reader));
        }
        let found = self.store.key(did)?;
        if let Some(reader) = found {
            self.readers.insert(Digest::of(did), reader);
        }
        Ok(found)
    }

    /// What the engine said, with what is in memory at the same moment.
    fn found(&self, moment: &Moment<'_>, page: Page) -> Found {
        Found {
            shown: self.bodies.get(page.entries.iter().map(id)),
            entries: page.entries,
            next: page.next.map(place),
            position: moment.position().map(u64::cast_signed),
            is_cut: false,
        }
    }

    /// Reads the records that are not in memory. Where the store has moved on, all are read
    /// anew, so that they are of one instant; and if some went or moved, the store must answer.
    fn complete(&self, mut found: Found) -> Result<Option<ShownPage>, StoreError> {
        let with_ids = found.entries.iter().zip(&found.shown);
        let missing: Vec<i64> = with_ids
            .filter(|(_, shown)| shown.is_none())
            .map(|(entry, _)| id(entry))
            .collect();
        self.bodies
            .count(found.entries.len() - missing.len(), missing.len());
        if missing.is_empty() {
            return Ok(Some(found.page()));
        }
        // Before it is known where the store stands: what changes from here on is not held.
        let mut wanted = missing;
        let mut turns = self.turns(&wanted);
        let (mut rows, mut as_of) = self.store.rows(&wanted)?;
        if Some(as_of) != found.position {
            found.shown.fill(None);
            wanted = found.ids();
            turns = self.turns(&wanted);
            (rows, as_of) = self.store.rows(&wanted)?;
        }
        let mut read: Vec<Arc<Shown>> = Vec::with_capacity(rows.len());
        read.extend(rows.iter().map(|row| Arc::new(Shown::of(row))));
        if rows.len() == wanted.len() {
            self.hold(&read, &turns, as_of);
        } else if budget::is_page_full(rows.iter().map(Row::bytes).sum()) {
            found.end_before(wanted.get(rows.len()).copied());
        }
        let mut rows = read.into_iter();
        for shown in found.shown.iter_mut().filter(|shown| shown.is_none()) {
            *shown = rows.next();
        }
        let same = |(entry, shown): (&Entry, &Option<Arc<Shown>>)| {
            shown
                .as_ref()
                .is_some_and(|shown| (shown.id, shown.time_us) == (id(entry), entry.time_us))
        };
        let exact = found.entries.iter().zip(&found.shown).all(same);
        Ok(exact.then(|| found.page()))
    }

    fn turns(&self, ids: &[i64]) -> Vec<u32> {
        ids.iter().map(|id| self.bodies.turn(*id)).collect()
    }

    /// Remembers records, unless the engine stands elsewhere than the store did, or moves just now.
    fn hold(&self, read: &[Arc<Shown>], turns: &[u32], as_of: i64) {
        if self.pages.settled() == Some(as_of.cast_unsigned()) {
            self.bodies.hold(read, turns);
        }
    }

    /// The first page of a reader that is not active; it is registered afterwards, unless what it follows is not here.
    fn cold<T>(
        &self,
        request: &Request<'_>,
        (reader, is_incomplete): (i64, bool),
        take: &Take<'_, T>,
    ) -> Result<Option<T>, StoreError> {
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
        let found = match self.pages.read_cold(request, &cold, take) {
            Read::Page(taken) => Some(taken),
            Read::Below | Read::Sparse | Read::Cold | Read::Busy => None,
        };
        if is_incomplete {
            return Ok(found);
        }
        let registration = Registration {
            feed: request.feed,
            reader,
            follows,
            hidden,
            as_of,
        };
        // A full queue means that the reader stays cold for now.
        drop(self.registrations.try_send(registration));
        if !self.registering.swap(true, Ordering::AcqRel) {
            self.store.wake();
        }
        Ok(found)
    }

    /// Lets go of what a change makes untrue, before it is made.
    fn forget(&self, change: &Change) {
        if let Change::Put { record, uri, .. } | Change::Delete { record, uri, .. } = change {
            self.bodies.forget(*record);
            let did = uri.strip_prefix("at://");
            let did = did.and_then(|uri| uri.split('/').next());
            let did = did.unwrap_or_default();
            self.rev_turns.change(xxh3_64(did.as_bytes()));
        }
        if let Change::Account { did, .. } = change {
            self.standing_turns.change(xxh3_64(did.as_bytes()));
        }
    }

    /// Everything that is remembered was of another engine.
    fn forget_all(&self) {
        self.bodies.forget_all();
        self.rev_turns.change_all();
        self.standing_turns.change_all();
    }

    /// The floor of an active reader's timeline, highest over the feed's targets: pages are
    /// complete in memory for times after it. `None` if the reader is not active.
    pub fn standing(&self, feed: &str, reader: i64) -> Option<Micros> {
        let number = self.plan.feeds.iter().position(|plan| plan.name == feed)?;
        let targets = self.plan.feeds.get(number)?.targets.len();
        let reader = key(reader).ok()?;
        let floor = |target| self.pages.complete_after_us(number, target, reader);
        (0..targets).filter_map(floor).max()
    }

    /// The outbox position drawn so far.
    pub fn position(&self) -> i64 {
        self.pages.position().cast_signed()
    }

    /// How far the timelines are loaded; `None` once they answer.
    pub fn progress(&self) -> Option<Progress> {
        self.loading.progress()
    }

    /// Waits until pages show what happened up to a position; false if they do not in time.
    pub fn wait_shown(&self, position: i64, patience: Duration) -> bool {
        self.loading.wait(position, patience, || self.position())
    }

    /// What the engine held and had done a moment ago.
    pub fn stats(&self) -> Stats {
        self.gauges.last()
    }

    /// Tells how far the engine is behind the store.
    pub fn tell_behind(&self) -> Result<(), StoreError> {
        let behind = self.store.head()? - self.position();
        self.gauges.tell_behind(behind.max(0));
        Ok(())
    }
}

/// What `take` makes of a page, which is empty for a reader that is hidden from everybody.
fn of_visible<T: Default>(moment: &Moment<'_>, reader: KeyId, page: Page, take: &Take<'_, T>) -> T {
    if moment.is_hidden(reader) {
        return T::default();
    }
    take(moment, page)
}

/// The store's number of an entry's record.
fn id(entry: &Entry) -> i64 {
    entry.id.0.cast_signed()
}

fn place(position: timeline::Position) -> Position {
    Position {
        time_us: position.time_us,
        uri: position.uri,
    }
}

fn position(position: &Position) -> timeline::Position {
    timeline::Position {
        time_us: position.time_us,
        uri: position.uri.clone(),
    }
}

fn request<'a>(
    wish: &Wish<'_>,
    feed: usize,
    reader: i64,
    before: Option<&'a timeline::Position>,
) -> Result<Request<'a>, StoreError> {
    Ok(Request {
        feed,
        target: wish.target.map_or(Target::Mixed, Target::One),
        reader: key(reader)?,
        before,
        limit: wish.limit,
        now_us: wish.now_us,
    })
}

type Waiting = Receiver<Registration>;
