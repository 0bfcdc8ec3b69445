//! `bench intake`: raw firehose frames to committed rows, lexicons on, behind.
//!
//! The store is filled first, through the same checks and the same writer but
//! without frames. Then frames are made in slices, unmeasured, and taken in by
//! the stage itself in batches as large as a full channel gives. The processor
//! time is that of the whole process, the writer's thread, its checkpoints and
//! the closing of the store included, and whatever the filling left for the next
//! checkpoint. Who catches up goes on as it came so far: the store stays open,
//! with what it remembers of the rows before.

use std::hint::black_box;
use std::sync::Arc;

use crate::check::{Checker, Claim};
use crate::config::Config;
use crate::decode::{Decoder, Opener};
use crate::intake::Intake;
use crate::source::{Arrival, Rewind};
use crate::status::Status;
use crate::store::batch::{Batch, Commit, Item, Op};
use crate::store::{self, Accounting, Store};
use record::car;
use record::cbor;
use record::cid::Cid;
use record::commit::Commit as RepoCommit;
use record::event::{Action, CommitEvent, Frame, RepoOp};
use record::json;
use record::key::SigningKey;
use record::mst::Tree;
use record::tid::Tid;
use sim::compose::{Composer, Draft, FOLLOW, LIKE, POST, REPOST, Reference, Times};
use sim::rng::Rng;

use super::folder::Folder;
use super::meter::process_s;
use super::{Ending, Report};

/// Rows before frames come.
const ROWS: usize = 5_000_000;
const ACCOUNTS: usize = 200_000;
const EVENTS: usize = 400_000;
/// Frames held in memory at once.
const SLICE: usize = 20_000;
/// Rows that likes, replies and deletes are chosen from.
const KNOWN_MAX: usize = 500_000;
/// Records of the repository whose tree the frames' proofs are of.
const HISTORY: usize = 80_000;
const PROOFS: usize = 400;
/// A machine that catches up has this to spare.
const CACHE_MIB: u32 = 256;
const BEGUN_US: u64 = 1_780_000_000_000_000;

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
[collections.post]
collection = "app.bsky.feed.post"
[collections.like]
collection = "app.bsky.feed.like"
[collections.repost]
collection = "app.bsky.feed.repost"
[feeds.timeline]
follow = "follow"
targets = ["post"]
"#;

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let folder = Folder::new("intake")?;
    let text = format!(
        "{CONFIG}[store]\nurl = \"sqlite://{}/store.db\"\ncache_mib = {CACHE_MIB}\n",
        folder.display()
    );
    let config = Config::parse(&text)?;
    let store = store::open(&config)?;
    let checker = Checker::new(&config, Arc::clone(store.plan()), sim::lexicons::ALL)?;
    let decoder = Decoder::new(Arc::new(checker), &config.intake);
    let mut world = World::new(scale)?;
    let rows = (ROWS as f64 * scale) as usize;
    world.fill(&*store, decoder.checker(), rows)?;

    let (events, batch_max) = ((EVENTS as f64 * scale) as usize, config.intake.batch_max);
    let mut intake = Intake::new(
        "bench".into(),
        Opener::Firehose(decoder.clone()),
        Arc::clone(&store),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    );
    let mut spent = Spent::on(&mut world, &decoder, &mut intake, events, batch_max)?;
    let before = process_s();
    drop((intake, store));
    spent.intake_s += process_s() - before;
    let floors = Floors {
        append_s: append(&folder, &world, spent.events)?,
        bare_s: bare(&folder, spent.events, batch_max)?,
    };
    Ok(spent.report(rows, batch_max, &floors, &world))
}

/// Processor time by what it was spent on.
#[derive(Debug, Default)]
struct Spent {
    events: usize,
    bytes: usize,
    decode_s: f64,
    intake_s: f64,
}

impl Spent {
    /// Takes in so many events, slice by slice; the making of frames is not measured.
    fn on(
        world: &mut World,
        decoder: &Decoder,
        intake: &mut Intake,
        events: usize,
        batch_max: usize,
    ) -> Result<Self, Ending> {
        let mut spent = Self::default();
        let mut counted = Accounting::default();
        while spent.events < events {
            let frames = world.frames(SLICE.min(events - spent.events))?;
            spent.decode(decoder, &frames);
            let before = process_s();
            for batch in frames.chunks(batch_max) {
                counted.add(&intake.step(world.now_us(), batch)?.accounting);
            }
            spent.intake_s += process_s() - before;
        }
        match counted.applied == spent.events as i64 {
            true => Ok(spent),
            false => Err(format!("not every event was applied: {counted:?}").into()),
        }
    }

