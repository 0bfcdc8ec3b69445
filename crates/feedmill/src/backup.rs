//! Backups: every file of a configuration, copied while processes use them, and put back.
//!
//! In:    a configuration and a folder that does not exist yet; or a backup, and files that do not.
//! Out:   a folder with a copy of each file and a manifest; or the files.
//! Never: an existing file overwritten; a page copied twice, whatever is written meanwhile; a folder
//!        that looks like a backup and is incomplete or damaged.
//!
//! SQLite's backup interface begins again when somebody writes between two of its steps, so under
//! load it never ends. Here the source's connection holds a read transaction from the first step to
//! the last: every step reads the same snapshot, and there is nothing to begin again for.
//!
//! Each file is copied in a snapshot of its own. The search index and the log follow the store behind a
//! cursor, so they are copied before it: no cursor is ahead of the store's copy.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::clock::Micros;
use crate::config::Config;
use crate::file::{self, with_ending};
use crate::pause::chance;

/// The form of the manifest and the folder.
const FORMAT: u32 = 1;
const MANIFEST: &str = "backup.json";
/// Pages copied between two reports of progress.
const STEP_PAGES: i32 = if cfg!(debug_assertions) { 8 } else { 4096 };
/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Why a backup was not made or not put back. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store has no file.
    #[error("the store {0:?} is not a file, so there is nothing to copy")]
    InMemory(String),
    /// There is no store yet, or it is elsewhere.
    #[error("there is no file {}; start `feedmill run` once, or name the right store", .0.display())]
    Missing(PathBuf),
    /// Something is there already.
    #[error("{} exists and is not overwritten; move it away first, or choose another place", .0.display())]
    Exists(PathBuf),
    /// The folder holds no manifest.
    #[error("{} is not a backup: it has no {MANIFEST}", .0.display())]
    NotABackup(PathBuf),
    /// It was made by a later version of this program.
    #[error("the backup was made by version {0}; restore it with that version or a later one")]
    Newer(String),
    /// The configuration names no place for one of the files.
    #[error("the backup holds a log, and the configuration names no `log.file` to put it back to")]
    NoPlace,
    /// A copy is not what it was, or the source is not a sound database.
    #[error("{} is damaged: {cause}", file.display())]
    Damaged { file: PathBuf, cause: String },
    /// A database cannot be read or written.
    #[error("cannot copy {}", file.display())]
    Sql {
        file: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot read or write {}", file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// One of the files of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Search,
    Labels,
    Log,
    Store,
}

impl Kind {
    /// In the order in which they are copied: the store last, because others follow it.
    pub const ALL: [Self; 4] = [Self::Labels, Self::Search, Self::Log, Self::Store];

    /// Its name, as people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Labels => "labels",
            Self::Log => "log",
            Self::Store => "store",
        }
    }

    /// Where a configuration has it.
    fn path(self, config: &Config) -> Option<PathBuf> {
        match self {
            Self::Search => config.store.search_file(),
            Self::Labels => config.store.labels_file(),
            Self::Log => config.log.file.clone(),
            Self::Store => config.store.file(),
        }
    }

    fn copy_name(self) -> String {
        format!("{}.db", self.name())
    }
}

/// One file in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    pub kind: Kind,
    pub bytes: u64,
    pub sha256: String,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that made it.
    pub version: String,
    /// When.
    pub made: String,
    pub files: Vec<Copied>,
}

impl Manifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// How far a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub kind: Kind,
    pub bytes: u64,
    pub total: u64,
}

/// Whoever is shown the progress.
pub type Report<'a> = &'a mut dyn FnMut(Progress);

/// Copies every file of a configuration into a new folder. Processes may go on using them.
pub fn back_up(
    config: &Config,
    to: &Path,
    now_us: Micros,
    report: Report<'_>,
) -> Result<Manifest, BackupError> {
    let store = config.store.file();
    let store = store.ok_or_else(|| BackupError::InMemory(config.store.url.clone()))?;
    if !store.exists() {
        return Err(BackupError::Missing(store));
    }
    absent(to)?;
    // It has its name only once it is whole.
    let partial = with_ending(to, ".partial");
    absent(&partial)?;
    std::fs::create_dir(&partial).map_err(io_at(&partial))?;
    let made = fill(config, &partial, now_us, report).and_then(|manifest| {
        std::fs::rename(&partial, to).map_err(io_at(to))?;
        sync_folder_of(to)?;
        Ok(manifest)
    });
    if made.is_err() {
        // The cause matters more than a folder that cannot be removed.
        drop(std::fs::remove_dir_all(&partial));
    }
    made
}

