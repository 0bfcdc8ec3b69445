//! What of the river is published, and how far.
//!
//! In:    notices of records and accounts, in order, with the place in the outbox they come from.
//! Out:   blocks, and that place, in one transaction.
//! Never: a version published twice; the payload of what is deleted or hidden.
//!
//! `published` knows for every URI which positions tell of it. Position 0 means:
//! known, but nothing that can be read tells of it, because its author is
//! hidden. An account stands there under `at://did`, with its moment as revision.

use super::append::Batch;
use super::moment::Moment;
use super::remembered::Remembered;
use super::row::{number, signed};
use super::space::SpaceRow;
use super::{SqliteLog, find_space, learn, passing};
use crate::event::{ACCOUNTS, AccountEvent, RecordEvent};
use blocklog::chain::Draft;
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, StoreError};
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::collections::BTreeSet;

/// One thing to tell.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A record that may be seen, or that is gone for everybody.
    Record { rev: u64, event: RecordEvent },
    /// A live record whose author is hidden: it is told when the author is back.
    Hidden { uri: String },
    /// A record that went with its account.
    Traceless { uri: String },
    /// How an account stands now. What is `forgotten` does not come back.
    Account {
        event: AccountEvent,
        forgotten: bool,
    },
}

/// Where and as whom to publish.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    pub space: &'a str,
    pub namespace: &'a str,
    pub author: &'a Author,
    pub now_us: i64,
}

/// What came of publishing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Feeds that grew.
    pub feeds: BTreeSet<String>,
    /// Blocks added.
    pub blocks: u64,
    /// The highest position given; 0 if none.
    pub position_max: u64,
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Another process has gone on from there: look again.
    #[error("somebody else has published from {0} on")]
    Stale(i64),
    /// The log could not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl From<StoreError> for PublishError {
    fn from(error: StoreError) -> Self {
        Self::Append(AppendError::Store(error))
    }
}

/// The newest that is known of a URI.
struct Latest {
    rev: u64,
    live: bool,
    position: u64,
}

impl SqliteLog {
    /// The place in the outbox up to which everything is published; `None` before the first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn published_through(&self, space: &str) -> std::result::Result<Option<i64>, StoreError> {
        self.reading(|connection| through(connection, space))
    }

    /// Publish, and move from `from` to `to`, in one transaction. `None` for `from` starts anew.
    ///
    /// # Errors
    /// If the place is no longer `from`, or the file cannot be written.
    pub fn publish(
        &self,
        desk: &Desk<'_>,
        from: Option<i64>,
        to: Option<i64>,
        notices: &[Notice],
    ) -> std::result::Result<Told, PublishError> {
        self.writing(|moment| {
            let stands = through(moment, desk.space).map_err(passing)?;
            if stands != from {
                return Err(PublishError::Stale(from.unwrap_or(0)));
            }
            let row = find_space(moment, desk.space)?;
            let told = tell(moment, row, desk, notices)?;
            if let Some(to) = to {
                let sql = "INSERT INTO publications (spaceId, through) VALUES (?1, ?2) \
                           ON CONFLICT (spaceId) DO UPDATE SET through = ?2";
                moment
                    .prepare_cached(sql)
                    .and_then(|mut query| query.execute(params![desk.space, to]))
                    .map_err(passing)?;
            }
            Ok(told)
        })
    }

    /// URIs of an account's records that are known, behind `after`, in order.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn published_of(
        &self,
        space: &str,
        did: &str,
        after: &str,
        limit: usize,
    ) -> std::result::Result<Vec<String>, StoreError> {
        self.reading(|connection| {
            let (low, high) = range(did);
            let from = if after.is_empty() { &low } else { after };
            let sql = "SELECT DISTINCT uri FROM published WHERE spaceId = ?1 AND uri > ?2 AND uri < ?3 \
                       ORDER BY uri LIMIT ?4";
            connection
                .prepare_cached(sql)?
                .query_map(params![space, from, high, signed(limit as u64)], |row| row.get(0))?
                .collect()
        })
    }
}

/// Every URI of an account's records lies between these.
fn range(did: &str) -> (String, String) {
    (format!("at://{did}/"), format!("at://{did}0"))
}

fn through(connection: &Connection, space: &str) -> Result<Option<i64>> {
    connection
        .prepare_cached("SELECT through FROM publications WHERE spaceId = ?1")?
        .query_row([space], |row| row.get(0))
        .optional()
}

fn tell(
    moment: &Moment<'_>,
    row: SpaceRow,
    desk: &Desk<'_>,
    notices: &[Notice],
) -> std::result::Result<Told, AppendError> {
    let now_ms = u64::try_from(desk.now_us / 1000).unwrap_or(0);
    let mut known = Remembered::default();
    let mut teller = Teller {
        space: row.private_id,
        ledger: Ledger {
            connection: moment,
            space: desk.space,
        },
        batch: Batch::new(moment, row, now_ms, &mut known),
        desk,
        now_ms,
        told: Told::default(),
    };
    for notice in notices {
        teller.notice(notice)?;
    }
    let Teller { batch, told, .. } = teller;
    batch.finish().map_err(super::append::passing)?;
    Ok(told)
}

struct Teller<'a> {
    space: i64,
    ledger: Ledger<'a>,
    batch: Batch<'a>,
    desk: &'a Desk<'a>,
    now_ms: u64,
    told: Told,
}

