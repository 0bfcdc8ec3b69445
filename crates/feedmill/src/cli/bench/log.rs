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

use super::folder::Folder;
use super::meter::cpu_s;
use super::{Ending, Report, log_http};
use replicate::sqlite::SqliteLog;

const SPACE: &str = "bench";
/// Feeds of the large log.
const FEEDS: u64 = 1000;
/// Small logs whose pages are compared: feeds, so few that each has more than a page, and blocks.
const SMALL: [(&str, u64, u64); 2] = [("1k", 4, 1_000), ("10k", 10, 10_000)];
/// What pages are read of.
const KINDS: [&str; 4] = ["space", "feed", "ten_feeds", "tail"];
/// Places at which pages are read, and how often each is read after the first time.
const PLACES: u64 = 500;
const ROUNDS: usize = 12;
/// A call that appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    blocks: usize,
    /// All of one feed, as who writes one appends; else each of another, as who gathers many.
    one_feed: bool,
}

impl Call {
    const fn of_many(blocks: usize) -> Self {
        let one_feed = false;
        Self { blocks, one_feed }
    }

    const fn of_one(blocks: usize) -> Self {
        let one_feed = true;
        Self { blocks, one_feed }
    }

    /// How its figures are named.
    fn name(self) -> String {
        let feeds = if self.one_feed { "_of_one_feed" } else { "" };
        format!("{}{feeds}", self.blocks)
    }
}

/// Calls that are measured.
const CALLS: [Call; 5] = [
    Call::of_many(1),
    Call::of_many(50),
    Call::of_many(1000),
    Call::of_one(50),
    Call::of_one(1000),
];
/// The call that must cost as much in a large log as in a small one.
const FLAT: Call = Call::of_many(50);
/// Blocks held when appends are compared with SQLite, and in how many turns.
const STANDS: [(&str, u64); 4] = [
    ("1k", 1_000),
    ("10k", 10_000),
    ("1m", 1_000_000),
    ("10m", 10_000_000),
];
const TURNS: usize = 4;

/// A world of feeds that both sides write.
struct Writer {
    feeds: u64,
    rng: Rng,
    tips: Vec<Option<Sealed>>,
    written: u64,
}

impl Writer {
    fn new(feeds: u64) -> Self {
        Self {
            feeds,
            rng: Rng::new(20261116),
            tips: vec![None; feeds as usize],
            written: 0,
        }
    }

    /// The next blocks of a call.
    fn next(&mut self, call: Call) -> Vec<Sealed> {
        let mut feed = self.feed();
        let block = |at: usize| {
            if at > 0 && !call.one_feed {
                feed = self.feed();
            }
            self.next_one(feed)
        };
        (0..call.blocks).map(block).collect()
    }

    /// A feed drawn at random; each begins before any goes on.
    fn feed(&mut self) -> usize {
        let feed = match self.written < self.feeds {
            true => self.written,
            false => self.rng.below(self.feeds),
        };
        feed as usize
    }

    fn next_one(&mut self, feed: usize) -> Sealed {
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
        let block = Sealed::new(SPACE, block);
        self.written += 1;
        if let Some(tip) = self.tips.get_mut(feed) {
            *tip = Some(block.clone());
        }
        block
    }
}

/// The log under test.
struct Ours {
    store: SqliteLog,
    limits: Limits,
    writer: Writer,
}

impl Ours {
    fn open(path: &std::path::Path, feeds: u64) -> Result<Self, Ending> {
        let store = SqliteLog::open(path)?;
        store.open(SPACE, Role::Authority, Epoch([7; 16]))?;
        Ok(Self {
            store,
            limits: Limits::default(),
            writer: Writer::new(feeds),
        })
    }

    fn fill(&mut self, total: u64) -> Result<(), Ending> {
        while self.writer.written < total {
            let left = usize::try_from(total - self.writer.written).unwrap_or(usize::MAX);
            let blocks = self.writer.next(Call::of_many(left.min(1000)));
            self.store.append(SPACE, None, &blocks, 1, &self.limits)?;
        }
        Ok(())
    }