fn fill(
    config: &Config,
    folder: &Path,
    now_us: Micros,
    report: Report<'_>,
) -> Result<Manifest, BackupError> {
    let mut manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        made: record::datetime::format_us(now_us),
        files: Vec::new(),
    };
    for kind in Kind::ALL {
        let Some(from) = kind.path(config).filter(|path| path.exists()) else {
            continue; // this configuration does not use it
        };
        let to = folder.join(kind.copy_name());
        copy(kind, &from, &to, report)?;
        sound(&to)?;
        let file = File::open(&to).map_err(io_at(&to))?;
        file.sync_all().map_err(io_at(&to))?;
        let (bytes, sha256) = read_through(&to, &mut |_| Ok(()))?;
        manifest.files.push(Copied {
            kind,
            bytes,
            sha256,
        });
    }
    let path = folder.join(MANIFEST);
    let text = serde_json::to_string_pretty(&manifest).map_err(io::Error::from);
    let written = text.and_then(|text| {
        let mut file = File::create(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(io_at(&path))?;
    Ok(manifest)
}

/// Copies a database as of one moment.
fn copy(kind: Kind, from: &Path, to: &Path, report: Report<'_>) -> Result<(), BackupError> {
    let source = Connection::open(from).map_err(sql_at(from))?;
    let patience = std::time::Duration::from_secs(30);
    source.busy_timeout(patience).map_err(sql_at(from))?;
    // The snapshot begins with the first read, and every step is made within it.
    source.execute_batch("BEGIN").map_err(sql_at(from))?;
    let page_bytes: u64 = source
        .query_row(
            "SELECT page_size FROM pragma_page_size, (SELECT count(*) FROM sqlite_schema)",
            [],
            |row| row.get::<_, i64>(0),
        )
        .map_err(sql_at(from))?
        .max(0)
        .cast_unsigned();
    let mut target = Connection::open(to).map_err(sql_at(to))?;
    // A copy that is not finished is thrown away, so nothing has to be undone; it is synced at the end.
    target
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        .map_err(sql_at(to))?;
    let backup = Backup::new(&source, &mut target).map_err(sql_at(from))?;
    loop {
        let step = backup.step(STEP_PAGES).map_err(sql_at(from))?;
        let progress = backup.progress();
        let pages = |count: std::ffi::c_int| u64::from(count.max(0).unsigned_abs()) * page_bytes;
        report(Progress {
            kind,
            bytes: pages(progress.pagecount - progress.remaining),
            total: pages(progress.pagecount),
        });
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Nobody else has the copy, and a reader of the source waits for nobody.
            _ => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
}

/// Refuses a copy of a damaged database: it would replace a good one some day.
fn sound(path: &Path) -> Result<(), BackupError> {
    let connection = Connection::open(path).map_err(sql_at(path))?;
    let checked = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    let cause = match checked {
        Ok(answer) if answer == "ok" => return Ok(()),
        Ok(answer) => answer,
        Err(error) => error.to_string(),
    };
    Err(BackupError::Damaged {
        file: path.to_owned(),
        cause,
    })
}

/// Puts every file of a backup back to where the configuration has it.
pub fn restore(config: &Config, from: &Path, report: Report<'_>) -> Result<Manifest, BackupError> {
    let manifest = manifest(from)?;
    let mut places = Vec::with_capacity(manifest.files.len());
    for copied in &manifest.files {
        let to = match copied.kind {
            Kind::Log => copied.kind.path(config).ok_or(BackupError::NoPlace)?,
            kind => {
                let in_memory = || BackupError::InMemory(config.store.url.clone());
                kind.path(config).ok_or_else(in_memory)?
            }
        };
        absent(&to)?;
        for companion in file::companions(&to) {
            absent(&companion)?; // it would be applied to the restored file
        }
        places.push((copied, to));
    }
    let put_back = put_all(from, &places, report);
    if put_back.is_err() {
        for (_, to) in &places {
            // It may not have come so far.
            drop(std::fs::remove_file(with_ending(to, ".restoring")));
        }
    }
    put_back.map(|()| manifest)
}

/// Copies and verifies everything before anything gets its name.
fn put_all(
    from: &Path,
    places: &[(&Copied, PathBuf)],
    report: Report<'_>,
) -> Result<(), BackupError> {
    for (copied, to) in places {
        put(from, copied, &with_ending(to, ".restoring"), report)?;
    }
    for (_, to) in places {
        std::fs::rename(with_ending(to, ".restoring"), to).map_err(io_at(to))?;
        sync_folder_of(to)?;
    }
    Ok(())
}

fn put(from: &Path, copied: &Copied, to: &Path, report: Report<'_>) -> Result<(), BackupError> {
    let source = from.join(copied.kind.copy_name());
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(io_at(folder))?;
    }
    let mut file = File::create(to).map_err(io_at(to))?;
    let mut done = 0u64;
    let (bytes, sha256) = read_through(&source, &mut |chunk| {
        file.write_all(chunk)?;
        done += chunk.len() as u64;
        report(Progress {
            kind: copied.kind,
            bytes: done,
            total: copied.bytes,
        });
        Ok(())
    })?;
    if (bytes, &sha256) != (copied.bytes, &copied.sha256) {
        return Err(BackupError::Damaged {
            file: source,
            cause: format!("it differs from what {MANIFEST} says; use another backup"),
        });
    }
    file.sync_all().map_err(io_at(to))?;
    match copied.kind {
        Kind::Store => begin_epoch(to),
        _ => Ok(()),
    }
}

/// Has a restored store count its changes from a position that it never gave out, also not in the
/// life that ends with this restore: consumers of that life notice that they have to begin anew.
fn begin_epoch(store: &Path) -> Result<(), BackupError> {
    let begin = || {
        let connection = Connection::open(store)?;
        connection.execute(
            "UPDATE epoch SET began = max(began, (SELECT coalesce(max(last), 0) FROM outbox)) + ?1",
            [epoch_length()],
        )?;
        connection.close().map_err(|(_, error)| error)
    };
    begin().map_err(sql_at(store))?;
    let file = File::open(store).map_err(io_at(store))?;
    file.sync_all().map_err(io_at(store))
}

/// How far the next epoch begins above the last position: by chance, so that two restores of one
/// backup differ too.
fn epoch_length() -> i64 {
    /// Dozens of restores stay below what JSON's numbers hold.
    const LENGTH_MAX: f64 = (1u64 << 47) as f64;
    /// More changes than a life that ends soon after a backup can have made.
    const LENGTH_MIN: i64 = 1 << 32;
    LENGTH_MIN + (chance() * LENGTH_MAX) as i64
}

fn manifest(folder: &Path) -> Result<Manifest, BackupError> {
    let path = folder.join(MANIFEST);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BackupError::NotABackup(folder.to_owned()));
        }
        read => read.map_err(io_at(&path))?,
    };
    let damaged = |error: serde_json::Error| BackupError::Damaged {
        file: path.clone(),
        cause: error.to_string(),
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    if format.is_some_and(|format| format > u64::from(FORMAT)) {
        let version = value.get("version").and_then(serde_json::Value::as_str);
        return Err(BackupError::Newer(version.unwrap_or("unknown").to_owned()));
    }
    serde_json::from_value(value).map_err(damaged)
}

/// Reads a whole file; returns its length and its hash.
fn read_through(
    path: &Path,
    chunk: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(u64, String), BackupError> {
    let mut read = || {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut bytes, mut hash) = (0u64, Sha256::new());
        loop {
            let count = file.read(&mut buffer)?;
            let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
                break;
            };
            hash.update(part);
            chunk(part)?;
            bytes += part.len() as u64;
        }
        let hex: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok((bytes, hex))
    };
    read().map_err(io_at(path))
}

fn absent(path: &Path) -> Result<(), BackupError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Err(BackupError::Exists(path.to_owned())),
        Err(_) => Ok(()), // what cannot be looked at cannot be written either, and that is reported then
    }
}

/// Makes a new name durable.
fn sync_folder_of(path: &Path) -> Result<(), BackupError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_at(folder))
}

fn io_at(file: &Path) -> impl Fn(io::Error) -> BackupError {
    move |source| BackupError::Io {
        file: file.to_owned(),
        source,
    }
}

fn sql_at(file: &Path) -> impl Fn(rusqlite::Error) -> BackupError {
    move |source| BackupError::Sql {
        file: file.to_owned(),
        source,
    }
}
