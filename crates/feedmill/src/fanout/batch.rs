//! Records that the engine takes in together.
//!
//! In:    puts, in the order they were drawn.
//! Out:   the same records, target by target, each in that order.
//! Never: a record held back beyond the next change of another kind.
//!
//! To insert a record is to wait for memory a dozen times; the waits of many
//! records overlap if the engine knows of them at once.

use std::collections::HashMap;

use timeline::{KeyId, NewRecord, RecordId, Timelines};

use super::load::key;
use crate::clock::Micros;
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

/// Records waiting for the engine, by feed and target.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    rows: HashMap<(usize, usize), Vec<Row<'a>>>,
}

impl<'a> Batch<'a> {
    /// Adds a put to every target it is routed to; other changes are not for here.
    pub(super) fn add(&mut self, routes: &Routes, change: &'a Change) -> Result<(), StoreError> {
        let Change::Put {
            record, uri, lanes, ..
        } = change
        else {
            return Ok(());
        };
        for place in lanes {
            for to in routes.targets(place.lane) {
                let keys = place.keys.iter().map(|number| key(*number));
                self.rows.entry(to).or_default().push(Row {
                    id: RecordId(record.cast_unsigned()),
                    time_us: place.time_us,
                    uri,
                    author: key(place.author)?,
                    keys: keys.collect::<Result<_, _>>()?,
                });
            }
        }
        Ok(())
    }

    /// Hands all over; the batch is empty afterwards.
    pub(super) fn insert_into(&mut self, timelines: &mut Timelines) {
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
