//! A reader's feed from durable rows alone: exact at any depth, in one snapshot.
//!
//! A page is found by walking the lane by time, asking of each record whether
//! one of its keys is followed, or by merging the followed keys' own rows, each
//! found by a seek. Both give the same entries in the same order, so the choice
//! is one of cost alone: a seek costs as much as tens of rows walked. For few
//! keys there are few seeks; for very many there would be too many; in between
//! a walk is tried, short enough to be lost in what the seeks would cost.

use std::collections::{BinaryHeap, HashSet, VecDeque};

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::{Ids, writer};
use super::names::find_key;
use super::pick::{Gate, Pick};
use super::read::{ROW, ROW_FROM, VISIBLE, tail, to_row, uri};
use super::shelf::{Shelf, keys_in};
use super::sieve::passes;
use crate::store::AccountStatus;
use crate::store::page::{FeedQuery, Page, Position, Row};
use crate::store::plan::{Plan, SourceId};

/// Followed keys up to which each is sought on its own.
pub(super) const SEEK_KEYS_MAX: usize = 5_000;
/// Followed keys from which on a walk is tried before they are sought.
pub(super) const WALK_KEYS_MIN: usize = 32;
/// Rows of such a walk for each key that would be sought.
pub(super) const WALKED_PER_KEY: usize = 2;
/// Rows fetched from one stream at a time, at most.
pub(super) const CHUNK_MAX: usize = 256;

/// A candidate at the head of a stream. The order is the feed's order.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    position: Position,
    record: i64,
    stream: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position.cmp(&other.position)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Entries of one lane, newest first: under one key, or all those the reader follows.
#[derive(Debug)]
struct Stream {
    lane: usize,
    key: Option<i64>,
    buffer: VecDeque<(i64, String, i64)>,
    after: (i64, String),
    chunk: usize,
    ended: bool,
}

/// One page in the making.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    connection: &'a Connection,
    plan: &'a Plan,
    ids: &'a Ids,
    lanes: Vec<(i64, &'a str)>,
    followed: HashSet<i64>,
    hidden: HashSet<i64>,
    streams: Vec<Stream>,
    heads: BinaryHeap<Head>,
    looked: usize,
}

pub(super) fn feed(
    connection: &Connection,
    plan: &Plan,
    ids: &Ids,
    query: &FeedQuery,
) -> Result<Page, Error> {
    let Some(reader) = find_key(connection, &query.reader)? else {
        return Ok(Page::default());
    };
    if is_hidden(connection, reader)? {
        return Ok(Page::default()); // its follows are hidden with the rest of it
    }
    let mut followed = keys_of(connection, ids, &query.follows, reader)?;
    if query.include_self {
        followed.insert(reader);
    }
    let hidden = keys_of(connection, ids, &query.hides, reader)?;
    followed.retain(|key| !hidden.contains(key));
    let lanes: Vec<(i64, &str)> = query
        .lanes
        .iter()
        .filter_map(|(lane, _)| {
            Some((
                *ids.lanes.get(lane.0)?,
                plan.lanes.get(lane.0)?.nsid.as_str(),
            ))
        })
        .collect();
    let caps: Vec<Option<usize>> = query.lanes.iter().map(|(_, cap)| *cap).collect();
    if let ([lane], [cap]) = (lanes.as_slice(), caps.as_slice()) {
        let seen = Seen {
            lane: *lane,
            cap: *cap,
            followed: &followed,
            hidden: &hidden,
        };
        if let Some(page) = looked_up(connection, plan, ids, query, &seen)? {
            return Ok(page);
        }
    }
    // With a cap the newest entries must be counted, so the merge begins at the top.
    let from = if caps.iter().all(Option::is_none) {
        query.before.as_ref()
    } else {
        None
    };
    let mut merge = Merge::over(connection, (plan, ids), lanes, followed, hidden);
    if let Some(page) = merge.walked(query, &caps)? {
        return Ok(page);
    }
    merge.begin(merge.way(), from, query.scan_max)?;
    merge.page(query, caps)
}

/// How candidates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The lane by time, row by row.
    Walk,
    /// Each followed key by itself.
    Seek,
}

