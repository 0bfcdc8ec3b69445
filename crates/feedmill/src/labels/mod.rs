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

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OptionalExtension as _, params};
use tracing::warn;

use crate::clock::Micros;
use crate::config::Config;
use crate::file;
use crate::metrics as names;
use crate::store::StoreError;
use crate::store::attempt::Attempt;
use crate::wal::Wal;

pub use label::{Label, LabelError};
pub use listen::Listener;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS labelers (
    number INTEGER PRIMARY KEY, did TEXT NOT NULL UNIQUE, cursor INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS labels (
    uri TEXT NOT NULL, labeler INTEGER NOT NULL, word TEXT NOT NULL,
    made_us INTEGER NOT NULL, ends_us INTEGER, negated INTEGER NOT NULL, cid TEXT, json TEXT NOT NULL,
    PRIMARY KEY (uri, labeler, word)) WITHOUT ROWID;";

/// The version of the file.
const VERSION: i64 = 1;
const NEWER: &str = "the file was written by a newer version of feedmill; install that version, or remove the file: it is read again from the labelers";

/// Labels kept.
#[derive(Debug)]
pub struct Labels {
    /// `None` for labels in memory.
    file: Option<PathBuf>,
    kept: Mutex<Kept>,
    wal_mib_max: u64,
    settings: crate::config::Labels,
}

#[derive(Debug)]
struct Kept {
    /// One connection: a lookup is a few seeks.
    connection: Connection,
    wal: Wal,
    /// Labelers whose streams have to be read again from their cursor: the file was made anew.
    anew: BTreeSet<String>,
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
        let file = config.store.labels_file();
        let wal_mib_max = config.store.wal_mib_max;
        let connection = match connect(file.as_deref(), &settings) {
            Err(error) => {
                discard(file.as_deref(), error).map_err(passing)?;
                connect(file.as_deref(), &settings).map_err(passing)?
            }
            Ok(connection) => connection,
        };
        let kept = Kept {
            wal: Wal::limit("labels", &connection, wal_mib_max).map_err(passing)?,
            connection,
            anew: BTreeSet::new(),
        };
        Ok(Some(Arc::new(Self {
            file,
            kept: Mutex::new(kept),
            wal_mib_max,
            settings,
        })))
    }

    /// Runs `work`. A damaged file is made anew, and the streams are read again.
    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> Result<T, Error>) -> Result<T, StoreError> {
        let mut kept = self.kept.lock();
        work(&mut kept).map_err(|error| {
            let text = error.to_string();
            let renewed = discard(self.file.as_deref(), error)
                .and_then(|()| connect(self.file.as_deref(), &self.settings))
                .and_then(|connection| {
                    let wal = Wal::limit("labels", &connection, self.wal_mib_max)?;
                    Ok((connection, wal))
                });
            if let Ok((connection, wal)) = renewed {
                (kept.connection, kept.wal) = (connection, wal);
                let all = self.settings.sources.iter();
                kept.anew = all.map(|source| source.did.clone()).collect();
            }
            StoreError::Passing(format!("labels: {text}"))
        })
    }

    /// Marks what is worked on of a labeler's stream; `None` for labels in memory.
    fn attempt(&self, did: &str) -> Option<Attempt> {
        let file = self.file.as_ref()?;
        Attempt::beside(&format!("sqlite://{}", file.display()), did)
    }

    /// How far a labeler's stream is kept.
    pub fn cursor(&self, did: &str) -> Result<i64, StoreError> {
        let sql = "SELECT cursor FROM labelers WHERE did = ?1";
        self.with(|kept| {
            let found = kept.connection.query_row(sql, [did], |row| row.get(0));
            let found = found.optional()?.unwrap_or(0);
            kept.anew.remove(did); // the stream is read from here on
            Ok(found)
        })
    }

    /// Keeps what a labeler said, and how far that is in its stream.
    pub fn keep(&self, did: &str, seq: i64, labels: &[Label]) -> Result<(), StoreError> {
        self.with(|held| match held.anew.contains(did) {
            true => Ok(false),
            false => {
                kept(&mut held.connection, did, seq, labels)?;
                held.wal.committed(&held.connection);
                Ok(true)
            }
        })
        .and_then(|is_kept| match is_kept {
            true => Ok(()),
            false => {
                let cause = "labels: the file was made anew; the stream is read again";
                Err(StoreError::Passing(cause.into()))
            }
        })
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
        self.with(|kept| shown(&kept.connection, subject, labelers, now_us))
    }
}

fn connect(file: Option<&Path>, settings: &crate::config::Labels) -> Result<Connection, Error> {
    let connection = match file {
        Some(path) => Connection::open(path)?,
        None => Connection::open_in_memory()?,
    };
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > VERSION {
        return Err(Error::ToSqlConversionFailure(NEWER.into()));
    }
    connection.execute_batch(SCHEMA)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    for source in &settings.sources {
        let sql = "INSERT OR IGNORE INTO labelers (did, cursor) VALUES (?1, 0)";
        connection.execute(sql, [&source.did])?;
    }
    Ok(connection)
}

/// Removes a damaged file: what it held is read again from the labelers' streams. Other errors are
/// returned.
fn discard(file: Option<&Path>, error: Error) -> Result<(), Error> {
    let Some(path) = file.filter(|_| file::is_damage(&error)) else {
        return Err(error);
    };
    if let Err(cause) = file::discard(path) {
        warn!(%cause, file = %path.display(), "a damaged file of labels cannot be removed");
        return Err(error);
    }
    warn!(%error, file = %path.display(), "the file of labels was damaged; the labelers' streams are read again");
    ::metrics::counter!(names::DERIVED_REBUILDS, "file" => "labels").increment(1);
    Ok(())
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
