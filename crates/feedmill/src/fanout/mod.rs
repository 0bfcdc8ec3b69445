//! Fan-out: timelines in memory, drawn from the outbox.
//!
//! In:    a snapshot of the store, then every change after it, in order.
//! Out:   pages of record ids, exact; or a word that the store must answer.
//! Never: an answer that the store would not give at the same position.
//!
//! The engine is crate `timeline`. One thread draws and writes. It carries
//! fan-outs on while pages are read, and holds the lock alone for a few changes
//! at a time; a page that meets it then is answered by the store. So no page
//! waits. Everything here can be dropped at any moment and is rebuilt from the
//! store.

// Records that are inserted together.
mod batch;
// Records as they are shown.
mod bodies;
// The thread that draws.
mod draw;
// The store's records and settings as the engine takes them.
mod load;
// Pages as URIs.
mod uris;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::RwLock;
use quick_cache::sync::Cache;
use timeline::{Cold, Entry, KeyList, Read, Request, Target, Timelines};

use crate::clock::Micros;
use crate::config;
use crate::store::routes::Routes;
use crate::store::shown::{Shown, ShownPage};
use crate::store::{Change, Plan, Position, SharedStore, StoreError};

use bodies::Bodies;
pub use draw::Drawer;
pub(crate) use draw::{LANDED_MAX, LOCKED_MAX, PATIENCE, WORK};
use load::{GROUP, engine_settings, key, key_list, load};
pub use uris::Uris;

/// Readers waiting to be registered; beyond it they stay cold, and exact.
const REGISTRATIONS_MAX: usize = 1024;
/// Readers whose numbers are remembered. A number never changes.
const READERS_MAX: usize = 200_000;

/// Timelines in memory.
#[derive(Debug)]
pub struct Fanout {
    state: RwLock<State>,
    /// The outbox position drawn so far; the same as the engine's while the lock is held.
    position: AtomicI64,
    routes: Routes,
    plan: Arc<Plan>,
    store: SharedStore,
    bodies: Bodies,
    readers: Cache<Box<str>, i64>,
    /// How far readers' own repositories are read, at the position drawn to.
    revs: Cache<Box<str>, u64>,
    registrations: SyncSender<Registration>,
}

#[derive(Debug)]
struct State {
    timelines: Timelines,
    hidden: HashSet<i64>,
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
}

/// What the engine says of a page, and those of its records that are in memory.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Entry>,
    shown: Vec<Option<Arc<Shown>>>,
    next: Option<Position>,
    /// The outbox position at which all of this is so.
    position: i64,
}

/// Makes something of a page of a feed, as the engine gives it.
type Take<'a, T> = dyn Fn(&State, usize, Vec<Entry>, Option<timeline::Position>) -> T + 'a;

/// A page of a merged feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// The first record of each, and its time.
    pub firsts: Vec<(i64, Micros)>,
    pub next: Option<Position>,
}

