//! The embedded store: SQLite in WAL mode, one writer thread, a pool of readers.
//!
//! SQLite in memory (`sqlite::memory:`) is the second implementation of the
//! trait: the same code without a file, for tests and demos.

mod accounts;
mod activity;
mod adopt;
mod apply;
mod changes;
mod children;
mod climb;
mod cover;
mod dead;
mod derive;
mod error;
mod explain;
mod feed;
mod fetching;
mod first_read;
mod fresh;
mod graph;
mod group;
mod head;
pub(super) mod heartbeat;
mod held;
mod load;
mod marks;
mod memory;
mod names;
mod narrow;
mod outbox;
mod parked;
mod pending;
mod pick;
mod pile;
mod place;
mod pool;
mod reached;
mod read;
mod rebuild;
mod reference;
mod renown;
mod replay;
mod retime;
mod schema;
mod shelf;
mod sieve;
pub(super) mod skew;
mod tally;
#[cfg(test)]
mod tests;
mod tip;
mod version;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::account::{AccountState, Accounting, Begun};
use super::attempt::Attempt;
use super::batch::{Batch, DeadLetter};
use super::change::{Drawn, Follows, LoadPlace, Loaded};
use super::graph::{Walk, Walked};
use super::merged::{ActivityPage, ActivityQuery};
use super::page::{Children, FeedQuery, ListQuery, Page, Position, Row};
use super::plan::{LaneId, Plan, SourceId};
use super::skew::WrongClock;
use super::version::{Standing, Version};
use super::{
    Committed, Counts, Desk, Intake, LetterCount, LetterQuery, Outbox, Pages, Reference, Referrer,
    ReferrerQuery, Store, StoreError, Waiting, Writing,
};
use derive::Ids;
use error::{broken, sql};
use head::{Head, Watch};
use marks::RowMark;
use place::Place;
use pool::Pool;
use writer::Writer;

/// How many times a reader's page cache the writer has: it touches every index with every record.
const WRITER_CACHE: u32 = 4;

/// Connections of those who draw: fan-out, live news, search and the log.
const DRAWERS: usize = 4;
/// They read what was just written, once.
const DRAWER_CACHE_MIB: u32 = 1;

/// Connections of intake, resync and the operator's numbers, outside of requests.
const INNER: usize = 2;
const INNER_CACHE_MIB: u32 = 4;

/// The embedded store.
#[derive(Debug)]
pub(super) struct SqliteStore {
    plan: Arc<Plan>,
    ids: Ids,
    readers: Pool,
    /// Of those who draw: they wait for no reader.
    drawers: Pool,
    /// Of the process itself, whose questions are short: it waits for no request.
    inner: Pool,
    writer: Writer,
    head: Arc<Head>,
    /// Notices other processes' commits; a store in memory has no other process.
    _watch: Option<Watch>,
}

impl SqliteStore {
    /// Opens or creates the store of a configuration, and brings it in line with the plan.
    pub(super) fn open(settings: &crate::config::Store, plan: Plan) -> Result<Self, StoreError> {
        let place = Place::of(&settings.url);
        let mut connection = place.connect(settings.cache_mib.saturating_mul(WRITER_CACHE))?;
        schema::create(&mut connection).map_err(sql)?;
        let ids = rebuild::align(&mut connection, &plan).map_err(sql)?;
        let rows = RowMark::new(Attempt::of_waiting(&settings.url));
        Self::start(settings, &place, connection, rows, plan, ids)
    }

    /// Opens a store that is there and laid out for the plan, beside whoever else uses it.
    pub(super) fn attach(settings: &crate::config::Store, plan: Plan) -> Result<Self, StoreError> {
        let place = Place::of(&settings.url);
        let refused = |cause: String| Err(StoreError::Passing(cause));
        match &place {
            Place::Memory(_) => return refused("it is in the memory of another process".into()),
            Place::File(path) if !path.exists() => {
                return refused(format!("there is no file {}", path.display()));
            }
            Place::File(_) => {}
        }
        let mut connection = place.connect(settings.cache_mib)?;
        if let Some(cause) = schema::unfit(&connection).map_err(sql)? {
            return refused(cause);
        }
        match rebuild::find(&mut connection, &plan).map_err(sql)? {
            // The process that ingests has the marker.
            Some(ids) => {
                Self::start(settings, &place, connection, RowMark::default(), plan, ids)
            },
            None => refused(
                "it is laid out for another configuration; give the file that `feedmill run` was started with, or start that again with this one"
                    .into(),
            ),
        }
    }

