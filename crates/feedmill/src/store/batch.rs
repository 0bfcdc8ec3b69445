//! What goes into the store: checked work, and the cursor it brings.

use bytes::Bytes;
use record::cid::Cid;
use serde::{Deserialize, Serialize};

use super::account::AccountStatus;
use super::plan::Derived;
use crate::clock::Micros;

/// How the names of sources that are lists of accounts begin.
pub const BACKFILL: &str = "backfill:";

/// One transaction of work from one source.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Whose cursor and counters move.
    pub source: String,
    /// The cursor after this batch; `None` leaves it where it is.
    pub cursor: Option<i64>,
    /// The moment of first sight for everything new in it.
    pub now_us: Micros,
    /// The work, in the order of the stream.
    pub items: Vec<Item>,
}

impl Batch {
    /// Work that no stream brought: it moves no cursor, and units it settles are
    /// counted where they came from.
    pub fn of_no_source(now_us: Micros, item: Item) -> Self {
        Self {
            source: String::new(),
            cursor: None,
            now_us,
            items: vec![item],
        }
    }
}

/// One thing that the stream said.
#[derive(Debug, Clone)]
pub enum Item {
    /// Operations of one repository.
    Commit(Commit),
    /// A repository as a whole, fetched to repair or to backfill.
    Snapshot(Snapshot),
    /// Single records fetched from their host, with the revision that the repository had before;
    /// the account's chain is left as it is.
    Fetched { did: String, rev: u64, ops: Vec<Op> },
    /// A repository's root without its records; differs from ours: resync.
    Sync {
        did: String,
        rev: u64,
        data: Option<Cid>,
    },
    /// Hosting status changed.
    Account {
        did: String,
        status: AccountStatus,
        time_us: Micros,
    },
    /// What its host says of an account when asked, until the stream says something new; not counted as received.
    Standing { did: String, status: AccountStatus },
    /// Handle or keys changed.
    Identity {
        did: String,
        handle: Option<String>,
        time_us: Micros,
    },
    /// Something that could not be opened or understood.
    Unopened(DeadLetter),
    /// Units that were not of interest.
    Filtered(u64),
    /// Parked records whose time has come, at most this many; not counted as received.
    Settle(usize),
    /// Records that wait in queues, as many as one turn takes; not counted as received.
    Turn,
    /// A dead letter and what today's checks say of its record; not counted as received.
    Replay { letter: i64, verdict: Box<Verdict> },
    /// A dead letter that is not kept any longer; its unit stays counted as dead.
    Discard { letter: i64 },
    /// Accounts found in a list: those never heard of are to be fetched.
    Listed(Vec<String>),
    /// A reader of a feed whose follows are not all here: to be fetched, unless as many wait already.
    FirstRead {
        did: String,
        feed: String,
        waiting_max: usize,
    },
    /// A reader who listens before anything of it is here: what it follows later finds it by its number.
    Reader { did: String },
    /// A reader's repository cannot be fetched; it is left alone for a while.
    GaveUp { did: String },
    /// Something may be missing anywhere: every known account is to be fetched again, and every list read again.
    AllDue,
}

/// Operations of one repository, made at once.
#[derive(Debug, Clone)]
pub struct Commit {
    pub did: String,
    pub rev: u64,
    /// What its source says came before; `None` where it does not say (Jetstream, direct writes).
    pub chain: Option<Chain>,
    /// Operations not of interest; they still advance the chain.
    pub filtered: u64,
    pub ops: Vec<Op>,
    /// The frame as it came, to be held if the chain is broken.
    pub frame: Bytes,
    /// This frame was held before: it is counted as held already.
    pub was_held: bool,
    /// Happened just now, as opposed to being fetched from the past.
    pub live: bool,
}

/// The link to the commit before.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    pub since: Option<u64>,
    pub prev_data: Option<Cid>,
    pub data: Option<Cid>,
}

/// All records of interest of a repository at one revision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub did: String,
    pub rev: u64,
    pub data: Option<Cid>,
    pub ops: Vec<Op>,
    /// How many held frames follow in the same batch; if more were held
    /// meanwhile the batch is refused and must be made again.
    pub held: usize,
}

/// One operation on one record.
#[derive(Debug, Clone)]
pub struct Op {
    pub collection: String,
    pub rkey: String,
    pub verdict: Verdict,
}

/// What the checks said of an operation.
#[derive(Debug, Clone)]
pub enum Verdict {
    Put(Put),
    Delete,
    /// The record is at fault. What stood there before is gone all the same.
    Refused(DeadLetter),
}

/// A record that passed its checks.
#[derive(Debug, Clone)]
pub struct Put {
    pub cid: Option<Cid>,
    /// The record as JSON text.
    pub body: String,
    /// Its own time, where it has a well-formed one.
    pub time_us: Option<Micros>,
    /// When it was first seen by whoever handed it on; `None`: now.
    pub seen_us: Option<Micros>,
    /// References: (path, target).
    pub links: Vec<(String, String)>,
    /// Keys and follows.
    pub derived: Derived,
}

/// Something refused for good, kept for inspection and replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeadLetter {
    pub id: i64,
    pub did: String,
    pub collection: String,
    pub rkey: String,
    pub rev: u64,
    /// The record's CID, where it is known.
    pub cid: String,
    /// Where it stopped: `frame`, `decode`, `verify`, `size`, `lexicon`, `rule`, `dependency`.
    pub stage: String,
    pub message: String,
    /// The rule that was broken, for stage `rule`.
    pub rule: String,
    /// JSON path of the field at fault.
    pub path: Vec<String>,
    pub expected: String,
    pub received: String,
    /// The record as JSON, or the frame's bytes as base64.
    pub raw: String,
    pub cursor: i64,
    pub time_us: Micros,
}
