//! Groups: which records are one entry of a merged feed, kept as they change.
//!
//! In:    one record that came or went, within its transaction.
//! Out:   the rows of every group that this forms, changes or ends, and one
//!        [`Change::Regroup`] that tells it whole.
//! Never: a grouping that differs from what `timeline::merge` says of all live
//!        records; a look at records that the change cannot reach.
//!
//! The records of one author about one thing stand in `part` in order, those
//! that begin a group marked `first`. A change reaches from the group it falls
//! into as far as the first old beginning that is a beginning again: from there
//! on everything is as it was, because a group depends only on where it begins.

use rusqlite::{Connection, Error, OptionalExtension, params};
use timeline::merge;

use super::derive::{Ids, Subject, pack, unpack};
use super::memory::Memory;
use crate::store::change::{Change, Grouped};
use crate::store::merged::Part;

/// Whether a record comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Came,
    Goes,
}

/// The records of one author about one thing.
#[derive(Debug)]
struct Thing<'a> {
    lane: i64,
    author: i64,
    merge: &'a str,
    window_us: i64,
}

/// One record of a thing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    time: i64,
    tail: String,
    record: i64,
    first: bool,
    keys: Vec<i64>,
    adds: Vec<String>,
}

impl Member {
    fn place(&self) -> (i64, &str) {
        (self.time, &self.tail)
    }
}

/// The groups that a change reaches, as they were and as they are.
#[derive(Debug, Default)]
struct Reach {
    before: Vec<Vec<Member>>,
    after: Vec<Member>,
}

/// Adds a record to its groups, or takes it out of them.
pub(super) fn touch(
    tx: &Connection,
    memory: &mut Memory,
    ids: &Ids,
    subject: Subject<'_>,
    parts: &[Part],
    touch: Touch,
    changes: &mut Vec<Change>,
) -> Result<(), Error> {
    for part in parts {
        let Some(&lane) = ids.lanes.get(part.lane.0) else {
            continue;
        };
        let tail = format!("{}/{}/{}", subject.did, part.nsid, subject.rkey);
        let own = format!("at://{tail}");
        let thing = Thing {
            lane,
            author: memory.key(tx, &part.author)?,
            merge: part.merge.as_deref().unwrap_or(&own),
            window_us: part.window_us,
        };
        if touch == Touch::Came {
            let mut keys = Vec::with_capacity(part.keys.len());
            for key in &part.keys {
                keys.push(memory.key(tx, key)?);
            }
            thing.insert(tx, subject, &tail, &keys, &part.union)?;
        }
        let reach = thing.reach(tx, (subject.time, &tail), touch)?;
        if touch == Touch::Goes {
            thing.delete(tx, subject.time, &tail)?;
        }
        changes.extend(thing.regroup(tx, &reach)?);
    }
    Ok(())
}