/// What a reader sees of one lane.
struct Seen<'a> {
    lane: (i64, &'a str),
    cap: Option<usize>,
    followed: &'a HashSet<i64>,
    hidden: &'a HashSet<i64>,
}

/// The page by an index other than the lane's own; `None` if there is none for it.
fn looked_up(
    connection: &Connection,
    plan: &Plan,
    ids: &Ids,
    query: &FeedQuery,
    seen: &Seen<'_>,
) -> Result<Option<Page>, Error> {
    let pick = Pick {
        connection,
        nsid: seen.lane.1,
        lane: seen.lane.0,
        gate: Gate::Follower {
            followed: seen.followed,
            hidden: seen.hidden,
        },
        lens: &query.lens,
        ids,
        plan,
        before: query.before.as_ref(),
        limit: query.limit,
        scan_max: query.scan_max,
    };
    match (seen.cap, &query.lens.sort) {
        (None, _) => pick.page(&|scan_max| {
            let (followed, hidden) = (seen.followed.clone(), seen.hidden.clone());
            let lanes = vec![seen.lane];
            let mut merge = Merge::over(connection, (plan, ids), lanes, followed, hidden);
            merge.begin(merge.way(), query.before.as_ref(), scan_max)?;
            let bounded = FeedQuery {
                scan_max,
                ..query.clone()
            };
            merge.page(&bounded, vec![None])
        }),
        (Some(_), None) => Ok(None),
        (Some(_), Some(sort)) => {
            // A feed that ends is no longer than its cap: all of it is read, then sorted.
            let (followed, hidden) = (seen.followed.clone(), seen.hidden.clone());
            let lanes = vec![seen.lane];
            let mut merge = Merge::over(connection, (plan, ids), lanes, followed, hidden);
            merge.begin(merge.way(), None, usize::MAX)?;
            let all = FeedQuery {
                before: None,
                limit: usize::MAX,
                scan_max: usize::MAX,
                ..query.clone()
            };
            let capped = merge.page(&all, vec![seen.cap])?;
            pick.arranged(sort, capped.rows).map(Some)
        }
    }
}

fn is_hidden(connection: &Connection, account: i64) -> Result<bool, Error> {
    let status: Option<i64> = connection
        .prepare_cached("SELECT status FROM account WHERE key = ?1")?
        .query_row([account], |row| row.get(0))
        .optional()?;
    Ok(!AccountStatus::from_code(status.unwrap_or_default()).visible())
}

/// The keys that the reader's records of these sources name.
fn keys_of(
    connection: &Connection,
    ids: &Ids,
    sources: &[SourceId],
    reader: i64,
) -> Result<HashSet<i64>, Error> {
    let mut keys = HashSet::new();
    for source in sources {
        let Some(source) = ids.sources.get(source.0) else {
            continue;
        };
        let mut statement = connection
            .prepare_cached("SELECT DISTINCT key FROM follow WHERE source = ?1 AND reader = ?2")?;
        for key in statement.query_map(params![source, reader], |row| row.get(0))? {
            keys.insert(key?);
        }
    }
    Ok(keys)
}

/// Whether a reader who hides these keys hides who wrote a record.
pub(super) fn hides(
    connection: &Connection,
    plan: &Plan,
    hidden: &HashSet<i64>,
    row: &Row,
    account: i64,
) -> Result<bool, Error> {
    if hidden.is_empty() {
        return Ok(false);
    }
    let writer = writer(connection, plan, (&row.uri, &row.body), account)?;
    Ok(hidden.contains(&writer))
}