    /// CPU-seconds per block, hashing included.
    fn append(&mut self, call: Call, calls: usize) -> Result<f64, Ending> {
        let batches: Vec<Vec<Sealed>> = (0..calls).map(|_| self.writer.next(call)).collect();
        let before = cpu_s();
        for blocks in &batches {
            for sealed in blocks {
                std::hint::black_box(sealed.block.hash(SPACE));
            }
            self.store.append(SPACE, None, blocks, 1, &self.limits)?;
        }
        Ok((cpu_s() - before) / (calls * call.blocks) as f64)
    }

    /// Where pages of 50 are read, by kind: of the space, of one feed, of ten feeds, at the tail.
    fn places(&self) -> [Vec<(Selection, u64)>; 4] {
        let mut rng = Rng::new(7);
        let (total, feeds) = (self.writer.written, self.writer.feeds);
        let mut places = |of: usize, tail: bool| -> Vec<(Selection, u64)> {
            let place = |_| {
                let feed = |_| format!("01H1FEED{:018}", rng.below(feeds));
                let selection = match of {
                    0 => Selection::Space,
                    of => Selection::Feeds((0..of).map(feed).collect()),
                };
                let anywhere = rng.below((total / 2).max(1));
                let after = if tail {
                    total.saturating_sub(50)
                } else {
                    anywhere
                };
                (selection, after)
            };
            (0..PLACES).map(place).collect()
        };
        [
            places(0, false),
            places(1, false),
            places(10, false),
            places(0, true),
        ]
    }

    /// CPU-seconds of one page at each place.
    fn round(&self, places: &[(Selection, u64)]) -> Result<f64, Ending> {
        let max = PageMax {
            blocks: 50,
            bytes: 4 << 20,
        };
        let before = cpu_s();
        for (selection, after) in places {
            let start = Start {
                after: *after,
                pending: PendingStart::Excluded,
            };
            let page = self.store.page(SPACE, selection, &start, max)?;
            if page.blocks.len() != 50 {
                let found = page.blocks.len();
                return Err(format!("a page of {found} blocks is no page of 50").into());
            }
        }
        Ok(cpu_s() - before)
    }
}

/// CPU-seconds per page of every kind in some logs, by turns, so that all meet the same machine.
/// Each place is read once to warm it, and then the best of some rounds counts: what is compared
/// is the work of a page, not how much of a file the processor happens to hold.
fn pages(logs: &[&Ours]) -> Result<Vec<[f64; 4]>, Ending> {
    let places: Vec<_> = logs.iter().map(|log| log.places()).collect();
    let mut spent = vec![[f64::MAX; 4]; logs.len()];
    for kind in 0..KINDS.len() {
        for round in 0..=ROUNDS {
            for ((log, places), spent) in logs.iter().zip(&places).zip(&mut spent) {
                let (Some(places), Some(best)) = (places.get(kind), spent.get_mut(kind)) else {
                    continue;
                };
                let cost = log.round(places)? / PLACES as f64;
                if round > 0 {
                    *best = best.min(cost);
                }
            }
        }
    }
    Ok(spent)
}

/// SQLite alone, with the same rows.
struct Raw {
    connection: Connection,
    writer: Writer,
}