impl Found {
    fn page(self) -> ShownPage {
        ShownPage {
            rows: self.shown.into_iter().flatten().collect(),
            next: self.next,
            next_rung: None,
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
        let plan = Arc::clone(store.plan());
        if settings.memory_mib == 0 || plan.feeds.is_empty() {
            return Ok(None);
        }
        let routes = Routes::new(&plan, &**store);
        let (registrations, waiting) = sync_channel(REGISTRATIONS_MAX);
        let engine = engine_settings(settings, &plan);
        let state = load(&engine, &routes, &**store)?;
        let fanout = Arc::new(Self {
            position: state.timelines.position().cast_signed().into(),
            state: RwLock::new(state),
            routes,
            plan,
            store: Arc::clone(store),
            bodies: Bodies::new(cache_mib << 20),
            readers: Cache::new(READERS_MAX),
            revs: Cache::new(READERS_MAX),
            registrations,
        });
        Ok(Some((
            Arc::clone(&fanout),
            Drawer::new(fanout, engine, waiting),
        )))
    }

    /// The page, if memory can answer it wholly and exactly; records it lacks are read from the store.
    pub fn page(&self, wish: &Wish<'_>) -> Result<Option<ShownPage>, StoreError> {
        match self.find(wish, &|_, _, entries, next| self.found(entries, next))? {
            Some(found) => self.complete(found),
            None => Ok(None),
        }
    }

    /// A page of a merged feed, if memory can answer it wholly: the groups by their first records.
    pub fn groups(&self, wish: &Wish<'_>) -> Result<Option<Groups>, StoreError> {
        self.find(wish, &|_, _, entries, next| {
            let firsts = entries.iter();
            Groups {
                firsts: firsts
                    .map(|entry| (id(entry) & !GROUP, entry.time_us))
                    .collect(),
                next: next.map(place),
            }
        })
    }

    /// What `take` makes of the engine's page, under the engine's lock; `None` if the engine
    /// cannot say it wholly and exactly.
    fn find<T: Default>(
        &self,
        wish: &Wish<'_>,
        take: &Take<'_, T>,
    ) -> Result<Option<T>, StoreError> {
        let Some(feed) = self.feed(wish.feed) else {
            return Ok(None);
        };
        let Some(reader) = self.reader(wish.reader)? else {
            return Ok(Some(T::default())); // nobody ever named this reader
        };
        let before = wish.before.map(position);
        let request = request(wish, feed, reader, before.as_ref())?;
        let Some(state) = self.state.try_read() else {
            return Ok(None);
        };
        if state.hidden.contains(&reader) {
            return Ok(Some(T::default()));
        }
        Ok(match state.timelines.read(&request) {
            Read::Page { entries, next } => Some(take(&state, feed, entries, next)),
            Read::Below => None,
            Read::Cold => {
                drop(state);
                self.cold(&request, reader, take)?
            }
        })
    }

    /// The same, if everything it needs is in memory and nobody has to be waited for.
    fn find_at_once<T: Default>(&self, wish: &Wish<'_>, take: &Take<'_, T>) -> Option<T> {
        let feed = self.feed(wish.feed)?;
        let reader = self.readers.get(wish.reader)?;
        let before = wish.before.map(position);
        let request = request(wish, feed, reader, before.as_ref()).ok()?;
        let state = self.state.try_read()?;
        if state.hidden.contains(&reader) {
            return Some(T::default());
        }
        match state.timelines.read(&request) {
            Read::Page { entries, next } => Some(take(&state, feed, entries, next)),
            Read::Below | Read::Cold => None,
        }
    }

    /// The page, if everything it needs is in memory and nobody has to be waited for.
    pub fn page_at_once(&self, wish: &Wish<'_>) -> Option<ShownPage> {
        let page = self.find_at_once(wish, &|_, _, entries, next| {
            Some(ShownPage {
                rows: self.bodies.all(entries.iter().map(id))?,
                next: next.map(place),
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
        let before = self.position();
        let rev = self.store.account(did)?.map_or(0, |account| account.rev);
        if let Some(_still) = self.state.try_read()
            && self.position() == before
        {
            self.revs.insert(did.into(), rev);
        }
        Ok(rev)
    }

    /// The same, if it is in memory.
    pub fn rev_at_once(&self, did: &str) -> Option<u64> {
        self.revs.get(did)
    }

    fn feed(&self, name: &str) -> Option<usize> {
        self.plan.feeds.iter().position(|feed| feed.name == name)
    }

    /// The number of a reader; `None` if nobody ever named it.
    fn reader(&self, did: &str) -> Result<Option<i64>, StoreError> {
        if let Some(reader) = self.readers.get(did) {
            return Ok(Some(reader));
        }
        let found = self.store.key(did)?;
        if let Some(reader) = found {
            self.readers.insert(did.into(), reader);
        }
        Ok(found)
    }

    /// What the engine said, with what is in memory under the same lock.
    fn found(&self, entries: Vec<Entry>, next: Option<timeline::Position>) -> Found {
        Found {
            shown: self.bodies.get(entries.iter().map(id)),
            entries,
            next: next.map(place),
            position: self.position(),
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
        let (mut rows, mut as_of) = self.store.rows(&missing)?;
        if as_of != found.position {
            found.shown.fill(None);
            (rows, as_of) = self.store.rows(&found.ids())?;
        }
        let mut read: Vec<Arc<Shown>> = Vec::with_capacity(rows.len());
        read.extend(rows.iter().map(|row| Arc::new(Shown::of(row))));
        self.hold(&read, as_of);
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

    /// Remembers records, unless the engine stands elsewhere than the store did, or moves just now.
    fn hold(&self, read: &[Arc<Shown>], as_of: i64) {
        if let Some(_still) = self.state.try_read()
            && self.position() == as_of
        {
            self.bodies.hold(read);
        }
    }

    /// The first page of a reader that is not active; it is registered afterwards.
    fn cold<T>(
        &self,
        request: &Request<'_>,
        reader: i64,
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
        let Some(state) = self.state.try_read() else {
            return Ok(None);
        };
        let found = match state.timelines.read_cold(request, &cold) {
            Read::Page { entries, next } => Some(take(&state, request.feed, entries, next)),
            Read::Below | Read::Cold => None,
        };
        drop(state);
        let registration = Registration {
            feed: request.feed,
            reader,
            follows,
            hidden,
            as_of,
        };
        // A full queue means that the reader stays cold for now.
        drop(self.registrations.try_send(registration));
        Ok(found)
    }

    /// Says where the engine stands, while nobody reads.
    fn stands(&self, state: &State) {
        let position = state.timelines.position().cast_signed();
        self.position.store(position, Ordering::Release);
    }

    /// Lets go of what a change makes untrue; under the engine's lock.
    fn forget(&self, change: &Change) {
        if let Change::Put { record, uri, .. } | Change::Delete { record, uri, .. } = change {
            self.bodies.forget(*record);
            let did = uri.strip_prefix("at://");
            let did = did.and_then(|uri| uri.split('/').next());
            self.revs.remove(did.unwrap_or_default());
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
        self.position.load(Ordering::Acquire)
    }

    /// What the engine holds and has done.
    pub fn stats(&self) -> timeline::Stats {
        self.state.read().timelines.stats()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
[store]
url = "sqlite::memory:"
"#;

    /// Whoever writes may be put to sleep by the machine; nobody waits for it to wake.
    #[test]
    fn a_page_is_left_to_the_store_while_the_writer_does_not_let_go() {
        let config = config::Config::parse(CONFIG).unwrap();
        let store = crate::store::open(&config).unwrap();
        let opened = Fanout::open(&config.timelines, 1, &store).unwrap();
        let (fanout, _drawer) = opened.unwrap();
        let reader = "did:plc:reader";
        fanout.readers.insert(reader.into(), 1);
        let wish = Wish {
            feed: "timeline",
            target: None,
            reader,
            before: None,
            limit: 10,
            now_us: 1,
        };
        assert!(fanout.page(&wish).unwrap().is_some());
        let writing = fanout.state.write();
        let meanwhile = std::thread::scope(|scope| {
            let page = scope.spawn(|| (fanout.page(&wish), fanout.page_at_once(&wish)));
            page.join().unwrap()
        });
        drop(writing);
        assert!(meanwhile.0.unwrap().is_none());
        assert!(meanwhile.1.is_none());
        assert!(fanout.page(&wish).unwrap().is_some());
    }
}