impl<'a> Merge<'a> {
    fn over(
        connection: &'a Connection,
        (plan, ids): (&'a Plan, &'a Ids),
        lanes: Vec<(i64, &'a str)>,
        followed: HashSet<i64>,
        hidden: HashSet<i64>,
    ) -> Self {
        Self {
            connection,
            plan,
            ids,
            lanes,
            followed,
            hidden,
            streams: Vec::new(),
            heads: BinaryHeap::new(),
            looked: 0,
        }
    }

    /// All that is published under these keys in one lane, below a place.
    pub(super) fn sought(
        pick: &Pick<'a>,
        lane: i64,
        keys: HashSet<i64>,
        from: &Position,
    ) -> Result<Self, Error> {
        let (plan, lanes) = ((pick.plan, pick.ids), vec![(lane, pick.nsid)]);
        let mut merge = Self::over(pick.connection, plan, lanes, keys, HashSet::new());
        merge.begin(Way::Seek, Some(from), usize::MAX)?;
        Ok(merge)
    }

    /// The next of them: record and place.
    pub(super) fn next(&mut self) -> Result<Option<(i64, Position)>, Error> {
        let Some(head) = self.heads.pop() else {
            return Ok(None);
        };
        self.advance(head.stream, usize::MAX)?;
        Ok(Some((head.record, head.position)))
    }

    fn way(&self) -> Way {
        match self.followed.len() > SEEK_KEYS_MAX {
            true => Way::Walk,
            false => Way::Seek,
        }
    }

    /// The page by a short walk; `None` if it is not worth trying, or did not suffice.
    fn walked(&mut self, query: &FeedQuery, caps: &[Option<usize>]) -> Result<Option<Page>, Error> {
        let sought = self.followed.len();
        if !(WALK_KEYS_MIN..=SEEK_KEYS_MAX).contains(&sought) || caps.iter().any(Option::is_some) {
            return Ok(None);
        }
        let short = FeedQuery {
            scan_max: sought * WALKED_PER_KEY,
            ..query.clone()
        };
        self.begin(Way::Walk, query.before.as_ref(), short.scan_max)?;
        let page = self.page(&short, caps.to_vec())?;
        Ok((page.is_full(query.limit) || page.next.is_none()).then_some(page))
    }

    /// Opens the streams below `from`; what an earlier way had found is forgotten.
    fn begin(&mut self, way: Way, from: Option<&Position>, scan_max: usize) -> Result<(), Error> {
        self.streams.clear();
        self.heads.clear();
        self.looked = 0;
        for (lane, (_, nsid)) in self.lanes.iter().enumerate() {
            let after = start(from, nsid);
            let stream = |key| Stream {
                lane,
                key,
                buffer: VecDeque::new(),
                after: after.clone(),
                chunk: 1,
                ended: false,
            };
            match way {
                Way::Seek => {
                    let keys = self.followed.iter();
                    self.streams.extend(keys.map(|key| stream(Some(*key))));
                }
                Way::Walk => self.streams.push(Stream {
                    chunk: CHUNK_MAX,
                    ..stream(None)
                }),
            }
        }
        for stream in 0..self.streams.len() {
            self.advance(stream, scan_max)?;
        }
        Ok(())
    }

    fn page(&mut self, query: &FeedQuery, caps: Vec<Option<usize>>) -> Result<Page, Error> {
        let mut left: Vec<usize> = caps
            .into_iter()
            .map(|cap| cap.unwrap_or(usize::MAX))
            .collect();
        let mut page = Page::default();
        page.rows.reserve(query.limit.min(1024));
        let mut seen: Option<(i64, Position)> = None;
        while let Some(head) = self.heads.pop() {
            let lane = self
                .streams
                .get(head.stream)
                .map_or(0, |stream| stream.lane);
            self.advance(head.stream, query.scan_max)?;
            if seen
                .as_ref()
                .is_some_and(|(record, _)| *record == head.record)
            {
                continue; // the same record under another key
            }
            self.looked += 1;
            let row = self.visible(head.record)?;
            let here = head.position;
            seen = Some((head.record, here.clone()));
            if let Some(row) = row
                && let Some(left) = left.get_mut(lane).filter(|left| **left > 0)
            {
                *left -= 1;
                if query.before.as_ref().is_none_or(|before| here < *before)
                    && passes(self.connection, self.ids, &query.lens, &row)?
                {
                    if page.is_full(query.limit) {
                        return Ok(page.ended());
                    }
                    page.push(row);
                }
            }
            if self.looked >= query.scan_max {
                return Ok(Page {
                    next: Some(here),
                    ..page
                });
            }
        }
        Ok(page)
    }

    /// The record if it may be seen by this reader.
    fn visible(&self, record: i64) -> Result<Option<Row>, Error> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "SELECT {ROW}, r.author FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
            ))?
            .query_row([record], |row| Ok((to_row(row)?, row.get::<_, i64>(7)?)))
            .optional()?;
        let Some((row, account)) = found else {
            return Ok(None);
        };
        let is_hidden = hides(self.connection, self.plan, &self.hidden, &row, account)?;
        Ok((!is_hidden).then_some(row))
    }

    /// Puts the stream's next candidate among the heads.
    fn advance(&mut self, index: usize, scan_max: usize) -> Result<(), Error> {
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(());
        };
        let Some(&(lane, nsid)) = self.lanes.get(stream.lane) else {
            return Ok(());
        };
        while stream.buffer.is_empty() && !stream.ended {
            self.looked += stream.fetch(self.connection, lane, &self.followed)?;
            if self.looked >= scan_max {
                break;
            }
        }
        let next = match stream.buffer.pop_front() {
            Some(next) => next,
            None if stream.ended => return Ok(()),
            // Out of budget: an empty place holder keeps the page from passing what was not read.
            None => (stream.after.0, stream.after.1.clone(), 0),
        };
        let (time_us, tail, record) = next;
        self.heads.push(Head {
            position: Position {
                time_us,
                uri: uri(nsid, &tail),
            },
            record,
            stream: index,
        });
        Ok(())
    }
}

