//! Pages of a merged feed: groups with their members, in one snapshot.
//!
//! In:    a reader's query, or the first records that memory found.
//! Out:   activities, newest first, filtered and counted where that is asked.
//! Never: a page of two instants.

use rusqlite::{Connection, Error, params};

use super::derive::{self, Ids};
use super::names::find_key;
use super::{feed, read};
use crate::clock::Micros;
use crate::store::merged::{Activity, ActivityPage, ActivityQuery};
use crate::store::page::{FeedQuery, Lens, Position, Row};
use crate::store::plan::{LaneId, Plan};

/// Members shown of one activity.
const MEMBERS_MAX: usize = 500;
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
        let total = if query.count {
            self.count(query)?
        } else {
            None
        };
        let Some((lane, _)) = query.feed.lanes.first() else {
            return Ok(ActivityPage::default());
        };
        let mut before = query.feed.before.clone();
        let mut activities: Vec<Activity> = Vec::new();
        let (mut skip, mut looked) = (query.skip, 0);
        let chunk = if query.filter.is_empty() {
            (query.feed.limit + skip + 1).min(CHUNK * 10)
        } else {
            CHUNK
        };
        loop {
            let page = feed::feed(
                self.connection,
                self.plan,
                self.ids,
                &FeedQuery {
                    before: before.clone(),
                    limit: chunk,
                    lens: Lens::default(),
                    ..query.feed.clone()
                },
            )?;
            for row in &page.rows {
                looked += 1;
                if skip > 0 && query.filter.is_empty() {
                    skip -= 1;
                    continue;
                }
                let Some(activity) = self.of(*lane, row)? else {
                    continue;
                };
                if !query.filter.admits(&activity) {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if activities.len() == query.feed.limit {
                    let next = activities.last().and_then(position);
                    return Ok(ActivityPage {
                        activities,
                        next,
                        total,
                    });
                }
                activities.push(activity);
            }
            // A page that was cut short says where to go on; so do we.
            let cut = page.rows.len() < chunk || looked >= query.feed.scan_max;
            if page.next.is_none() || cut {
                return Ok(ActivityPage {
                    activities,
                    next: page.next,
                    total,
                });
            }
            before = page.next;
        }
    }

    /// How many activities there are in all; `None` if there are too many to count.
    fn count(&self, query: &ActivityQuery) -> Result<Option<usize>, Error> {
        let Some((lane, _)) = query.feed.lanes.first() else {
            return Ok(Some(0));
        };
        let (mut before, mut total, mut looked) = (None, 0, 0);
        loop {
            let page = feed::feed(
                self.connection,
                self.plan,
                self.ids,
                &FeedQuery {
                    before,
                    limit: CHUNK * 10,
                    lens: Lens::default(),
                    ..query.feed.clone()
                },
            )?;
            looked += page.rows.len();
            if query.filter.is_empty() {
                total += page.rows.len();
            } else {
                for row in &page.rows {
                    let activity = self.of(*lane, row)?;
                    total += usize::from(activity.is_some_and(|it| query.filter.admits(&it)));
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

    /// The activities that begin with these records at these times; `None` if one is no longer so.
    pub(super) fn at(
        &self,
        lane: LaneId,
        firsts: &[(i64, Micros)],
    ) -> Result<Option<Vec<Activity>>, Error> {
        let numbers: Vec<i64> = firsts.iter().map(|(record, _)| *record).collect();
        let rows = read::rows(self.connection, &numbers)?;
        let found = rows.iter().map(|row| (row.id, row.time_us));
        if !found.eq(firsts.iter().copied()) {
            return Ok(None);
        }
        rows.iter().map(|row| self.of(lane, row)).collect()
    }

    /// The activity that begins with `first`; `None` if none does.
    fn of(&self, lane: LaneId, first: &Row) -> Result<Option<Activity>, Error> {
        let derived = derive::of_body(self.plan, &first.collection, &first.did, &first.body);
        let Some(part) = derived.parts.into_iter().find(|part| part.lane == lane) else {
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
            "SELECT record, first, adds FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
             AND (time, tail) >= (?4, ?5) ORDER BY time, tail LIMIT ?6",
        )?;
        let mut rows = statement.query(params![
            number,
            author,
            merge,
            first.time_us,
            tail,
            MEMBERS_MAX as i64
        ])?;
        let (mut members, mut union): (Vec<i64>, Vec<String>) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            let begins: bool = row.get(1)?;
            if begins != members.is_empty() {
                break; // the next group; or no group begins here any more
            }
            members.push(row.get(0)?);
            let adds: String = row.get(2)?;
            let adds: Vec<String> = serde_json::from_str(&adds).unwrap_or_default();
            for add in adds {
                if !union.contains(&add) {
                    union.push(add);
                }
            }
        }
        if members.first() != Some(&first.id) {
            return Ok(None);
        }
        Ok(Some(Activity {
            members: read::rows(self.connection, &members)?,
            subject: self.subject(&merge, first)?,
            author: part.author,
            union,
            merge,
        }))
    }

    fn subject(&self, merge: &str, first: &Row) -> Result<Option<Row>, Error> {
        if merge == first.uri {
            return Ok(Some(first.clone()));
        }
        read::record(self.connection, merge)
    }
}

fn position(activity: &Activity) -> Option<Position> {
    activity.members.first().map(Row::position)
}