impl Teller<'_> {
    fn notice(&mut self, notice: &Notice) -> std::result::Result<(), AppendError> {
        match notice {
            Notice::Record { rev, event } => self.record(*rev, event),
            Notice::Hidden { uri } => {
                if self.ledger.latest(uri).map_err(passing)?.is_none() {
                    self.ledger.note(uri, 0, 0, true).map_err(passing)?;
                }
                Ok(())
            }
            Notice::Traceless { uri } => {
                self.withdraw(uri).map_err(passing)?;
                Ok(())
            }
            Notice::Account { event, forgotten } => self.account(event, *forgotten),
        }
    }

    fn record(&mut self, rev: u64, event: &RecordEvent) -> std::result::Result<(), AppendError> {
        let uri = event.uri();
        let live = event.content.is_some();
        let latest = self.ledger.latest(&uri).map_err(passing)?;
        // Deletes win ties, as they do in the store.
        let told =
            |latest: &Latest| latest.position > 0 && (latest.rev, !latest.live) >= (rev, !live);
        // A deletion is told of what we never told as well: a log brought back from a copy, or begun
        // anew, does not know what its readers were told before.
        if latest.as_ref().is_some_and(told) {
            return Ok(());
        }
        let known = latest.is_some();
        if !live {
            self.withdraw(&uri).map_err(passing)?;
        }
        let payload = event.payload(known, self.desk.now_us);
        let position = self.write(&event.collection, payload)?;
        self.ledger.forget(&uri, 0).map_err(passing)?;
        self.ledger
            .note(&uri, position, rev, live)
            .map_err(passing)?;
        Ok(())
    }

    fn account(
        &mut self,
        event: &AccountEvent,
        forgotten: bool,
    ) -> std::result::Result<(), AppendError> {
        let uri = format!("at://{}", event.did);
        let since = u64::try_from(event.since_us).unwrap_or(0);
        let latest = self.ledger.latest(&uri).map_err(passing)?;
        if latest.is_some_and(|latest| latest.rev >= since) {
            return Ok(());
        }
        let position = self.write(ACCOUNTS, event.payload())?;
        self.ledger
            .note(&uri, position, since, true)
            .map_err(passing)?;
        if event.active {
            return Ok(());
        }
        for uri in self.ledger.of_account(&event.did).map_err(passing)? {
            self.withdraw(&uri).map_err(passing)?;
            if !forgotten {
                self.ledger.note(&uri, 0, 0, true).map_err(passing)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, feed: &str, data: Vec<u8>) -> std::result::Result<u64, AppendError> {
        let name = FeedName {
            feed,
            namespace: Some(self.desk.namespace),
        };
        let draft = Draft {
            timestamp_ms: self.now_ms,
            data,
        };
        let held = self.batch.write_one(&name, self.desk.author, &draft)?;
        let position = held.position.ok_or(StoreError::Damaged(
            "a replica of another log cannot publish",
        ))?;
        self.told.feeds.insert(feed.to_owned());
        self.told.blocks += 1;
        self.told.position_max = position;
        Ok(position)
    }

    /// Take the payload from every block that tells of `uri`, and forget them.
    fn withdraw(&mut self, uri: &str) -> Result<()> {
        let connection = self.ledger.connection;
        for position in self.ledger.positions(uri)? {
            let sql = "SELECT blockId FROM blocks WHERE spacePrivateId = ?1 AND position = ?2";
            let block: Option<i64> = connection
                .prepare_cached(sql)?
                .query_row(params![self.space, signed(position)], |row| row.get(0))
                .optional()?;
            if let Some(block) = block {
                learn::purge_row(connection, block)?;
            }
            self.ledger.forget(uri, position)?;
        }
        Ok(())
    }
}

/// The table of what is known of each URI.
struct Ledger<'a> {
    connection: &'a Connection,
    space: &'a str,
}

impl Ledger<'_> {
    fn latest(&self, uri: &str) -> Result<Option<Latest>> {
        let sql = "SELECT rev, live, position FROM published WHERE spaceId = ?1 AND uri = ?2 \
                   ORDER BY position DESC LIMIT 1";
        self.connection
            .prepare_cached(sql)?
            .query_row([self.space, uri], |row| {
                Ok(Latest {
                    rev: row.get::<_, i64>(0)?.cast_unsigned(),
                    live: row.get(1)?,
                    position: number(row, 2)?,
                })
            })
            .optional()
    }

    fn note(&self, uri: &str, position: u64, rev: u64, live: bool) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO published (spaceId, uri, position, rev, live) VALUES (?1, ?2, ?3, ?4, ?5)";
        let values = params![self.space, uri, signed(position), rev.cast_signed(), live];
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn forget(&self, uri: &str, position: u64) -> Result<()> {
        let sql = "DELETE FROM published WHERE spaceId = ?1 AND uri = ?2 AND position = ?3";
        let values = params![self.space, uri, signed(position)];
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn positions(&self, uri: &str) -> Result<Vec<u64>> {
        let sql = "SELECT position FROM published WHERE spaceId = ?1 AND uri = ?2";
        self.connection
            .prepare_cached(sql)?
            .query_map([self.space, uri], |row| number(row, 0))?
            .collect()
    }

    fn of_account(&self, did: &str) -> Result<Vec<String>> {
        let (low, high) = range(did);
        let sql = "SELECT DISTINCT uri FROM published WHERE spaceId = ?1 AND uri > ?2 AND uri < ?3";
        self.connection
            .prepare_cached(sql)?
            .query_map(params![self.space, low, high], |row| row.get(0))?
            .collect()
    }
}