impl Raw {
    fn open(path: &std::path::Path, feeds: u64) -> Result<Self, Ending> {
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
            writer: Writer::new(feeds),
        })
    }

    fn write(&mut self, blocks: &[Sealed], first: u64) -> Result<(), rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO blocks (feedPrivateId, position, sequence, actorId, predSequence, predActorId, predHash,
                 timestamp, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (sealed, position) in blocks.iter().zip(first..) {
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
            let blocks = self.writer.next(Call::of_many(left.min(1000)));
            let first = self.writer.written - blocks.len() as u64 + 1;
            self.write(&blocks, first)?;
        }
        Ok(())
    }

    fn append(&mut self, call: Call, calls: usize) -> Result<f64, Ending> {
        let size = call.blocks;
        let mut spent = 0.0;
        for _ in 0..calls.div_ceil(100) {
            let some = calls.min(100);
            let batches: Vec<Vec<Sealed>> = (0..some).map(|_| self.writer.next(call)).collect();
            let mut first = self.writer.written - (some * size) as u64 + 1;
            let before = cpu_s();
            for blocks in &batches {
                self.write(blocks, first)?;
                first += size as u64;
            }
            spent += (cpu_s() - before) / some as f64;
        }
        Ok(spent / calls.div_ceil(100) as f64 / size as f64)
    }
}

/// How many calls of a size are measured in a log of so many blocks: it must not grow much by them.
fn calls(size: usize, blocks: u64) -> usize {
    let calls = match size {
        1 => 2000,
        50 => 400,
        _ => 60,
    };
    calls.min(blocks as usize / size / 2)
}

/// What one block costs in calls of one kind.
#[derive(Debug)]
struct Append {
    call: Call,
    ours_s: f64,
    /// The same, of all turns instead of the best.
    ours_mean_s: f64,
    sqlite_s: f64,
}

/// Appends of every kind at one stand of the log, ours and SQLite's by turns, so that both meet
/// the same machine.
fn appends(ours: &mut Ours, raw: &mut Raw, blocks: u64) -> Result<Vec<Append>, Ending> {
    let mut appends = Vec::new();
    for call in CALLS {
        let calls = calls(call.blocks, blocks) / TURNS;
        if calls == 0 {
            continue;
        }
        let (mut ours_s, mut sqlite_s) = (f64::MAX, f64::MAX);
        let mut ours_sum_s = 0.0;
        for _ in 0..TURNS {
            let turn_s = ours.append(call, calls)?;
            ours_sum_s += turn_s;
            ours_s = ours_s.min(turn_s);
            sqlite_s = sqlite_s.min(raw.append(call, calls)?);
        }
        appends.push(Append {
            call,
            ours_s,
            ours_mean_s: ours_sum_s / TURNS as f64,
            sqlite_s,
        });
    }
    Ok(appends)
}

fn tell_appends(report: &mut Report, stands: &[(&str, Vec<Append>)]) {
    let (mut worst, mut worst_of_one) = (f64::MAX, f64::MAX);
    for (stand, appends) in stands {
        for append in appends {
            let (call, ratio) = (append.call.name(), append.sqlite_s / append.ours_s);
            report.figure(&format!("append_{call}_at_{stand}_us"), append.ours_s * 1e6);
            let mean = append.ours_mean_s;
            report.figure(&format!("append_{call}_at_{stand}_mean_us"), mean * 1e6);
            report.figure(
                &format!("sqlite_{call}_at_{stand}_us"),
                append.sqlite_s * 1e6,
            );
            report.ratio(&format!("append_{call}_at_{stand}_vs_sqlite"), ratio);
            let worst = match append.call.one_feed {
                true => &mut worst_of_one,
                false => &mut worst,
            };
            *worst = worst.min(ratio);
        }
    }
    report.ratio("append_vs_sqlite", worst);
    report.ratio("append_of_one_feed_vs_sqlite", worst_of_one);
    let what = "append against SQLite, the worst of 1, 50, 1000 per call from few blocks to all";
    report.at_least(what, worst, 0.5);
    tell_flatness(report, stands);
}