impl Stream {
    /// Reads the next rows; returns how many were looked at in vain.
    fn fetch(
        &mut self,
        connection: &Connection,
        lane: i64,
        followed: &HashSet<i64>,
    ) -> Result<usize, Error> {
        let mut read = 0;
        let mut in_vain = 0;
        let limit = self.chunk as i64;
        let (time, tail) = self.after.clone();
        let shelf = Shelf::of(lane);
        if let Some(key) = self.key {
            let stem = shelf.stem(connection, key)?;
            let below = (time, stem.below(&tail));
            for placed in shelf.below(connection, key, below, self.chunk)? {
                read += 1;
                self.after = (placed.time, stem.tail(&placed.tie));
                self.buffer
                    .push_back((self.after.0, self.after.1.clone(), placed.record));
            }
        } else {
            let Shelf { recent, number, .. } = shelf;
            let mut statement = connection.prepare_cached(&format!(
                "SELECT time, tail, record, keys FROM {recent} WHERE lane = ?1 AND (time, tail) < (?2, ?3)
                 ORDER BY time DESC, tail DESC LIMIT ?4",
            ))?;
            let mut rows = statement.query(params![number, time, tail, limit])?;
            while let Some(row) = rows.next()? {
                read += 1;
                self.after = (row.get(0)?, row.get(1)?);
                if keys_in(row.get_ref(3)?)?.any(|key| followed.contains(&key)) {
                    self.buffer
                        .push_back((self.after.0, self.after.1.clone(), row.get(2)?));
                } else {
                    in_vain += 1;
                }
            }
        }
        self.ended = read < self.chunk;
        self.chunk = (self.chunk * 4).min(CHUNK_MAX);
        Ok(in_vain)
    }
}

/// The (time, tail) below which a lane is read, for a position that may name
/// a record of another collection: the tail is then one that sorts alike.
fn start(from: Option<&Position>, nsid: &str) -> (i64, String) {
    let Some(position) = from else {
        return (i64::MAX, String::new());
    };
    let whole = position.uri.strip_prefix("at://").unwrap_or_default();
    if nsid.is_empty() {
        return (position.time_us, whole.to_owned());
    }
    let mut parts = whole.splitn(3, '/');
    let (did, other, _) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
        parts.next(),
    );
    let tail = match other.cmp(nsid) {
        std::cmp::Ordering::Equal => tail(&position.uri),
        // All of this author's records sort before the position's collection: they are all below it.
        std::cmp::Ordering::Greater => format!("{did}/\u{7f}"),
        // They all sort after it: none of this author's at this time is below it.
        std::cmp::Ordering::Less => format!("{did}/"),
    };
    (position.time_us, tail)
}
