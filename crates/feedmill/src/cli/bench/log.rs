//! `bench log`: appending and reading, from few blocks to ten million.
//!
//! The shape is the capacity the log was designed for: a thousand feeds of ten
//! thousand blocks. Beside it stands SQLite itself: the same rows, the unique
//! indexes of the same public schema, one prepared statement, one transaction
//! per call, the same settings, nothing hashed and nothing checked. Both files
//! are on disk and both commits are durable.

use blocklog::block::{Block, Payload, Predecessor};
use blocklog::chain::Sealed;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::{LogStore as _, Role};
use rusqlite::{Connection, params};
use sim::rng::Rng;

use super::meter::cpu_s;
use super::{Ending, Report};
use crate::replicate::sqlite::SqliteLog;

const SPACE: &str = "bench";
const FEEDS: u64 = 1000;
/// Blocks per call that are measured.
const SIZES: [usize; 3] = [1, 50, 1000];
/// Blocks held when appends are compared with SQLite.
const COMPARED_AT: u64 = 1_000_000;

/// A folder that goes when the bench does.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let name = format!("feedmill-bench-log-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is a nuisance, not a wrong figure.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A world of feeds that both sides write.
struct Writer {
    rng: Rng,
    tips: Vec<Option<Sealed>>,
    written: u64,
}

impl Writer {
    fn new() -> Self {
        Self {
            rng: Rng::new(20261116),
            tips: vec![None; FEEDS as usize],
            written: 0,
        }
    }

    /// The next blocks, of feeds drawn at random. Hashing them is part of appending.
    fn next(&mut self, count: usize, hashing: &mut f64) -> Vec<Sealed> {
        let mut sealed = Vec::with_capacity(count);
        for _ in 0..count {
            let feed = self.rng.below(FEEDS) as usize;
            let tip = self.tips.get(feed).and_then(Option::as_ref);
            let mut data = vec![0u8; 200];
            for (index, byte) in data.iter_mut().enumerate() {
                *byte = (self.written as usize).wrapping_mul(31).wrapping_add(index) as u8;
            }
            let block = Block {
                feed: format!("01H1FEED{feed:018}"),
                actor: format!("01H1ACTOR{feed:017}"),
                sequence: tip.map_or(1, |tip| tip.block.sequence + 1),
                predecessor: tip.map(|tip| Predecessor {
                    sequence: tip.block.sequence,
                    actor: tip.block.actor.clone(),
                    hash: Some(tip.hash),
                }),
                timestamp_ms: 1_790_000_000_000 + self.written,
                payload: Payload::Bytes(data),
                signature: None,
            };
            let before = cpu_s();
            let block = Sealed::new(SPACE, block);
            *hashing += cpu_s() - before;
            self.written += 1;
            if let Some(tip) = self.tips.get_mut(feed) {
                *tip = Some(block.clone());
            }
            sealed.push(block);
        }
        sealed
    }
}

/// The log under test.
struct Ours {
    store: SqliteLog,
    limits: Limits,
    writer: Writer,
}

impl Ours {
    fn open(path: &std::path::Path) -> Result<Self, Ending> {
        let store = SqliteLog::open(path)?;
        store.open(SPACE, Role::Authority, Epoch([7; 16]))?;
        Ok(Self {
            store,
            limits: Limits::default(),
            writer: Writer::new(),
        })
    }

    fn fill(&mut self, total: u64) -> Result<(), Ending> {
        while self.writer.written < total {
            let left = usize::try_from(total - self.writer.written).unwrap_or(usize::MAX);
            let blocks = self.writer.next(left.min(1000), &mut 0.0);
            self.store.append(SPACE, None, &blocks, 1, &self.limits)?;
        }
        Ok(())
    }