    fn start(
        settings: &crate::config::Store,
        place: &Place,
        connection: Connection,
        rows: RowMark,
        plan: Plan,
        ids: Ids,
    ) -> Result<Self, StoreError> {
        let plan = Arc::new(plan);
        let pool = |count: usize, cache_mib: u32| {
            let connections = (0..count).map(|_| place.connect(cache_mib));
            Ok::<_, StoreError>(Pool::of(connections.collect::<Result<_, _>>()?))
        };
        let head = Arc::new(Head::default());
        let watch = match place {
            Place::File(_) => Some(Watch::start(place.connect(DRAWER_CACHE_MIB)?, &head)?),
            Place::Memory(_) => None,
        };
        Ok(Self {
            readers: pool(settings.readers.get(), settings.cache_mib)?,
            drawers: pool(DRAWERS, DRAWER_CACHE_MIB)?,
            inner: pool(INNER, INNER_CACHE_MIB)?,
            writer: Writer::start(
                (connection, rows),
                Arc::clone(&plan),
                ids.clone(),
                settings,
                &head,
            )?,
            head,
            _watch: watch,
            plan,
            ids,
        })
    }

    fn activities_in<'a>(&'a self, connection: &'a Connection) -> activity::Activities<'a> {
        activity::Activities {
            connection,
            plan: &self.plan,
            ids: &self.ids,
        }
    }

    /// Runs `read` in one snapshot, as soon as a reader's connection is free.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, StoreError> {
        self.read_on(&self.readers, read)
    }

    /// The same for the process itself, unless it works for a request.
    fn read_inside<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let pool = match super::budget::current() {
            Some(_) => &self.readers,
            None => &self.inner,
        };
        self.read_on(pool, read)
    }

    fn read_on<T>(
        &self,
        pool: &Pool,
        read: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let result = pool.lend(|connection| {
            let tx = connection.transaction()?;
            rebuild::hold(&tx, &self.ids)?;
            let value = read(&tx)?;
            tx.commit()?;
            Ok(value)
        });
        result.map_err(|error| self.writer.noted(error))
    }
}

impl Store for SqliteStore {
    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

impl Intake for SqliteStore {
    fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.writer.commit(batch)
    }

    fn cursor(&self, source: &str) -> Result<Option<i64>, StoreError> {
        self.read_inside(|connection| {
            let cursor = connection
                .prepare_cached("SELECT cursor FROM source WHERE name = ?1")?
                .query_row([source], |row| row.get(0))
                .optional()?;
            Ok(cursor.flatten())
        })
    }

    fn mark(&self, source: &str, attempt: Arc<Attempt>) {
        self.writer.mark(source, attempt);
    }

    fn waiting_suspected(&self) -> bool {
        self.writer.waiting_suspected()
    }

    fn writing(&self) -> Writing {
        self.writer.writing()
    }

    fn heartbeat(&self) -> Result<Option<(crate::clock::Micros, String)>, StoreError> {
        self.read(heartbeat::read)
    }

    fn wrong_clock(&self) -> Result<Option<WrongClock>, StoreError> {
        self.read_inside(skew::noted)
    }

    fn queues(&self) -> Result<Vec<super::queue::Depth>, StoreError> {
        self.read_inside(|connection| pending::depths(connection, &self.plan))
    }

    fn waiting(&self) -> Result<Waiting, StoreError> {
        self.read_inside(dead::waiting)
    }

    fn dead_by_kind(&self) -> Result<Vec<LetterCount>, StoreError> {
        self.read(dead::by_kind)
    }

    fn count_dead(&self, query: &LetterQuery) -> Result<i64, StoreError> {
        self.read(|connection| dead::count(connection, query))
    }

    fn account(&self, did: &str) -> Result<Option<AccountState>, StoreError> {
        self.read_inside(|connection| read::account(connection, did))
    }

    fn broken_accounts(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read_inside(|connection| {
            connection
                .prepare_cached("SELECT k.text FROM account a JOIN key k ON k.id = a.key WHERE a.key IN (
                        SELECT key FROM account WHERE repair > 0 AND status % 2 = 0 UNION SELECT key FROM account WHERE doubt > 0
                     ) ORDER BY a.repair DESC LIMIT ?1")?
                .query_map([limit as i64], |row| row.get(0))?
                .collect()
        })
    }

