//! Groups: which records are one entry of a merged feed, kept as they change.
//!
//! In:    the records of merged feeds that came or went in one transaction.
//! Out:   the rows of every group that this forms, changes or ends, and
//!        [`Change::Regroup`]s that name those groups and no others.
//! Never: a grouping that differs from what `timeline::merge` and
//!        `GROUP_KEYS_MAX` say of all live records; a thing regrouped twice in one transaction; work for one
//!        thing beyond its `thing_max` oldest records and those that changed.
//!
//! The records of one author about one thing lie in `part` in order, each with
//! its role. Changes are collected during the transaction. At its end each thing
//! is read once, oldest first, as far as a change of its rank can reach: with
//! `n` changes, a record beyond `thing_max + n` others was alone and stays alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use rusqlite::{Connection, Error, OptionalExtension, params};
use timeline::merge::{Role, Roles};

use super::derive::{Ids, Subject, pack, unpack};
use super::memory::Memory;
use crate::store::change::{Change, Grouped};
use crate::store::merged::Part;

/// Groups named by one change of the outbox.
const GROUPS_MAX: usize = if cfg!(debug_assertions) { 3 } else { 64 };
/// Keys of one group; a record that would bring it more is alone, and so is each after it in its window. So a change of
/// a group is small however many records it has, and whoever follows any key of a record is shown it.
const GROUP_KEYS_MAX: usize = 128;

/// Whether a record comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Came,
    Goes,
}

/// The records of one author about one thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    lane: i64,
    author: i64,
    merge: String,
}

/// A record's place among those of its thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    time: i64,
    tail: String,
}

/// What a record brings to its thing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Brought {
    record: i64,
    keys: Vec<i64>,
    /// What it adds to the union, as JSON.
    adds: String,
}

/// What changed of one thing.
#[derive(Debug)]
struct Edited {
    window_us: i64,
    thing_max: usize,
    /// Something of it happened just now.
    live: bool,
    /// The newest change of each place; `None`: the record is gone from there.
    places: BTreeMap<Place, Option<Brought>>,
}

/// The things that one transaction changed.
#[derive(Debug, Default)]
pub(super) struct Edits {
    things: BTreeMap<Thing, Edited>,
    count: usize,
}

/// A stored record of a thing.
#[derive(Debug)]
struct Member {
    place: Place,
    record: i64,
    role: Role,
    keys: Vec<i64>,
}

/// A record of a thing as it is after the transaction.
#[derive(Debug)]
struct Kept<'a> {
    place: &'a Place,
    record: i64,
    keys: &'a [i64],
    role: Role,
    /// Its stored role; `None` if this transaction brought it.
    was: Option<Role>,
}

/// One activity that is not what it was.
#[derive(Debug, Default)]
struct Moved {
    was: Option<Grouped>,
    now: Option<Grouped>,
}

/// Notes that a record comes to its groups, or leaves them.
pub(super) fn touch(
    tx: &Connection,
    memory: &mut Memory,
    ids: &Ids,
    subject: Subject<'_>,
    parts: &[Part],
    touch: Touch,
    live: bool,
) -> Result<(), Error> {
    for part in parts {
        let Some(&lane) = ids.lanes.get(part.lane.0) else {
            continue;
        };
        let tail = format!("{}/{}/{}", subject.did, part.nsid, subject.rkey);
        let own = || format!("at://{tail}");
        let thing = Thing {
            lane,
            author: memory.key(tx, &part.author)?,
            merge: part.merge.clone().unwrap_or_else(own),
        };
        let brought = match touch {
            Touch::Goes => None,
            Touch::Came => {
                let keys = part.keys.iter().map(|key| memory.key(tx, key));
                Some(Brought {
                    record: subject.record,
                    keys: keys.collect::<Result<_, _>>()?,
                    adds: serde_json::Value::from(part.union.as_slice()).to_string(),
                })
            }
        };
        let place = Place {
            time: subject.time,
            tail,
        };
        memory.edits.add(thing, part, place, brought, live);
    }
    Ok(())
}

impl Edits {
    fn add(
        &mut self,
        thing: Thing,
        part: &Part,
        place: Place,
        brought: Option<Brought>,
        live: bool,
    ) {
        let edited = self.things.entry(thing).or_insert_with(|| Edited {
            window_us: part.window_us,
            thing_max: part.thing_max,
            live: false,
            places: BTreeMap::new(),
        });
        // A record that left is news to whoever saw it, whenever it was written.
        edited.live |= live || brought.is_none();
        edited.places.insert(place, brought);
        self.count += 1;
    }