    /// CPU-seconds per block, hashing included, and blocks written.
    fn append(&mut self, size: usize, calls: usize) -> Result<f64, Ending> {
        let mut spent = 0.0;
        for _ in 0..calls {
            let blocks = self.writer.next(size, &mut spent);
            let before = cpu_s();
            self.store.append(SPACE, None, &blocks, 1, &self.limits)?;
            spent += cpu_s() - before;
        }
        Ok(spent / (calls * size) as f64)
    }

    /// CPU-seconds per page of 50: of the space, of one feed, of twenty feeds, and at the tail.
    fn pages(&self, rounds: u64) -> Result<[f64; 4], Ending> {
        let mut rng = Rng::new(7);
        let total = self.writer.written;
        let mut spent = [0.0; 4];
        for round in 0..rounds + 20 {
            let feed = |rng: &mut Rng| format!("01H1FEED{:018}", rng.below(FEEDS));
            let some = (0..20).map(|_| feed(&mut rng)).collect();
            let one = vec![feed(&mut rng)];
            let anywhere = rng.below(total.saturating_sub(50).max(1));
            let questions = [
                (Selection::Space, anywhere),
                (Selection::Feeds(one.clone()), anywhere),
                (Selection::Feeds(some), anywhere),
                (Selection::Space, total.saturating_sub(50)),
            ];
            for ((selection, after), spent) in questions.into_iter().zip(&mut spent) {
                let start = Start {
                    after,
                    pending: PendingStart::Excluded,
                };
                let max = PageMax {
                    blocks: 50,
                    bytes: 4 << 20,
                };
                let before = cpu_s();
                let page = self.store.page(SPACE, &selection, &start, max)?;
                let took = cpu_s() - before;
                if round >= 20 {
                    *spent += took / rounds as f64;
                }
                drop(page);
            }
        }
        Ok(spent)
    }
}

/// SQLite alone, with the same rows.
struct Raw {
    connection: Connection,
    writer: Writer,
}

impl Raw {
    fn open(path: &std::path::Path) -> Result<Self, Ending> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        connection.pragma_update(None, "wal_autocheckpoint", 16_000)?;
        connection.pragma_update(None, "mmap_size", 16i64 << 30)?;
        connection.execute_batch(
            "CREATE TABLE blocks (blockId INTEGER PRIMARY KEY, feedPrivateId INTEGER NOT NULL, position INTEGER,
                 sequence INTEGER NOT NULL, actorId TEXT NOT NULL, predSequence INTEGER, predActorId TEXT, predHash BLOB,
                 timestamp INTEGER NOT NULL, data BLOB, hash BLOB NOT NULL) STRICT;
             CREATE UNIQUE INDEX byPosition ON blocks (feedPrivateId, position);
             CREATE UNIQUE INDEX byKey ON blocks (feedPrivateId, sequence, actorId);",
        )?;
        Ok(Self {
            connection,
            writer: Writer::new(),
        })
    }

    fn write(&mut self, blocks: &[Sealed]) -> Result<(), rusqlite::Error> {
        let first = self.writer.written - blocks.len() as u64;
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO blocks (feedPrivateId, position, sequence, actorId, predSequence, predActorId, predHash,
                 timestamp, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (sealed, position) in blocks.iter().zip(first + 1..) {
                let block = &sealed.block;
                let feed: i64 = block
                    .feed
                    .get(8..)
                    .and_then(|digits| digits.parse().ok())
                    .unwrap_or(0);
                let before = block.predecessor.as_ref();
                let data = match &block.payload {
                    Payload::Bytes(bytes) => bytes.as_slice(),
                    Payload::Purged { .. } => &[],
                };
                insert.execute(params![
                    feed,
                    position.cast_signed(),
                    block.sequence.cast_signed(),
                    block.actor,
                    before.map(|before| before.sequence.cast_signed()),
                    before.map(|before| before.actor.as_str()),
                    before
                        .and_then(|before| before.hash.as_ref())
                        .map(|hash| hash.bytes().as_slice()),
                    block.timestamp_ms.cast_signed(),
                    data,
                    sealed.hash.bytes().as_slice(),
                ])?;
            }
        }
        transaction.commit()
    }

    fn fill(&mut self, total: u64) -> Result<(), Ending> {
        while self.writer.written < total {
            let left = usize::try_from(total - self.writer.written).unwrap_or(usize::MAX);
            let blocks = self.writer.next(left.min(1000), &mut 0.0);
            self.write(&blocks)?;
        }
        Ok(())
    }

    fn append(&mut self, size: usize, calls: usize) -> Result<f64, Ending> {
        let mut spent = 0.0;
        for _ in 0..calls {
            let blocks = self.writer.next(size, &mut 0.0);
            let before = cpu_s();
            self.write(&blocks)?;
            spent += cpu_s() - before;
        }
        Ok(spent / (calls * size) as f64)
    }
}