    /// The upper bound: the same frames opened and checked, and nothing kept.
    fn decode(&mut self, decoder: &Decoder, frames: &[Arrival]) {
        let before = process_s();
        for arrival in frames {
            black_box(decoder.open(&arrival.frame));
        }
        self.decode_s += process_s() - before;
        self.events += frames.len();
        self.bytes += frames
            .iter()
            .map(|arrival| arrival.frame.len())
            .sum::<usize>();
    }

    fn report(&self, rows: usize, batch: usize, floors: &Floors, world: &World) -> Report {
        let per = |seconds: f64| self.events as f64 / seconds.max(0.01);
        let mix = |name: &str| {
            let made = world.made.iter().find(|(made, _)| *made == name);
            100.0 * made.map_or(0.0, |(_, made)| *made as f64) / self.events.max(1) as f64
        };
        let mut report = Report {
            workload: format!(
                "{} commits of one operation, mean {} bytes, on {rows} rows of {} accounts, batches of {batch}, store.cache_mib = {CACHE_MIB}: likes {:.0} %, posts {:.0} %, reposts {:.0} %, follows {:.0} %, deletes {:.0} %",
                self.events,
                self.bytes / self.events.max(1),
                world.accounts.len(),
                mix(LIKE),
                mix(POST),
                mix(REPOST),
                mix(FOLLOW),
                mix("delete"),
            ),
            ..Report::default()
        };
        report.figure("events_per_cpu_s", per(self.intake_s));
        report.figure("decode_only_per_cpu_s", per(self.decode_s));
        report.figure("sqlite_append_per_cpu_s", per(floors.append_s));
        report.figure("sqlite_same_rows_per_cpu_s", per(floors.bare_s));
        report.ratio("vs_decode_only", self.decode_s / self.intake_s);
        report.ratio("vs_sqlite_append", floors.append_s / self.intake_s);
        // What opening, checking and the engine alone would take; the rest is ours.
        let least_s = self.decode_s + floors.bare_s;
        report.ratio("vs_decode_and_same_rows", least_s / self.intake_s);
        report.at_least("events per CPU-second", per(self.intake_s), 30_000.0);
        report.notes.push(
            "every event is applied, with its references and its rows in lanes; checkpoints and the closing of the store are included".into(),
        );
        report
    }
}

/// What SQLite alone needs, for as many events.
#[derive(Debug)]
struct Floors {
    append_s: f64,
    bare_s: f64,
}

/// What SQLite keeps by itself instead of what we pack: the records under their authors, a table of
/// references, and one of accounts' revisions.
const PLAIN_INDEXES: &str = "
CREATE TABLE revision (key INTEGER PRIMARY KEY, rev INTEGER NOT NULL, data BLOB);
INSERT INTO revision SELECT author, max(rev), randomblob(8) FROM record GROUP BY author;
CREATE INDEX record_by_author ON record (collection, author, time, rkey) WHERE state = 0;
CREATE TABLE reference (target INTEGER NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (target, record)) WITHOUT ROWID;
INSERT INTO reference SELECT hash, id FROM record ORDER BY hash, id;
PRAGMA wal_checkpoint(TRUNCATE);";

/// The same rows in the same tables of the same file, once more, with plain indexes: a record, a
/// reference, an account's revision, and nothing decided or derived.
fn bare(folder: &std::path::Path, events: usize, batch: usize) -> Result<f64, Ending> {
    type Kept = (
        i64,
        i64,
        i64,
        String,
        i64,
        i64,
        Option<Vec<u8>>,
        String,
        Option<String>,
    );
    let mut connection = rusqlite::Connection::open(folder.join("store.db"))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 65_536)?;
    connection.pragma_update(None, "cache_size", -(i64::from(CACHE_MIB) * 4 * 1024))?;
    connection.execute_batch(PLAIN_INDEXES)?;
    let kept: Vec<Kept> = connection
        .prepare("SELECT hash, collection, author, tail, rev, time, cid, body, links FROM record WHERE state = 0 AND hash > 0 ORDER BY id DESC LIMIT ?1")?
        .query_map([events as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?))
        })?
        .collect::<Result<_, _>>()?;
    // Their times again, after everything that is there.
    const LATER_US: i64 = 1 << 40;
    let before = process_s();
    for chunk in kept.chunks(batch).rev() {
        let tx = connection.transaction()?;
        for (hash, collection, author, tail, rev, time, cid, body, links) in chunk.iter().rev() {
            tx.prepare_cached("UPDATE revision SET rev = ?2 WHERE key = ?1")?
                .execute([author, rev])?;
            let later = hash + ((LATER_US >> 23) << 32);
            tx.prepare_cached(
                "INSERT INTO record (hash, collection, author, rkey, tail, rev, state, time, seen, cid, body, links)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?7, ?8, ?9, ?10)",
            )?
            .execute(rusqlite::params![later, collection, author, "3k2yihcrp6f2c", tail, rev, time + LATER_US, cid, body, links])?;
            tx.prepare_cached(
                "INSERT OR IGNORE INTO reference (target, record) VALUES (?1, last_insert_rowid())",
            )?
            .execute([hash])?;
        }
        tx.commit()?;
    }
    drop(connection);
    Ok((process_s() - before) * events as f64 / kept.len().max(1) as f64)
}