    /// How many changes wait to be regrouped.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Regroups every changed thing once and appends what changed.
    pub(super) fn regroup(
        &mut self,
        tx: &Connection,
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        let things = std::mem::take(self).things;
        if things.is_empty() {
            return Ok(());
        }
        let together = is_moved_between(&things);
        let mut moves = Moves::default();
        let mut alone = 0;
        for (number, (thing, edited)) in things.iter().enumerate() {
            let before = thing.rows(tx, edited)?;
            let after = edited.after(&before);
            thing.write(tx, edited, &after)?;
            let is_alone = |role: Role| i64::from(role == Role::Alone);
            alone += after.iter().map(|it| is_alone(it.role)).sum::<i64>();
            alone -= before.iter().map(|it| is_alone(it.role)).sum::<i64>();
            moves.compare(number, thing, &before, &after);
        }
        if alone != 0 {
            tx.prepare_cached("UPDATE size SET rows = rows + ?1 WHERE name = 'unmerged'")?
                .execute([alone])?;
        }
        let of: Vec<(&Thing, &Edited)> = things.iter().collect();
        moves.publish(tx, &of)?;
        moves.report(&of, together, changes);
        Ok(())
    }
}

/// Whether a record left one thing for another: then all of it is seen together.
fn is_moved_between(things: &BTreeMap<Thing, Edited>) -> bool {
    let mut brought: HashMap<(i64, &str), usize> = HashMap::new();
    let places = || {
        things
            .iter()
            .enumerate()
            .flat_map(|(number, (thing, edited))| {
                let places = edited.places.iter();
                places.map(move |(place, it)| {
                    (number, (thing.lane, place.tail.as_str()), it.is_some())
                })
            })
    };
    for (number, key, came) in places() {
        if came {
            brought.insert(key, number);
        }
    }
    places().any(|(number, key, came)| !came && brought.get(&key).is_some_and(|to| *to != number))
}

impl Edited {
    /// The thing's records as they are now, with their roles.
    fn after<'a>(&'a self, before: &'a [Member]) -> Vec<Kept<'a>> {
        let kept = |member: &'a Member| Kept {
            place: &member.place,
            record: member.record,
            keys: &member.keys,
            role: member.role,
            was: Some(member.role),
        };
        let mut all: BTreeMap<&Place, Kept<'a>> = before
            .iter()
            .map(|member| (&member.place, kept(member)))
            .collect();
        for (place, brought) in &self.places {
            match brought {
                None => drop(all.remove(place)),
                Some(it) => drop(all.insert(
                    place,
                    Kept {
                        place,
                        record: it.record,
                        keys: &it.keys,
                        role: Role::Alone,
                        was: None,
                    },
                )),
            }
        }
        let mut roles = Roles::new(self.window_us, self.thing_max);
        let mut after: Vec<Kept<'a>> = all.into_values().collect();
        let mut open: HashSet<i64> = HashSet::new();
        let mut full = false;
        for kept in &mut after {
            kept.role = roles.next(kept.place.time);
            match kept.role {
                Role::Begins => {
                    open.clear();
                    open.extend(kept.keys);
                    full = false;
                }
                Role::Joins => {
                    open.extend(kept.keys.iter().filter(|_| !full));
                    full |= open.len() > GROUP_KEYS_MAX;
                    if full {
                        kept.role = Role::Alone;
                    }
                }
                Role::Alone => {}
            }
        }
        after
    }
}

impl Thing {
    /// The stored records that a change can concern: the oldest, and those that changed.
    fn rows(&self, tx: &Connection, edited: &Edited) -> Result<Vec<Member>, Error> {
        let limit = edited.thing_max.saturating_add(edited.places.len() + 1);
        let mut rows = tx
            .prepare_cached(
                "SELECT time, tail, record, role, keys FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
                 ORDER BY time, tail LIMIT ?4",
            )?
            .query_map(
                params![self.lane, self.author, self.merge, i64::try_from(limit).unwrap_or(i64::MAX)],
                member,
            )?
            .collect::<Result<Vec<Member>, Error>>()?;
        if rows.len() < limit {
            return Ok(rows);
        }
        let Some(last) = rows.last().map(|row| row.place.clone()) else {
            return Ok(rows);
        };
        let beyond = (Bound::Excluded(last), Bound::Unbounded);
        let mut one = tx.prepare_cached(
            "SELECT time, tail, record, role, keys FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3
             AND time = ?4 AND tail = ?5",
        )?;
        for place in edited.places.range(beyond).map(|(place, _)| place) {
            let place = params![self.lane, self.author, self.merge, place.time, place.tail];
            rows.extend(one.query_row(place, member).optional()?);
        }
        Ok(rows)
    }