/// How many calls of a size are measured.
fn calls(size: usize) -> usize {
    match size {
        1 => 2000,
        50 => 400,
        _ => 60,
    }
}

/// Appends of every size, ours and SQLite's by turns, so that both meet the same machine.
fn compare(report: &mut Report, ours: &mut Ours, raw: &mut Raw) -> Result<(), Ending> {
    let mut worst = f64::MAX;
    for size in SIZES {
        let (mut us, mut them) = (f64::MAX, f64::MAX);
        for _ in 0..4 {
            us = us.min(ours.append(size, calls(size) / 4)?);
            them = them.min(raw.append(size, calls(size) / 4)?);
        }
        report.figure(&format!("append_{size}_us"), us * 1e6);
        report.figure(&format!("sqlite_{size}_us"), them * 1e6);
        report.ratio(&format!("append_{size}_vs_sqlite"), them / us);
        worst = worst.min(them / us);
    }
    report.ratio("append_vs_sqlite", worst);
    report.at_least(
        "append against SQLite, the worst of 1, 50, 1000 per call",
        worst,
        0.5,
    );
    Ok(())
}

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let full = (10_000_000.0 * scale) as u64;
    let few = full.min(10_000);
    let folder = Folder::new()?;
    let mut report = Report {
        workload: format!(
            "{FEEDS} feeds, up to {full} blocks of 200 bytes, predecessors and hashes in all; pages of 50"
        ),
        ..Report::default()
    };
    let mut ours = Ours::open(&folder.0.join("log.db"))?;
    let mut raw = Raw::open(&folder.0.join("raw.db"))?;
    ours.fill(few)?;
    let small = ours.pages(400)?;
    let compared_at = COMPARED_AT.min(full);
    ours.fill(compared_at)?;
    raw.fill(compared_at)?;
    compare(&mut report, &mut ours, &mut raw)?;
    let at_middle = ours.append(1000, 20)?;
    drop(raw);
    ours.fill(full)?;
    let at_end = ours.append(1000, 20)?;
    let large = ours.pages(400)?;
    let mut worst: f64 = 0.0;
    for (name, (few, many)) in ["space", "feed", "twenty_feeds", "tail"]
        .into_iter()
        .zip(small.into_iter().zip(large))
    {
        report.figure(&format!("page_{name}_10k_us"), few * 1e6);
        report.figure(&format!("page_{name}_10m_us"), many * 1e6);
        report.ratio(&format!("page_{name}_10m_vs_10k"), many / few);
        worst = worst.max(many / few);
    }
    report.ratio("page_10m_vs_10k", worst);
    report.ratio("append_10m_vs_1m", at_end / at_middle);
    report.at_most(
        "a page at ten million against ten thousand, the worst of space, feed, feeds, tail",
        worst,
        1.5,
    );
    let bytes = std::fs::metadata(folder.0.join("log.db")).map_or(0, |file| file.len());
    report.figure("bytes_per_block", bytes as f64 / ours.writer.written as f64);
    Ok(report)
}
