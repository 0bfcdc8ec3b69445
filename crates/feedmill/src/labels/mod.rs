//! Labels: what labelers say of records and accounts.
//!
//! In:    the streams of the labelers that the configuration names.
//! Out:   for a subject and some labelers, their labels as clients see them.
//! Never: a label that was taken back, has ended, or is of another version of
//!        the record; a labeler's word that he did not sign, where that is asked.
//!
//! They stand in a file of their own beside the store: they come by streams of
//! their own, and a record is the same with or without them. Of what a labeler
//! says of a subject with one word, the newest counts.

// One label.
mod label;
// The stream of one labeler.
mod listen;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OptionalExtension as _, params};

use crate::clock::Micros;
use crate::config::Config;
use crate::store::StoreError;

pub use label::{Label, LabelError};
pub use listen::Listener;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS labelers (
    number INTEGER PRIMARY KEY, did TEXT NOT NULL UNIQUE, cursor INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS labels (
    uri TEXT NOT NULL, labeler INTEGER NOT NULL, word TEXT NOT NULL,
    made_us INTEGER NOT NULL, ends_us INTEGER, negated INTEGER NOT NULL, cid TEXT, json TEXT NOT NULL,
    PRIMARY KEY (uri, labeler, word)) WITHOUT ROWID;";

/// Labels kept.
#[derive(Debug)]
pub struct Labels {
    /// One connection: a lookup is a few seeks.
    connection: Mutex<Connection>,
    settings: crate::config::Labels,
}

/// What labels are looked up for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub uri: &'a str,
    /// The version shown, of a record.
    pub cid: Option<&'a str>,
}

impl Labels {
    /// The labels of a configuration; `None` if it names no labeler.
    pub fn open(config: &Config) -> Result<Option<Arc<Self>>, StoreError> {
        let settings = config.labels.clone();
        if settings.sources.is_empty() {
            return Ok(None);
        }
        let connection = match config.store.url.strip_prefix("sqlite://") {
            Some(path) => Connection::open(PathBuf::from(path).with_extension("labels.db")),
            None => Connection::open_in_memory(),
        };
        let prepare = |connection: Connection| -> Result<Connection, Error> {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.busy_timeout(std::time::Duration::from_secs(30))?;
            connection.execute_batch(SCHEMA)?;
            for source in &settings.sources {
                let sql = "INSERT OR IGNORE INTO labelers (did, cursor) VALUES (?1, 0)";
                connection.execute(sql, [&source.did])?;
            }
            Ok(connection)
        };
        let connection = connection.and_then(prepare).map_err(passing)?;
        Ok(Some(Arc::new(Self {
            connection: Mutex::new(connection),
            settings,
        })))
    }

    /// How far a labeler's stream is kept.
    pub fn cursor(&self, did: &str) -> Result<i64, StoreError> {
        let sql = "SELECT cursor FROM labelers WHERE did = ?1";
        let connection = self.connection.lock();
        let found = connection.query_row(sql, [did], |row| row.get(0));
        Ok(found.optional().map_err(passing)?.unwrap_or(0))
    }

    /// Keeps what a labeler said, and how far that is in its stream.
    pub fn keep(&self, did: &str, seq: i64, labels: &[Label]) -> Result<(), StoreError> {
        let mut connection = self.connection.lock();
        kept(&mut connection, did, seq, labels).map_err(passing)
    }

    /// The labelers of a request: those it names and we know, or the usual ones.
    pub fn applied(&self, named: Option<&[String]>) -> Vec<String> {
        let known = |did: &&String| self.settings.sources.iter().any(|it| it.did == **did);
        let mut applied = match named {
            Some(named) => named.iter().filter(known).cloned().collect(),
            None => self.settings.usual(),
        };
        applied.truncate(self.settings.per_request_max);
        applied
    }

    /// What these labelers say of a subject now, each label as clients see it.
    pub fn of(
        &self,
        subject: Subject<'_>,
        labelers: &[String],
        now_us: Micros,
    ) -> Result<Vec<String>, StoreError> {
        let connection = self.connection.lock();
        shown(&connection, subject, labelers, now_us).map_err(passing)
    }
}

fn kept(connection: &mut Connection, did: &str, seq: i64, labels: &[Label]) -> Result<(), Error> {
    let transaction = connection.transaction()?;
    let sql = "SELECT number FROM labelers WHERE did = ?1";
    let number: i64 = transaction.query_row(sql, [did], |row| row.get(0))?;
    {
        let mut put = transaction.prepare_cached(
            "INSERT INTO labels VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT DO UPDATE SET made_us = excluded.made_us, ends_us = excluded.ends_us,
                negated = excluded.negated, cid = excluded.cid, json = excluded.json
             WHERE excluded.made_us >= made_us",
        )?;
        for label in labels {
            put.execute(params![
                label.uri,
                number,
                label.word,
                label.made_us,
                label.ends_us,
                label.negated,
                label.cid,
                label.json,
            ])?;
        }
    }
    let sql = "UPDATE labelers SET cursor = ?2 WHERE number = ?1";
    transaction.execute(sql, [number, seq])?;
    transaction.commit()
}

fn shown(
    connection: &Connection,
    subject: Subject<'_>,
    labelers: &[String],
    now_us: Micros,
) -> Result<Vec<String>, Error> {
    let mut query = connection.prepare_cached(
        "SELECT labelers.did, labels.json FROM labels JOIN labelers ON labelers.number = labels.labeler
         WHERE uri = ?1 AND NOT negated AND (ends_us IS NULL OR ends_us > ?2) AND (cid IS NULL OR cid = ?3)",
    )?;
    let rows = query.query_map(params![subject.uri, now_us, subject.cid], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (did, json) = row?;
        if labelers.contains(&did) {
            found.push(json);
        }
    }
    Ok(found)
}

fn passing(error: Error) -> StoreError {
    StoreError::Passing(format!("labels: {error}"))
}