    /// Writes the rows that are not what they were.
    fn write(&self, tx: &Connection, edited: &Edited, after: &[Kept<'_>]) -> Result<(), Error> {
        let mut delete = tx.prepare_cached(
            "DELETE FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND time = ?4 AND tail = ?5",
        )?;
        for (place, brought) in &edited.places {
            if brought.is_none() {
                let Place { time, tail } = place;
                delete.execute(params![self.lane, self.author, self.merge, time, tail])?;
            }
        }
        let mut insert = tx.prepare_cached(
            "INSERT OR REPLACE INTO part (lane, author, merge, time, tail, record, role, keys, adds)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut update = tx.prepare_cached(
            "UPDATE part SET role = ?6 WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND time = ?4 AND tail = ?5",
        )?;
        for kept in after {
            let (Place { time, tail }, role) = (kept.place, number(kept.role));
            match (kept.was, edited.places.get(kept.place)) {
                (None, Some(Some(it))) => drop(insert.execute(params![
                    self.lane,
                    self.author,
                    self.merge,
                    time,
                    tail,
                    it.record,
                    role,
                    pack(&it.keys),
                    it.adds
                ])?),
                (Some(was), _) if was != kept.role => drop(update.execute(params![
                    self.lane,
                    self.author,
                    self.merge,
                    time,
                    tail,
                    role
                ])?),
                _ => {}
            }
        }
        Ok(())
    }

    fn grouped<'a>(
        &self,
        mut members: impl Iterator<Item = (&'a Place, i64, &'a [i64])>,
    ) -> Option<Grouped> {
        let (place, record, first) = members.next()?;
        let mut known = HashSet::new();
        let keys = first.iter().chain(members.flat_map(|(_, _, keys)| keys));
        Some(Grouped {
            record,
            uri: format!("at://{}", place.tail),
            time_us: place.time,
            author: self.author,
            keys: keys.copied().filter(|key| known.insert(*key)).collect(),
        })
    }
}

/// Every activity that is not what it was, once: by its lane and first record, wherever that was before.
#[derive(Debug, Default)]
struct Moves {
    all: Vec<(usize, Moved)>,
    at: HashMap<(i64, i64), usize>,
}

impl Moves {
    /// Adds what differs between the groups of a thing before and after.
    fn compare(&mut self, number: usize, thing: &Thing, before: &[Member], after: &[Kept<'_>]) {
        let mut was = before
            .chunk_by(|_, next| next.role == Role::Joins)
            .peekable();
        let now = after.chunk_by(|_, next| next.role == Role::Joins);
        let begins = |group: &[Member]| group.first().map(|first| first.place.clone());
        for group in now {
            let Some(first) = group.first() else { continue };
            // Groups are in order on both sides: what begins before this one has ended.
            while let Some(ended) = was.next_if(|old| begins(old).as_ref() < Some(first.place)) {
                self.ended(number, thing, ended);
            }
            let old = was.next_if(|old| begins(old).as_ref() == Some(first.place));
            if old.is_some_and(|old| is_same(old, group)) {
                continue;
            }
            if let Some(old) = old {
                self.ended(number, thing, old);
            }
            let members = group.iter().map(|it| (it.place, it.record, it.keys));
            if let Some(grouped) = thing.grouped(members)
                && let Some(moved) = self.slot(number, thing.lane, grouped.record)
            {
                moved.now = Some(grouped);
            }
        }
        for ended in was {
            self.ended(number, thing, ended);
        }
    }

    fn ended(&mut self, number: usize, thing: &Thing, group: &[Member]) {
        let members = group.iter();
        let members = members.map(|it| (&it.place, it.record, it.keys.as_slice()));
        if let Some(grouped) = thing.grouped(members)
            && let Some(moved) = self.slot(number, thing.lane, grouped.record)
        {
            moved.was = Some(grouped);
        }
    }

    /// Where the activity that begins with a record is noted.
    fn slot(&mut self, number: usize, lane: i64, record: i64) -> Option<&mut Moved> {
        let at = *self.at.entry((lane, record)).or_insert(self.all.len());
        if at == self.all.len() {
            self.all.push((number, Moved::default()));
        }
        self.all.get_mut(at).map(|(_, moved)| moved)
    }

    /// Writes the rows of activities that are not what they were.
    fn publish(&self, tx: &Connection, things: &[(&Thing, &Edited)]) -> Result<(), Error> {
        let lane_of = |number: usize| things.get(number).map(|(thing, _)| thing.lane);
        // Places are freed before they are taken.
        for (number, Moved { was, now }) in &self.all {
            let (Some(was), Some(lane)) = (was, lane_of(*number)) else {
                continue;
            };
            let stays = now.as_ref().filter(|now| now.time_us == was.time_us);
            unpublish(tx, lane, was, stays)?;
        }
        for (number, Moved { was, now }) in &self.all {
            let (Some(now), Some(lane)) = (now, lane_of(*number)) else {
                continue;
            };
            let stayed = was.as_ref().filter(|was| was.time_us == now.time_us);
            publish(tx, lane, now, stayed)?;
        }
        Ok(())
    }

    /// Appends the changes; each names a bounded number of activities.
    fn report(self, things: &[(&Thing, &Edited)], together: bool, changes: &mut Vec<Change>) {
        let mut all = self.all;
        all.sort_by_key(|(number, _)| *number);
        let from = changes.len();
        for moved in all.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((thing, edited)) = moved.first().and_then(|(number, _)| things.get(*number))
            else {
                continue;
            };
            let parts = moved.chunks(GROUPS_MAX);
            let last = parts.len();
            for (index, part) in parts.enumerate() {
                let was = part.iter().filter_map(|(_, moved)| moved.was.clone());
                let now = part.iter().filter_map(|(_, moved)| moved.now.clone());
                changes.push(Change::Regroup {
                    lane: thing.lane,
                    was: was.collect(),
                    now: now.collect(),
                    live: edited.live,
                    continues: together || index + 1 < last,
                });
            }
        }
        if let Some(Change::Regroup { continues, .. }) =
            changes.get_mut(from..).and_then(<[_]>::last_mut)
        {
            *continues = false;
        }
    }
}

