//! Pages of a merged feed: groups with their members, in one snapshot.
//!
//! In:    a reader's query, or the first records that memory found.
//! Out:   activities, newest first, filtered and counted where that is asked.
//! Never: a page of two instants.

use std::collections::HashSet;

use rusqlite::{Connection, Error, params};

use super::derive::Ids;
use super::names::find_key;
use super::{feed, read};
use crate::clock::Micros;
use crate::store::budget;
use crate::store::merged::{
    Activity, ActivityFilter, ActivityPage, ActivityQuery, UNION_RECORDS_BYTES_MAX,
};
use crate::store::page::{FeedQuery, Lens, Page, Position, Row};
use crate::store::plan::{LaneId, Plan};

/// Members named of one activity; of more it says that there are more.
const MEMBERS_MAX: usize = 500;
/// What one activity is shown to add, in number and bytes.
const UNION_MAX: usize = 500;
const UNION_BYTES_MAX: usize = 64 << 10;
/// Entries read together where a filter may let few of them through.
const CHUNK: usize = 200;

/// What every read needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activities<'a> {
    pub(super) connection: &'a Connection,
    pub(super) plan: &'a Plan,
    pub(super) ids: &'a Ids,
}

impl Activities<'_> {
    /// One page.
    pub(super) fn page(&self, query: &ActivityQuery) -> Result<ActivityPage, Error> {
        let mut page = match query.feed.lanes.first() {
            Some((lane, _)) => self.found(*lane, query)?,
            None => ActivityPage::default(),
        };
        if query.count {
            page.total = self.count(query)?;
        }
        Ok(page)
    }

    fn found(&self, lane: LaneId, query: &ActivityQuery) -> Result<ActivityPage, Error> {
        let mut found = Collected::default();
        let mut before = query.feed.before.clone();
        let (mut skip, mut looked) = (query.skip, 0);
        let chunk = if query.filter.is_empty() {
            (query.feed.limit + skip + 1).min(CHUNK * 10)
        } else {
            CHUNK
        };
        loop {
            let page = self.entries(query, before.clone(), chunk)?;
            for row in &page.rows {
                looked += 1;
                if skip > 0 && query.filter.is_empty() {
                    skip -= 1;
                    continue;
                }
                let Some((activity, subject)) = self.admitted(lane, row, &query.filter)? else {
                    continue;
                };
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if found.is_full(query.feed.limit) {
                    found.page.next = found.page.activities.last().map(position);
                    return Ok(found.page);
                }
                found.push(self.connection, activity, subject)?;
            }
            // A page that was cut short says where to go on; so do we.
            let cut = !page.is_full(chunk) || looked >= query.feed.scan_max;
            if page.next.is_none() || cut {
                found.page.next = page.next;
                return Ok(found.page);
            }
            before = page.next;
        }
    }

    /// The first records of groups, newest first.
    fn entries(
        &self,
        query: &ActivityQuery,
        before: Option<Position>,
        limit: usize,
    ) -> Result<Page, Error> {
        let query = FeedQuery {
            before,
            limit,
            lens: Lens::default(),
            ..query.feed.clone()
        };
        feed::feed(self.connection, self.plan, self.ids, &query)
    }

    /// How many activities there are in all; `None` if there are too many to count.
    fn count(&self, query: &ActivityQuery) -> Result<Option<usize>, Error> {
        let Some((lane, _)) = query.feed.lanes.first() else {
            return Ok(Some(0));
        };
        let (mut before, mut total, mut looked) = (None, 0, 0);
        loop {
            let page = self.entries(query, before, CHUNK * 10)?;
            looked += page.rows.len();
            if query.filter.is_empty() {
                total += page.rows.len();
            } else {
                for row in &page.rows {
                    let admitted = self.admitted(*lane, row, &query.filter)?;
                    total += usize::from(admitted.is_some());
                }
            }
            if page.next.is_none() {
                return Ok(Some(total));
            }
            if looked >= query.feed.scan_max || page.rows.is_empty() {
                return Ok(None);
            }
            before = page.next;
        }
    }

    /// The activities that begin with these records at these times, or the first of them where all
    /// would be too many bytes; `None` if one is no longer so.
    pub(super) fn at(
        &self,
        lane: LaneId,
        firsts: &[(i64, Micros)],
    ) -> Result<Option<ActivityPage>, Error> {
        let mut found = Collected::default();
        for (record, time_us) in firsts {
            let row = read::rows(self.connection, &[*record])?.pop();
            let Some(row) = row.filter(|row| row.time_us == *time_us) else {
                return Ok(None);
            };
            let Some(activity) = self.of(lane, &row)? else {
                return Ok(None);
            };
            found.push(self.connection, activity, None)?;
            if found.is_large() {
                break;
            }
        }
        Ok(Some(found.page))
    }

    /// The activity that begins with a record, if a filter lets it through; and its subject where
    /// the filter had to read it.
    fn admitted(
        &self,
        lane: LaneId,
        first: &Row,
        filter: &ActivityFilter,
    ) -> Result<Option<(Activity, Option<Row>)>, Error> {
        if !filter.admits_first(&first.collection) {
            return Ok(None);
        }
        let Some(activity) = self.of(lane, first)? else {
            return Ok(None);
        };
        if filter.through.is_empty() {
            return Ok(Some((activity, None)));
        }
        if activity.is_about_itself() {
            let admits = filter.admits(Some(first));
            return Ok(admits.then_some((activity, None)));
        }
        let subject = read::record(self.connection, &activity.merge)?;
        let admits = filter.admits(subject.as_ref());
        Ok(admits.then_some((activity, subject)))
    }

    /// The activity that begins with `first`; `None` if none does.
    fn of(&self, lane: LaneId, first: &Row) -> Result<Option<Activity>, Error> {
        let value = record::json::from_json(&first.body).ok();
        let place = (first.collection.as_str(), first.did.as_str());
        let part = value.and_then(|value| self.plan.part_in(lane, place, &value));
        let Some(part) = part else {
            return Ok(None);
        };
        let (Some(number), Some(author)) = (
            self.ids.lanes.get(lane.0),
            find_key(self.connection, &part.author)?,
        ) else {
            return Ok(None);
        };
        let merge = part.merge.unwrap_or_else(|| first.uri.clone());
        let tail = first.uri.strip_prefix("at://").unwrap_or_default();
        let mut statement = self.connection.prepare_cached(
            "SELECT tail, role, adds FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
             AND (time, tail) >= (?4, ?5) ORDER BY time, tail LIMIT ?6",
        )?;
        let mut rows = statement.query(params![
            number,
            author,
            merge,
            first.time_us,
            tail,
            MEMBERS_MAX as i64 + 1
        ])?;
        let (mut members, mut union): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let (mut known, mut bytes): (HashSet<String>, usize) = (HashSet::new(), 0);
        let mut is_cut = false;
        while let Some(row) = rows.next()? {
            let begins: bool = row.get(1)?; // alone, or the first of a group
            if begins != members.is_empty() {
                break; // the next group; or no group begins here any more
            }
            if members.len() == MEMBERS_MAX {
                is_cut = true;
                break;
            }
            // Members are live, and visible if the first one is: they have one author.
            members.push(["at://", row.get_ref(0)?.as_str()?].concat());
            let adds: Vec<String> =
                serde_json::from_str(row.get_ref(2)?.as_str()?).unwrap_or_default();
            for add in adds {
                let fits = union.len() < UNION_MAX && bytes < UNION_BYTES_MAX;
                if !known.contains(&add) && fits {
                    bytes += add.len();
                    known.insert(add.clone());
                    union.push(add);
                }
            }
        }
        if members.first() != Some(&first.uri) {
            return Ok(None);
        }
        Ok(Some(Activity {
            first: first.clone(),
            members,
            is_cut,
            author: part.author,
            union,
            merge,
        }))
    }
}