/// The other bound: as many bodies appended to a table without an index.
fn append(folder: &std::path::Path, world: &World, events: usize) -> Result<f64, Ending> {
    let mut connection = rusqlite::Connection::open(folder.join("append.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")?;
    let body = &world.sample;
    let before = process_s();
    let mut left = events;
    while left > 0 {
        let tx = connection.transaction()?;
        let count = left.min(10_000);
        for _ in 0..count {
            tx.prepare_cached("INSERT INTO row (body) VALUES (?1)")?
                .execute([body])?;
        }
        tx.commit()?;
        left -= count;
    }
    drop(connection);
    Ok(process_s() - before)
}

/// Accounts, what they wrote, and the parts that frames are made of.
struct World {
    rng: Rng,
    composer: Composer,
    key: SigningKey,
    clock_us: u64,
    seq: i64,
    /// The last revision of each.
    accounts: Vec<Option<Tid>>,
    /// Records that can be named: account, path, CID.
    known: Vec<(usize, String, Cid)>,
    /// Proofs of real depth.
    proofs: Vec<Vec<(Cid, Vec<u8>)>>,
    root: Cid,
    /// By collection, of the frames.
    made: Vec<(&'static str, usize)>,
    /// A record of common size.
    sample: String,
}

fn did(account: usize) -> String {
    // Spread, as real ones are.
    let hash = xxhash_rust::xxh3::xxh3_128(&account.to_be_bytes());
    format!("did:plc:{:024x}", hash >> 32)
}

impl World {
    fn new(scale: f64) -> Result<Self, Ending> {
        let mut rng = Rng::new(20_260_704);
        let composer = Composer::new(rng.split("composer"), Times::default());
        let mut tree = Tree::new();
        let mut paths = Vec::new();
        for number in 0..HISTORY as u64 {
            let path = format!("{LIKE}/{}", Tid::new(BEGUN_US + number * 1_000_000, 1));
            tree.insert(&path, Cid::of_raw(&number.to_be_bytes()))?;
            paths.push(path);
        }
        let proofs = (0..PROOFS)
            .map(|_| {
                let path = paths.get(rng.below(HISTORY as u64) as usize);
                tree.proof([path.map_or("", String::as_str)])
                    .into_iter()
                    .collect()
            })
            .collect();
        Ok(Self {
            key: SigningKey::k256([7; 32])?,
            root: tree.root(),
            rng,
            composer,
            clock_us: BEGUN_US,
            seq: 0,
            accounts: vec![None; ((ACCOUNTS as f64 * scale) as usize).max(100)],
            known: Vec::new(),
            proofs,
            made: [LIKE, POST, REPOST, FOLLOW, "delete"]
                .map(|name| (name, 0))
                .into(),
            sample: String::new(),
        })
    }

    fn now_us(&self) -> i64 {
        self.clock_us.cast_signed() + 1_000_000
    }

    /// Somebody, the busy more often.
    fn author(&mut self) -> usize {
        let lot = self.rng.unit();
        ((self.accounts.len() as f64 * lot * lot) as usize).min(self.accounts.len() - 1)
    }

    fn draft(&mut self) -> Draft {
        self.clock_us += self.rng.below(4_000) + 1;
        let (now_us, lot) = (self.clock_us.cast_signed(), self.rng.below(100));
        let at = self.rng.below(self.known.len().max(1) as u64) as usize;
        let to = match self.known.get(at) {
            Some((account, path, cid)) => Reference {
                uri: format!("at://{}/{path}", did(*account)),
                cid: cid.to_string(),
            },
            None => Reference {
                uri: format!("at://{}/{POST}/3k2yihcrp6f2c", did(0)),
                cid: self.root.to_string(),
            },
        };
        let subject = did(self.rng.below(self.accounts.len() as u64) as usize);
        match lot {
            0..72 => self.composer.reaction(now_us, LIKE, &to),
            72..84 => {
                let parent = self.rng.chance(0.4).then_some(&to);
                self.composer.post(now_us, parent)
            }
            84..94 => self.composer.reaction(now_us, REPOST, &to),
            _ => self.composer.follow(now_us, &subject),
        }
    }

    /// Remembers a record; of many, every so many-th.
    fn know(&mut self, account: usize, path: String, cid: Cid) {
        if self.known.len() < KNOWN_MAX {
            self.known.push((account, path, cid));
        } else {
            let at = self.rng.below(KNOWN_MAX as u64) as usize;
            if let Some(slot) = self.known.get_mut(at) {
                *slot = (account, path, cid);
            }
        }
    }

    /// Fills the store with rows, without frames.
    fn fill(&mut self, store: &dyn Store, checker: &Checker, rows: usize) -> Result<(), Ending> {
        let mut filled = 0;
        while filled < rows {
            let count = SLICE.min(rows - filled);
            let mut items = Vec::with_capacity(count);
            for _ in 0..count {
                let (account, draft) = (self.author(), self.draft());
                let rev = Tid::new(self.clock_us, 1);
                let rkey = Tid::new(self.clock_us, 3).to_string();
                let block = cbor::encode(&draft.value);
                let cid = Cid::of_cbor(&block);
                let whose = did(account);
                let claim = Claim {
                    did: &whose,
                    collection: draft.collection,
                    rkey: &rkey,
                    rev: rev.bits(),
                };
                let verdict = checker.cbor(claim, cid, &block);
                self.know(account, format!("{}/{rkey}", draft.collection), cid);
                if let Some(last) = self.accounts.get_mut(account) {
                    *last = Some(rev);
                }
                items.push(Item::Commit(Commit {
                    did: whose,
                    rev: rev.bits(),
                    chain: None,
                    filtered: 0,
                    ops: vec![Op {
                        collection: draft.collection.to_owned(),
                        rkey,
                        verdict,
                    }],
                    frame: Default::default(),
                    seq: 0,
                    was_held: false,
                    live: true,
                }));
            }
            let batch = Batch {
                source: "fill".into(),
                cursor: Some(self.seq),
                now_us: self.now_us(),
                items,
            };
            let counted = store.commit(batch)?.accounting;
            if counted.applied != count as i64 {
                return Err(format!("not every row was applied: {counted:?}").into());
            }
            filled += count;
        }
        Ok(())
    }

    fn frames(&mut self, count: usize) -> Result<Vec<Arrival>, Ending> {
        let row: Arc<str> = "bench".into();
        (0..count)
            .map(|_| {
                Ok(Arrival {
                    frame: self.frame()?.into(),
                    row: Arc::clone(&row),
                    ..Arrival::default()
                })
            })
            .collect()
    }

    fn frame(&mut self) -> Result<Vec<u8>, Ending> {
        let undo = self.rng.below(100) < 8;
        let (account, path, block) = if undo {
            self.clock_us += 1;
            let at = self.rng.below(self.known.len() as u64) as usize;
            let (account, path, _) = self.known.swap_remove(at);
            (account, path, None)
        } else {
            let (account, draft) = (self.author(), self.draft());
            let path = format!("{}/{}", draft.collection, Tid::new(self.clock_us, 3));
            self.count(draft.collection);
            (account, path, Some(cbor::encode(&draft.value)))
        };
        if undo {
            self.count("delete");
        }
        let cid = block.as_deref().map(Cid::of_cbor);
        if let Some(cid) = cid {
            self.know(account, path.clone(), cid);
        }
        if self.sample.is_empty()
            && let Some(block) = &block
        {
            json::to_json(&cbor::decode(block)?, &mut self.sample);
        }
        let action = if undo { Action::Delete } else { Action::Create };
        let op = RepoOp {
            action,
            path: &path,
            cid,
            prev: undo.then_some(self.root),
        };
        self.commit(account, op, block.as_deref())
    }

    fn count(&mut self, name: &str) {
        if let Some((_, made)) = self.made.iter_mut().find(|(it, _)| *it == name) {
            *made += 1;
        }
    }

    fn commit(
        &mut self,
        account: usize,
        op: RepoOp<'_>,
        block: Option<&[u8]>,
    ) -> Result<Vec<u8>, Ending> {
        let rev = Tid::new(self.clock_us, 1);
        let whose = did(account);
        let since = self
            .accounts
            .get_mut(account)
            .and_then(|last| last.replace(rev));
        let commit = RepoCommit::sign(&whose, rev, self.root, &self.key).to_block();
        let root = Cid::of_cbor(&commit);
        let at = self.rng.below(PROOFS as u64) as usize;
        let nodes = self.proofs.get(at).into_iter().flatten();
        let record = op.cid.zip(block);
        let blocks = car::write(
            &[root],
            std::iter::once((root, commit.as_slice()))
                .chain(nodes.map(|(cid, node)| (*cid, node.as_slice())))
                .chain(record),
        );
        self.seq += 1;
        let event = CommitEvent {
            seq: self.seq,
            repo: &whose,
            commit: root,
            rev,
            since,
            blocks: &blocks,
            ops: vec![op],
            prev_data: since.map(|_| self.root),
            time: "2026-07-04T14:38:00.123Z",
            too_big: false,
            rebase: false,
        };
        Ok(Frame::Commit(event).to_bytes())
    }
}
