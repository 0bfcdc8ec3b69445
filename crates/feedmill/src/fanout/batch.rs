//! Changes that the engine takes together, checked before the first of them is made.
//!
//! In:    changes of the outbox, in order.
//! Out:   the same for every feed and target they lead to, or an error and nothing changed.
//! Never: a batch that is made in part; a record held back beyond the next change of another kind.
//!
//! A change that fails after others of its batch were made would leave the engine at no position of
//! the outbox: follows count, so the batch could not be made again. Therefore everything that can
//! fail is done first.
//!
//! To insert a record is to wait for memory a dozen times; the waits of many records overlap if the
//! engine knows of them at once.

use std::collections::HashMap;

use timeline::{KeyId, NewRecord, RecordId, Timelines};

use super::load::{group, key};
use crate::clock::Micros;
use crate::store::change::Grouped;
use crate::store::routes::Routes;
use crate::store::{Change, StoreError};

/// A record for one target, its numbers checked.
#[derive(Debug)]
struct Row<'a> {
    id: RecordId,
    time_us: Micros,
    uri: &'a str,
    author: KeyId,
    keys: Vec<KeyId>,
}

impl<'a> Row<'a> {
    fn new(
        record: i64,
        time_us: Micros,
        uri: &'a str,
        author: i64,
        keys: &[i64],
    ) -> Result<Self, StoreError> {
        let keys = keys.iter().map(|number| key(*number));
        Ok(Self {
            id: RecordId(record.cast_unsigned()),
            time_us,
            uri,
            author: key(author)?,
            keys: keys.collect::<Result<_, _>>()?,
        })
    }
}

/// What the engine is to do, with numbers it can hold.
#[derive(Debug)]
enum Step<'a> {
    /// The changes that follow belong to this position.
    Begin(u64),
    Insert((usize, usize), Row<'a>),
    Remove(RecordId),
    RemoveFrom((usize, usize), RecordId),
    Follow(usize, KeyId, KeyId),
    Unfollow(usize, KeyId, KeyId),
    Hide(usize, KeyId, KeyId),
    Unhide(usize, KeyId, KeyId),
    Account {
        account: KeyId,
        hidden: bool,
    },
}

/// Changes that are made together.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Batch<'a> {
    /// Changes, each at its position.
    pub(super) fn new(routes: &Routes, changes: &'a [(i64, Change)]) -> Result<Self, StoreError> {
        let mut batch = Self {
            steps: Vec::with_capacity(2 * changes.len()),
        };
        for (position, change) in changes {
            batch.steps.push(Step::Begin(position.cast_unsigned()));
            batch.add(routes, change)?;
        }
        Ok(batch)
    }

    fn add(&mut self, routes: &Routes, change: &'a Change) -> Result<(), StoreError> {
        match change {
            Change::Put {
                record, uri, lanes, ..
            } => {
                for place in lanes {
                    for to in routes.targets(place.lane) {
                        let row = Row::new(*record, place.time_us, uri, place.author, &place.keys)?;
                        self.steps.push(Step::Insert(to, row));
                    }
                }
            }
            Change::Delete { record, .. } => {
                let id = RecordId(record.cast_unsigned());
                self.steps.push(Step::Remove(id));
            }
            Change::Regroup { lane, was, now, .. } => self.regroup(routes, *lane, was, now)?,
            Change::Follow {
                source,
                reader,
                key: followed,
            } => {
                let (reader, followed) = (key(*reader)?, key(*followed)?);
                let follows = routes.follows(*source);
                let hides = routes.hides(*source);
                self.steps
                    .extend(follows.map(|feed| Step::Follow(feed, reader, followed)));
                self.steps
                    .extend(hides.map(|feed| Step::Hide(feed, reader, followed)));
            }
            Change::Unfollow {
                source,
                reader,
                key: followed,
            } => {
                let (reader, followed) = (key(*reader)?, key(*followed)?);
                let follows = routes.follows(*source);
                let hides = routes.hides(*source);
                self.steps
                    .extend(follows.map(|feed| Step::Unfollow(feed, reader, followed)));
                self.steps
                    .extend(hides.map(|feed| Step::Unhide(feed, reader, followed)));
            }
            Change::Account {
                key: account,
                visible,
                ..
            } => self.steps.push(Step::Account {
                account: key(*account)?,
                hidden: !visible,
            }),
        }
        Ok(())
    }

    /// Groups of a merged feed that end, and those that take their place.
    fn regroup(
        &mut self,
        routes: &Routes,
        lane: i64,
        was: &[Grouped],
        now: &'a [Grouped],
    ) -> Result<(), StoreError> {
        for to in routes.targets(lane) {
            let ended = |old: &&Grouped| now.iter().all(|new| new.record != old.record);
            for old in was.iter().filter(ended) {
                let id = RecordId(group(old.record).cast_unsigned());
                self.steps.push(Step::RemoveFrom(to, id));
            }
            for one in now {
                let id = group(one.record);
                let row = Row::new(id, one.time_us, &one.uri, one.author, &one.keys)?;
                self.steps.push(Step::Insert(to, row));
            }
        }
        Ok(())
    }

    /// Makes all changes. They are seen after [`Timelines::end`].
    pub(super) fn make(self, timelines: &mut Timelines) {
        let mut inserts = Inserts::default();
        for step in self.steps {
            match step {
                Step::Begin(position) => timelines.begin(position),
                Step::Insert(to, row) => inserts.rows.entry(to).or_default().push(row),
                other => {
                    inserts.make(timelines);
                    make(other, timelines);
                }
            }
        }
        inserts.make(timelines);
    }
}

/// Makes a change that waits for no other.
fn make(step: Step<'_>, timelines: &mut Timelines) {
    match step {
        Step::Begin(_) | Step::Insert(..) => {}
        Step::Remove(id) => {
            timelines.remove(id);
        }
        Step::RemoveFrom((feed, target), id) => {
            timelines.remove_from(feed, target, id);
        }
        Step::Follow(feed, reader, key) => timelines.follow(feed, reader, key),
        Step::Unfollow(feed, reader, key) => timelines.unfollow(feed, reader, key),
        Step::Hide(feed, reader, key) => timelines.hide(feed, reader, key),
        Step::Unhide(feed, reader, key) => timelines.unhide(feed, reader, key),
        Step::Account { account, hidden } => timelines.account(account, hidden),
    }
}

/// Records waiting for the engine, by feed and target.
#[derive(Debug, Default)]
struct Inserts<'a> {
    rows: HashMap<(usize, usize), Vec<Row<'a>>>,
}

impl Inserts<'_> {
    /// Hands all over; none are left.
    fn make(&mut self, timelines: &mut Timelines) {
        for ((feed, target), rows) in self.rows.drain() {
            let records: Vec<NewRecord<'_>> = rows
                .iter()
                .map(|row| NewRecord {
                    id: row.id,
                    time_us: row.time_us,
                    uri: row.uri,
                    author: row.author,
                    keys: &row.keys,
                })
                .collect();
            timelines.insert_all(feed, target, &records);
        }
    }
}