/// The activities of one page with all that they name, and their bytes.
#[derive(Debug, Default)]
struct Collected {
    page: ActivityPage,
    /// URIs and DIDs that were looked up and are not here.
    absent: HashSet<String>,
    bytes: usize,
}

impl Collected {
    /// Adds an activity, and reads what it names and was not read before; `subject` where it was.
    fn push(
        &mut self,
        connection: &Connection,
        activity: Activity,
        subject: Option<Row>,
    ) -> Result<(), Error> {
        let texts = activity.members.iter().chain(&activity.union);
        self.bytes += activity.first.bytes() + texts.map(String::len).sum::<usize>();
        if let Some(row) = subject {
            self.keep(row);
        }
        if !activity.is_about_itself() {
            self.name(connection, &activity.merge, usize::MAX)?;
        }
        let mut left = UNION_RECORDS_BYTES_MAX;
        for uri in &activity.union {
            left = left.saturating_sub(self.name(connection, uri, left)?);
        }
        let did = &activity.author;
        let handles = &mut self.page.named.handles;
        if !handles.contains_key(did) && !self.absent.contains(did) {
            match read::handle(connection, did)? {
                Some(handle) => drop(handles.insert(did.clone(), handle)),
                None => drop(self.absent.insert(did.clone())),
            }
        }
        self.page.activities.push(activity);
        Ok(())
    }

    /// Looks a record up, and keeps it unless it has more bytes than this; how many it has.
    fn name(
        &mut self,
        connection: &Connection,
        uri: &str,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        if let Some(row) = self.page.named.records.get(uri) {
            return Ok(row.bytes());
        }
        if self.absent.contains(uri) {
            return Ok(0);
        }
        let Some(row) = read::record(connection, uri)? else {
            self.absent.insert(uri.to_owned());
            return Ok(0);
        };
        let bytes = row.bytes();
        if bytes > bytes_max {
            self.page.named.omitted.insert(uri.to_owned());
            return Ok(0);
        }
        self.keep(row);
        Ok(bytes)
    }

    fn keep(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.page.named.records.insert(row.uri.clone(), row);
    }

    /// Whether no more fits on a page.
    fn is_large(&self) -> bool {
        !self.page.activities.is_empty() && budget::is_page_full(self.bytes)
    }

    fn is_full(&self, limit: usize) -> bool {
        self.page.activities.len() == limit || self.is_large()
    }
}

fn position(activity: &Activity) -> Position {
    activity.first.position()
}