/// Whether a group is what it was: the same members, none of them brought by this transaction.
fn is_same(old: &[Member], new: &[Kept<'_>]) -> bool {
    let stays = |(old, new): (&Member, &Kept<'_>)| new.was.is_some() && *new.place == old.place;
    old.len() == new.len() && old.iter().zip(new).all(stays)
}

/// Removes an activity's rows, except those that it has still.
fn unpublish(
    tx: &Connection,
    lane: i64,
    was: &Grouped,
    stays: Option<&Grouped>,
) -> Result<(), Error> {
    let tail = was.uri.strip_prefix("at://").unwrap_or_default();
    let kept: HashSet<i64> = stays.into_iter().flat_map(|it| &it.keys).copied().collect();
    let mut delete = tx.prepare_cached(
        "DELETE FROM published WHERE lane = ?1 AND key = ?2 AND time = ?3 AND tail = ?4",
    )?;
    for key in was.keys.iter().filter(|key| !kept.contains(key)) {
        delete.execute(params![lane, key, was.time_us, tail])?;
    }
    if stays.is_none() {
        tx.prepare_cached("DELETE FROM recent WHERE lane = ?1 AND time = ?2 AND tail = ?3")?
            .execute(params![lane, was.time_us, tail])?;
    }
    Ok(())
}

/// Adds an activity's rows, except those that it had already.
fn publish(
    tx: &Connection,
    lane: i64,
    now: &Grouped,
    stayed: Option<&Grouped>,
) -> Result<(), Error> {
    let tail = now.uri.strip_prefix("at://").unwrap_or_default();
    let had: HashSet<i64> = stayed
        .into_iter()
        .flat_map(|it| &it.keys)
        .copied()
        .collect();
    let mut insert = tx.prepare_cached(
        "INSERT OR REPLACE INTO published (lane, key, time, tail, record) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for key in now.keys.iter().filter(|key| !had.contains(key)) {
        insert.execute(params![lane, key, now.time_us, tail, now.record])?;
    }
    if stayed.is_none_or(|was| was.keys != now.keys) {
        tx.prepare_cached("INSERT OR REPLACE INTO recent (lane, time, tail, record, keys) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![lane, now.time_us, tail, now.record, pack(&now.keys)])?;
    }
    Ok(())
}

fn member(row: &rusqlite::Row<'_>) -> Result<Member, Error> {
    Ok(Member {
        place: Place {
            time: row.get(0)?,
            tail: row.get(1)?,
        },
        record: row.get(2)?,
        role: role(row.get(3)?),
        keys: unpack(row.get_ref(4)?.as_blob()?).collect(),
    })
}

fn number(role: Role) -> i64 {
    match role {
        Role::Joins => 0,
        Role::Begins => 1,
        Role::Alone => 2,
    }
}

fn role(number: i64) -> Role {
    match number {
        0 => Role::Joins,
        1 => Role::Begins,
        _ => Role::Alone,
    }
}

#[cfg(test)]
mod tests;