/// What appends cost in the largest log against what they cost in one of ten thousand blocks.
fn tell_flatness(report: &mut Report, stands: &[(&str, Vec<Append>)]) {
    for call in CALLS {
        let of = |wanted: &str| {
            let (_, appends) = stands.iter().find(|(stand, _)| *stand == wanted)?;
            appends.iter().find(|append| append.call == call)
        };
        let fewest = STANDS.iter().find_map(|(stand, _)| of(stand));
        let (Some(few), Some(many)) = (of("10k"), of("10m")) else {
            continue;
        };
        let name = call.name();
        let ratio = many.ours_s / few.ours_s;
        report.ratio(&format!("append_{name}_10m_vs_10k"), ratio);
        if let Some(fewest) = fewest {
            let ratio = many.ours_s / fewest.ours_s;
            report.ratio(&format!("append_{name}_most_vs_fewest"), ratio);
        }
        report.ratio(
            &format!("sqlite_{name}_10m_vs_10k"),
            many.sqlite_s / few.sqlite_s,
        );
        report.ratio(
            &format!("append_{name}_10m_mean_vs_best"),
            many.ours_mean_s / many.ours_s,
        );
        if call == FLAT {
            let what =
                "an append of fifty blocks to fifty feeds at ten million against ten thousand";
            report.at_most(what, ratio, 1.5);
        }
    }
    report.notes.push(
        "appends: as many feeds at every stand. Of every call a share is paid that writes the order of feeds for earlier blocks, about as much as it leaves to later calls. These may be of another kind, and copying pages into the file falls on some turns only: so the mean of all turns is told beside the best".into(),
    );
}

/// The cost of pages in logs of every size, and that of the largest against that of ten thousand blocks.
fn tell_pages(report: &mut Report, pages: &[(&str, [f64; 4])]) {
    let mut worst: f64 = 0.0;
    for (index, kind) in KINDS.iter().enumerate() {
        let cost = |costs: &[f64; 4]| costs.get(index).copied().unwrap_or(f64::NAN);
        let of = |wanted: &str| pages.iter().find(|(name, _)| *name == wanted);
        for (name, costs) in pages {
            report.figure(&format!("page_{kind}_{name}_us"), cost(costs) * 1e6);
        }
        if let (Some((_, many)), Some((_, few))) = (of("10m"), of("10k")) {
            let ratio = cost(many) / cost(few);
            report.ratio(&format!("page_{kind}_10m_vs_10k"), ratio);
            worst = worst.max(ratio);
        }
    }
    report.ratio("page_10m_vs_10k", worst);
    report.at_most(
        "a page at ten million against ten thousand, the worst of space, feed, feeds, tail",
        worst,
        1.5,
    );
}

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let full = (10_000_000.0 * scale) as u64;
    let folder = Folder::new("log")?;
    let mut report = Report {
        workload: format!(
            "{FEEDS} feeds, up to {full} blocks of 200 bytes, predecessors and hashes in all; pages of 50"
        ),
        ..Report::default()
    };
    let mut ours = Ours::open(&folder.join("log.db"), FEEDS)?;
    let mut raw = Raw::open(&folder.join("raw.db"), FEEDS)?;
    let mut stands = Vec::new();
    for (name, blocks) in STANDS {
        let blocks = blocks.min(full);
        ours.fill(blocks)?;
        raw.fill(blocks)?;
        stands.push((name, appends(&mut ours, &mut raw, blocks)?));
    }
    tell_appends(&mut report, &stands);
    drop(raw);
    let mut small = Vec::new();
    for (name, feeds, blocks) in SMALL {
        let mut log = Ours::open(&folder.join(format!("{name}.db")), feeds)?;
        log.fill(blocks)?;
        small.push(log);
    }
    let names = SMALL.map(|(name, ..)| name);
    let costs = pages(&small.iter().chain([&ours]).collect::<Vec<_>>())?;
    let all: Vec<_> = names.into_iter().chain(["10m"]).zip(costs).collect();
    tell_pages(&mut report, &all);
    let bytes = std::fs::metadata(folder.join("log.db")).map_or(0, |file| file.len());
    report.figure("bytes_per_block", bytes as f64 / ours.writer.written as f64);
    drop(ours);
    log_http::run(&mut report, &folder, scale)?;
    Ok(report)
}