impl Thing<'_> {
    fn insert(
        &self,
        tx: &Connection,
        subject: Subject<'_>,
        tail: &str,
        keys: &[i64],
        adds: &[String],
    ) -> Result<(), Error> {
        let adds = serde_json::Value::from(adds).to_string();
        tx.prepare_cached(
            "INSERT OR REPLACE INTO part (lane, author, merge, time, tail, record, first, keys, adds)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8)",
        )?
        .execute(params![
            self.lane,
            self.author,
            self.merge,
            subject.time,
            tail,
            subject.record,
            pack(keys),
            adds
        ])?;
        Ok(())
    }

    fn delete(&self, tx: &Connection, time: i64, tail: &str) -> Result<(), Error> {
        tx.prepare_cached(
            "DELETE FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND time = ?4 AND tail = ?5",
        )?
        .execute(params![self.lane, self.author, self.merge, time, tail])?;
        Ok(())
    }

    /// The beginning of the group that a place falls into, or the place itself.
    fn beginning(&self, tx: &Connection, place: (i64, &str)) -> Result<(i64, String), Error> {
        let found = tx
            .prepare_cached(
                "SELECT time, tail FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
                 AND (time, tail) <= (?4, ?5) AND first = 1 ORDER BY time DESC, tail DESC LIMIT 1",
            )?
            .query_row(
                params![self.lane, self.author, self.merge, place.0, place.1],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        Ok(found.unwrap_or_else(|| (place.0, place.1.to_owned())))
    }

    /// Walks from the group that a changed place falls into to where nothing changes any more.
    fn reach(&self, tx: &Connection, place: (i64, &str), touch: Touch) -> Result<Reach, Error> {
        let (time, tail) = self.beginning(tx, place)?;
        let mut statement = tx.prepare_cached(
            "SELECT time, tail, record, first, keys, adds FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
             AND (time, tail) >= (?4, ?5) ORDER BY time, tail",
        )?;
        let mut rows = statement.query(params![self.lane, self.author, self.merge, time, tail])?;
        let mut reach = Reach::default();
        let mut open_us: Option<i64> = None;
        while let Some(row) = rows.next()? {
            let member = member(row)?;
            let begins =
                !open_us.is_some_and(|open| merge::joins(open, member.time, self.window_us));
            if begins && member.first && member.place() > place {
                break;
            }
            let touched = member.place() == place;
            if !(touched && touch == Touch::Goes) {
                if begins {
                    open_us = Some(member.time);
                }
                reach.after.push(member.clone());
            }
            if !(touched && touch == Touch::Came) {
                match reach.before.last_mut() {
                    Some(group) if !member.first => group.push(member),
                    _ => reach.before.push(vec![member]),
                }
            }
        }
        Ok(reach)
    }

    /// Writes the rows of groups that are not what they were, and tells it.
    fn regroup(&self, tx: &Connection, reach: &Reach) -> Result<Option<Change>, Error> {
        let parts: Vec<merge::Part<'_>> = reach
            .after
            .iter()
            .map(|member| merge::Part {
                time_us: member.time,
                uri: &member.tail,
                union: &member.adds,
            })
            .collect();
        let mut rest = reach.after.as_slice();
        let mut after: Vec<&[Member]> = Vec::new();
        for activity in merge::activities(&parts, self.window_us) {
            let (group, others) = rest
                .split_at_checked(activity.members.len())
                .unwrap_or_default();
            after.push(group);
            rest = others;
        }
        let same = |one: &[Member], other: &[Member]| {
            one.iter()
                .map(Member::place)
                .eq(other.iter().map(Member::place))
        };
        let mut was = Vec::new();
        for group in &reach.before {
            if after.iter().any(|now| same(now, group)) {
                continue;
            }
            let Some(first) = group.first() else { continue };
            self.unpublish(tx, first, group)?;
            was.push(self.grouped(first, group));
        }
        let mut now = Vec::new();
        for group in after {
            if reach.before.iter().any(|was| same(was, group)) {
                continue;
            }
            let Some(first) = group.first() else { continue };
            now.push(self.publish(tx, first, group)?);
        }
        if was.is_empty() && now.is_empty() {
            return Ok(None);
        }
        Ok(Some(Change::Regroup {
            lane: self.lane,
            was,
            now,
            live: true,
        }))
    }

    fn unpublish(&self, tx: &Connection, first: &Member, group: &[Member]) -> Result<(), Error> {
        for key in keys(group) {
            tx.prepare_cached(
                "DELETE FROM published WHERE lane = ?1 AND key = ?2 AND time = ?3 AND tail = ?4",
            )?
            .execute(params![self.lane, key, first.time, first.tail])?;
        }
        tx.prepare_cached("DELETE FROM recent WHERE lane = ?1 AND time = ?2 AND tail = ?3")?
            .execute(params![self.lane, first.time, first.tail])?;
        Ok(())
    }

    fn publish(&self, tx: &Connection, first: &Member, group: &[Member]) -> Result<Grouped, Error> {
        let keys = keys(group);
        for key in &keys {
            tx.prepare_cached("INSERT OR REPLACE INTO published (lane, key, time, tail, record) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![self.lane, key, first.time, first.tail, first.record])?;
        }
        tx.prepare_cached("INSERT OR REPLACE INTO recent (lane, time, tail, record, keys) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![self.lane, first.time, first.tail, first.record, pack(&keys)])?;
        for member in group {
            let begins = member.place() == first.place();
            if begins != member.first {
                tx.prepare_cached(
                    "UPDATE part SET first = ?6 WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND time = ?4 AND tail = ?5",
                )?
                .execute(params![self.lane, self.author, self.merge, member.time, member.tail, begins])?;
            }
        }
        Ok(self.grouped(first, group))
    }

    fn grouped(&self, first: &Member, group: &[Member]) -> Grouped {
        Grouped {
            record: first.record,
            uri: format!("at://{}", first.tail),
            time_us: first.time,
            author: self.author,
            keys: keys(group),
        }
    }
}

/// The keys of all members, each once.
fn keys(group: &[Member]) -> Vec<i64> {
    let mut keys: Vec<i64> = Vec::new();
    for key in group.iter().flat_map(|member| &member.keys) {
        if !keys.contains(key) {
            keys.push(*key);
        }
    }
    keys
}

fn member(row: &rusqlite::Row<'_>) -> Result<Member, Error> {
    let adds: String = row.get(5)?;
    Ok(Member {
        time: row.get(0)?,
        tail: row.get(1)?,
        record: row.get(2)?,
        first: row.get(3)?,
        keys: unpack(row.get_ref(4)?.as_blob()?).collect(),
        adds: serde_json::from_str(&adds).unwrap_or_default(),
    })
}