    fn waiting_readers(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.read(|connection| first_read::waiting(connection, limit))
    }

    fn fetches_begun(&self) -> Result<Vec<Begun>, StoreError> {
        self.read(fetching::begun)
    }

    fn held(&self, did: &str) -> Result<Vec<Vec<u8>>, StoreError> {
        self.read_inside(|connection| {
            let Some(key) = names::find_key(connection, did)? else {
                return Ok(Vec::new());
            };
            connection
                .prepare_cached("SELECT frame FROM held WHERE account = ?1 ORDER BY rev")?
                .query_map([key], |row| row.get(0))?
                .collect()
        })
    }
}

impl Outbox for SqliteStore {
    fn head(&self) -> Result<i64, StoreError> {
        self.read_inside(outbox::head)
    }

    fn draw(&self, position: i64, limit: usize) -> Result<Drawn, StoreError> {
        self.read_on(&self.drawers, |connection| {
            outbox::draw(connection, position, limit)
        })
    }

    fn missed(&self, position: i64, limit: usize) -> Result<Drawn, StoreError> {
        self.read_inside(|connection| outbox::draw(connection, position, limit))
    }

    fn wait(&self, position: i64, patience: Duration, enough: &dyn Fn() -> bool) {
        self.head.wait(position, patience, enough);
    }

    fn wake(&self) {
        self.head.wake();
    }

    fn commits(&self) -> u64 {
        self.head.commits()
    }

    fn lane_sizes(&self) -> Result<Vec<u64>, StoreError> {
        self.read_on(&self.drawers, |connection| {
            load::sizes(connection, &self.plan)
        })
    }

    fn lane_number(&self, lane: LaneId) -> Option<i64> {
        self.ids.lanes.get(lane.0).copied()
    }

    fn source_number(&self, source: SourceId) -> Option<i64> {
        self.ids.sources.get(source.0).copied()
    }

    fn load(
        &self,
        from: LoadPlace,
        lane_max: usize,
        visit: &mut dyn FnMut(Loaded<'_>),
    ) -> Result<Option<LoadPlace>, StoreError> {
        self.read_on(&self.drawers, |connection| {
            let known = (&*self.plan, &self.ids);
            load::slice(connection, known, from, lane_max, visit)
        })
    }

    fn follows(
        &self,
        reader: i64,
        follows: &[SourceId],
        hides: &[SourceId],
    ) -> Result<Follows, StoreError> {
        self.read_inside(|connection| {
            Ok(Follows {
                as_of: outbox::head(connection)?,
                keys: load::keys(connection, &self.ids, follows, reader)?,
                hidden: load::keys(connection, &self.ids, hides, reader)?,
            })
        })
    }

    fn keys_of(
        &self,
        account: i64,
        records_max: usize,
    ) -> Result<Option<Vec<(i64, i64)>>, StoreError> {
        let known = (&*self.plan, &self.ids);
        self.read_inside(|connection| reached::keys_of(connection, known, account, records_max))
    }

    fn kept(&self, ids: &[i64]) -> Result<Vec<Row>, StoreError> {
        self.read_inside(|connection| read::kept(connection, ids))
    }

    fn kept_after(&self, after: i64, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.read_inside(|connection| read::kept_after(connection, after, limit))
    }

    fn versions(&self, uris: &[&str]) -> Result<Vec<Option<Version>>, StoreError> {
        self.read_inside(|connection| version::versions(connection, uris))
    }

    fn versions_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, Version)>, StoreError> {
        self.read_inside(|connection| version::versions_after(connection, after, limit))
    }

    fn standing(&self, did: &str) -> Result<Option<Standing>, StoreError> {
        self.read_inside(|connection| version::standing(connection, did))
    }

    fn standings(&self, after: i64, limit: usize) -> Result<Vec<Standing>, StoreError> {
        self.read_inside(|connection| version::standings(connection, after, limit))
    }
}

impl Pages for SqliteStore {
    fn record(&self, uri: &str) -> Result<Option<Row>, StoreError> {
        self.read(|connection| read::record(connection, uri))
    }

    fn rows(&self, ids: &[i64]) -> Result<(Vec<Row>, i64), StoreError> {
        self.read(|connection| Ok((read::rows(connection, ids)?, outbox::head(connection)?)))
    }

    fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.read(|connection| read::list(connection, &self.plan, &self.ids, query))
    }

    fn children(
        &self,
        lane: LaneId,
        parents: &[String],
        limit: usize,
    ) -> Result<Vec<Children>, StoreError> {
        self.read(|connection| children::children(connection, &self.ids, lane, parents, limit))
    }

    fn feed(&self, query: &FeedQuery) -> Result<Page, StoreError> {
        self.read(|connection| feed::feed(connection, &self.plan, &self.ids, query))
    }

    fn activities(&self, query: &ActivityQuery) -> Result<ActivityPage, StoreError> {
        self.read(|connection| self.activities_in(connection).page(query))
    }

    fn activities_at(
        &self,
        lane: LaneId,
        firsts: &[(i64, crate::clock::Micros)],
    ) -> Result<Option<ActivityPage>, StoreError> {
        self.read(|connection| self.activities_in(connection).at(lane, firsts))
    }

    fn position(&self, uri: &str) -> Result<Option<Position>, StoreError> {
        self.read(|connection| read::position(connection, uri))
    }

    fn key(&self, text: &str) -> Result<Option<i64>, StoreError> {
        self.read(|connection| names::find_key(connection, text))
    }

    fn referrers(&self, query: &ReferrerQuery) -> Result<Vec<Referrer>, StoreError> {
        self.read(|connection| reference::referrers(connection, query))
    }

    fn references(
        &self,
        uri: &str,
        after: Option<&(String, String)>,
        limit: usize,
    ) -> Result<Option<Vec<Reference>>, StoreError> {
        self.read(|connection| reference::references(connection, uri, after, limit))
    }

    fn walk(&self, walk: &Walk) -> Result<Walked, StoreError> {
        self.read(|connection| graph::walk(connection, walk))
    }

    fn did_of(&self, handle: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT k.text FROM account a JOIN key k ON k.id = a.key WHERE a.handle = ?1 ORDER BY a.handle_us DESC LIMIT 1")?
                .query_row([handle], |row| row.get(0))
                .optional()
        })
    }

    fn handle_of(&self, did: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| read::handle(connection, did))
    }

    fn first_read(
        &self,
        did: &str,
        feed: &str,
        now_us: crate::clock::Micros,
    ) -> Result<super::account::FirstRead, StoreError> {
        self.read(|connection| first_read::state(connection, &self.ids, (did, feed), now_us))
    }
}

impl Desk for SqliteStore {
    fn cursors(&self) -> Result<Vec<(String, Option<i64>)>, StoreError> {
        self.read_inside(|connection| {
            connection
                .prepare_cached("SELECT name, cursor FROM source ORDER BY name")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    fn accounting(&self, source: Option<&str>) -> Result<Accounting, StoreError> {
        self.read_inside(|connection| read::accounting(connection, source))
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        self.read_inside(read::counts)
    }

    fn followers(
        &self,
        source: SourceId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        self.read_inside(|connection| {
            let Some(source) = self.ids.sources.get(source.0) else {
                return Ok(Vec::new());
            };
            connection
                .prepare_cached(
                    "SELECT DISTINCT f.reader, k.text FROM follow f JOIN key k ON k.id = f.reader
                     WHERE f.source = ?1 AND f.reader > ?2 ORDER BY f.reader LIMIT ?3",
                )?
                .query_map(params![source, after, limit as i64], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?
                .collect()
        })
    }

    fn explain(
        &self,
        feed: &str,
        reader: &str,
        uri: &str,
    ) -> Result<Option<super::explain::Explained>, StoreError> {
        let Some(feed) = self.plan.feed(feed) else {
            return Ok(None);
        };
        let explained = self.read_inside(|connection| {
            let inquiry = explain::Inquiry {
                connection,
                plan: &self.plan,
                ids: &self.ids,
                feed,
                reader,
                uri,
            };
            inquiry.explain()
        });
        explained.map(Some)
    }

    fn letters(&self, query: &LetterQuery) -> Result<Vec<DeadLetter>, StoreError> {
        self.read_inside(|connection| dead::letters(connection, query))
    }

    fn letter(&self, id: i64) -> Result<Option<DeadLetter>, StoreError> {
        self.read_inside(|connection| dead::letter(connection, id))
    }
}
